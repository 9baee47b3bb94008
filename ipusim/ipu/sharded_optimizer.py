"""Another path to what is in the module of the same name of :mod:`ipusim.ipu.optimizers`, as in Graphcore's."""

from __future__ import annotations

from ipusim.ipu.optimizers.sharded_optimizer import ShardedOptimizer

__all__ = ["ShardedOptimizer"]
