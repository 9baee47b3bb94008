"""What optimizers ask of a loop that trains: how gradients are accumulated, and which loss is to become smaller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ipusim.ipu.gradient_accumulation import GradientAccumulationReductionMethod


@dataclass(frozen=True)
class Accumulation:
    """How the gradients of mini-batches become one: the arguments of GradientAccumulationOptimizerV2."""

    num_mini_batches: int
    offload_weight_update_variables: bool | None = None
    replicated_optimizer_state_sharding: bool | None = False
    dtype: Any = None
    reduction_method: GradientAccumulationReductionMethod = GradientAccumulationReductionMethod.SUM


@dataclass(frozen=True, eq=False)
class TrainOp:
    """What minimize returns: which optimizer is to make which loss smaller."""

    optimizer: Any
    loss: Any
