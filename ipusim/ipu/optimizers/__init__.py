"""Optimizers in TensorFlow's and Graphcore's names: what they compute is the core's."""

from __future__ import annotations

from ipusim.ipu.gradient_accumulation import GradientAccumulationReductionMethod
from ipusim.ipu.optimizers.accumulation import Accumulation
from ipusim.ipu.optimizers.cross_replica_optimizer import CrossReplicaOptimizer
from ipusim.ipu.optimizers.gradient_accumulation_optimizer import (
    CrossReplicaGradientAccumulationOptimizer,
    CrossReplicaGradientAccumulationOptimizerV2,
    GradientAccumulationOptimizer,
    GradientAccumulationOptimizerV2,
)
from ipusim.ipu.optimizers.ipu_optimizer import IpuOptimizer
from ipusim.ipu.optimizers.map_gradient_optimizer import MapGradientOptimizer
from ipusim.ipu.optimizers.optimizer import Optimizer, TrainOp
from ipusim.ipu.optimizers.sharded_optimizer import ShardedOptimizer
from ipusim.ipu.optimizers.train import (
    AdadeltaOptimizer,
    AdagradOptimizer,
    AdamOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    LAMBOptimizer,
    MomentumOptimizer,
    RMSPropOptimizer,
)
from ipusim.ipu.optimizers.variable import Variable
from ipusim.ipu.optimizers.weight_update import WeightUpdate

__all__ = [
    "Accumulation",
    "AdadeltaOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "CrossReplicaGradientAccumulationOptimizer",
    "CrossReplicaGradientAccumulationOptimizerV2",
    "CrossReplicaOptimizer",
    "FtrlOptimizer",
    "GradientAccumulationOptimizer",
    "GradientAccumulationOptimizerV2",
    "GradientAccumulationReductionMethod",
    "GradientDescentOptimizer",
    "IpuOptimizer",
    "LAMBOptimizer",
    "MapGradientOptimizer",
    "MomentumOptimizer",
    "Optimizer",
    "RMSPropOptimizer",
    "ShardedOptimizer",
    "TrainOp",
    "Variable",
    "WeightUpdate",
]
