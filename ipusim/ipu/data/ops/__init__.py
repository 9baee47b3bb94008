"""Graphcore's ``ipu.data.ops``."""

from ipusim.ipu.data.ops import dataset_ops

__all__ = ["dataset_ops"]
