"""Optimizers in TensorFlow's and Graphcore's names: what they compute is the core's."""

from __future__ import annotations

from typing import Final

from ipusim.ipu.runtime.offered import in_module, rows

_HERE: Final = "ipusim.ipu.optimizers"
_RUNTIME: Final = "ipusim.ipu.runtime"

__getattr__, __dir__ = rows(
    __name__,
    {
        name: f"{_HERE}.{name}"
        for name in (
            "cross_replica_optimizer",
            "gradient_accumulation_optimizer",
            "map_gradient_optimizer",
            "sharded_optimizer",
        )
    }
    | in_module(f"{_HERE}.cross_replica_optimizer", "CrossReplicaOptimizer")
    | in_module(
        f"{_HERE}.gradient_accumulation_optimizer",
        "CrossReplicaGradientAccumulationOptimizer CrossReplicaGradientAccumulationOptimizerV2 "
        "GradientAccumulationOptimizer GradientAccumulationOptimizerV2",
    )
    | in_module(f"{_HERE}.map_gradient_optimizer", "MapGradientOptimizer")
    | in_module(f"{_HERE}.sharded_optimizer", "ShardedOptimizer")
    | in_module(
        "ipusim.ipu.tensorflow.train",
        "AdadeltaOptimizer AdagradOptimizer AdamOptimizer FtrlOptimizer GradientDescentOptimizer LAMBOptimizer "
        "MomentumOptimizer RMSPropOptimizer",
    )
    | in_module(f"{_RUNTIME}.pipeline_options", "GradientAccumulationReductionMethod")
    | in_module(f"{_RUNTIME}.weight_update", "IpuOptimizer")
    | in_module(f"{_RUNTIME}.optimizer", "Accumulation Optimizer TrainOp")
    | in_module(f"{_RUNTIME}.gradients", "Variable")
    | in_module(f"{_RUNTIME}.weight_update", "WeightUpdate"),
)
