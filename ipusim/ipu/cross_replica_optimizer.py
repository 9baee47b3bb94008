"""Another path to what is in the module of the same name of :mod:`ipusim.ipu.optimizers`, as in Graphcore's."""

from __future__ import annotations

from ipusim.ipu.optimizers.cross_replica_optimizer import CrossReplicaOptimizer

__all__ = ["CrossReplicaOptimizer"]
