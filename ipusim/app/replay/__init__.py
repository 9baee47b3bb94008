"""Replay: a measured training step compared with the simulation of its plan."""
