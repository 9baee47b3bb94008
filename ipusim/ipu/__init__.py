"""Pipelines written in Python, in Graphcore's own names: ``from ipusim import ipu``."""

from __future__ import annotations

from ipusim.ipu import config, ipu_infeed_queue, ipu_outfeed_queue, optimizers, pipelining_ops
from ipusim.model.variables import get_variable

__all__ = ["config", "get_variable", "ipu_infeed_queue", "ipu_outfeed_queue", "optimizers", "pipelining_ops"]
