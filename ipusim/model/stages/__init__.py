"""Computational stages: what of a model one IPU runs as one program, what it keeps, and how it is bound and cut."""
