"""Layers and losses: forward and backward passes side by side, shapes, and the work that each asks for."""
