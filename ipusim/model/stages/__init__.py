"""Computational stages: the parts of a model that an IPU runs, their stash, and how models are cut and bound."""
