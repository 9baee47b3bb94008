"""What a gradient accumulation optimizer asks of the program that it trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ipusim.ipu.gradient_accumulation import GradientAccumulationReductionMethod


@dataclass(frozen=True)
class Accumulation:
    """How the gradients of mini-batches become one.

    Attributes:
        num_mini_batches: mini-batches of a weight update.
        offload_weight_update_variables, replicated_optimizer_state_sharding: as in a pipeline.
        dtype: of the accumulators, or a function from a variable to it; None for the variable's own.
        reduction_method: how gradients are accumulated.
    """

    num_mini_batches: int
    offload_weight_update_variables: bool | None = None
    replicated_optimizer_state_sharding: bool | None = False
    dtype: Any = None
    reduction_method: GradientAccumulationReductionMethod = GradientAccumulationReductionMethod.SUM
