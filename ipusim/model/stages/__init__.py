"""Computational stages: parts of a model on an IPU, with stash, splits and bound parameters."""
