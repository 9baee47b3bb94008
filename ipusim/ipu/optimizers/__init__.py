"""Optimizers in TensorFlow's and Graphcore's names: what they compute is the core's."""

from __future__ import annotations

from typing import Final

from ipusim.ipu.runtime.offered import found_in, rows

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
    | found_in(f"{_HERE}.cross_replica_optimizer", "CrossReplicaOptimizer")
    | found_in(
        f"{_HERE}.gradient_accumulation_optimizer",
        "CrossReplicaGradientAccumulationOptimizer CrossReplicaGradientAccumulationOptimizerV2 "
        "GradientAccumulationOptimizer GradientAccumulationOptimizerV2",
    )
    | found_in(f"{_HERE}.map_gradient_optimizer", "MapGradientOptimizer")
    | found_in(f"{_HERE}.sharded_optimizer", "ShardedOptimizer")
    | found_in(
        "ipusim.ipu.tensorflow.train",
        "AdadeltaOptimizer AdagradOptimizer AdamOptimizer FtrlOptimizer GradientDescentOptimizer LAMBOptimizer "
        "MomentumOptimizer RMSPropOptimizer",
    )
    | found_in(f"{_RUNTIME}.pipeline_options", "GradientAccumulationReductionMethod")
    | found_in(f"{_RUNTIME}.ipu_optimizer", "IpuOptimizer")
    | found_in(f"{_RUNTIME}.optimizer", "Accumulation Optimizer TrainOp")
    | found_in(f"{_RUNTIME}.gradients", "Variable")
    | found_in(f"{_RUNTIME}.weight_update", "WeightUpdate"),
)
