"""Graphcore's ``ipu.data``."""

from ipusim.ipu.data import ops
from ipusim.ipu.dataset import Dataset

__all__ = ["Dataset", "ops"]
