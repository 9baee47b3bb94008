"""Computational stages (consecutive layers of a model on an IPU): cuts of a model, passes, profiles and memory."""
