"""A measured step of a training, held against the simulation of its plan."""
