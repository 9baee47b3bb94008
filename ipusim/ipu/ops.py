"""The package ``ipu.ops`` of Graphcore's first releases: modules that stand above it since."""

from __future__ import annotations

from ipusim.ipu import functional_ops, pipelining_ops

__all__ = ["functional_ops", "pipelining_ops"]
