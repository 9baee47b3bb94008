"""A workload: all the numerics of a run, which the machine's executor carries out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ipusim.errors import ModelError
from ipusim.model.feed import Feed
from ipusim.model.layer import Array
from ipusim.model.optimizers import Optimizer
from ipusim.model.stage import Stage

#: How the gradients of an execution's micro-batches are accumulated: added, or each divided by the count first.
Reduction = Literal["SUM", "MEAN"]


@dataclass(frozen=True)
class Workload:
    """What the stages compute, on which data and with which weights.

    Attributes:
        stages: the computational stages, in order.
        feed: the micro-batches.
        optimizer: the weight update; None for inference.
        reduction: how gradients are accumulated.
        dtype: of weights, activations and gradients: float32 or float64.
        seed: of the initial weights.
    """

    stages: tuple[Stage, ...]
    feed: Feed
    optimizer: Optimizer | None = None
    reduction: Reduction = "SUM"
    dtype: np.dtype[np.floating] = field(default_factory=lambda: np.dtype(np.float32))
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise ModelError for no stages, a dtype that does not compute, or data of another dtype."""
        if not self.stages:
            raise ModelError("a workload needs at least one stage, got none")
        if self.dtype.kind != "f":
            raise ModelError(f"expected a floating-point dtype such as float32, got {self.dtype}")
        data = self.feed.dataset.x.dtype
        if data.kind == "f" and data != self.dtype:
            raise ModelError(f"the dataset is {data} but the workload computes in {self.dtype}: convert with astype")

    def initial_parameters(self, stage_index: int) -> dict[str, Array]:
        """Draw the initial weights of one stage, keyed ``layer/W``; the same under every split."""
        return self.stages[stage_index].initial_parameters(self.seed, self.dtype)
