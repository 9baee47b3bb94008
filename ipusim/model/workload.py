"""Define the workload, everything that a run computes: stages, data, weights, and their update.

The machine's executor runs the workload with NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ipusim.base.errors import ModelError
from ipusim.model.data.feed import Feed, MicroBatches
from ipusim.model.layers.layer import Array, Parameters
from ipusim.model.learning.optimizers import Optimizer
from ipusim.model.learning.variable_work import Reduction
from ipusim.model.stages.stage import Stage


@dataclass(frozen=True)
class Workload:
    """Computation of the stages, with data and weights.

    Attributes:
        stages: computational stages, in order.
        feed: source of micro-batches.
        optimizer: optimizer of the weight update; None for inference.
        reduction: how gradients are accumulated: sum, mean or running mean.
        dtype: dtype of weights, activations and gradients: float16, float32 or float64.
        seed: seed of the initial weights.
        accumulation_dtype: dtype of gradient accumulators, or a function from a parameter's name (``layer/W``) to a
            dtype; None for the parameters' dtypes. The optimizer receives gradients of this dtype.

    Raises:
        ModelError: for no stages, a dtype without arithmetic, or data of another dtype.

    Example:
        >>> from ipusim.api import Request, assemble
        >>> layers = [{"name": "last", "type": "dense", "units": 3}, {"name": "loss", "type": "softmax_cross_entropy"}]
        >>> data = {"type": "synthetic", "shape": [4], "classes": 3, "samples": 8}
        >>> pipeline = {"splits": ["loss"], "gradient_accumulation_count": 2}
        >>> options = {"system": {"name": "m2000"}, "data": data, "model": {"layers": layers}}
        >>> job = assemble(Request.from_dict(options | {"pipeline": pipeline}))
        >>> workload = job.workload(0)
        >>> {name: array.shape for name, array in workload.initial_parameters(0).items()}
        {'last/W': (4, 3), 'last/b': (3,)}
    """

    stages: tuple[Stage, ...]
    feed: MicroBatches
    optimizer: Optimizer | None = None
    reduction: Reduction = "SUM"
    dtype: np.dtype[np.floating] = field(default_factory=lambda: np.dtype(np.float32))
    seed: int = 0
    accumulation_dtype: npt.DTypeLike | Callable[[str], npt.DTypeLike] | None = None

    def __post_init__(self) -> None:
        """Raise ModelError for no stages, a dtype without arithmetic, or data of another dtype."""
        if not self.stages:
            raise ModelError("a workload needs at least one stage, got none")
        if self.dtype.kind != "f":
            raise ModelError(f"expected a floating-point dtype such as float32, got {self.dtype}")
        if not isinstance(self.feed, Feed):
            return
        data = self.feed.dataset.x.dtype
        if data.kind == "f" and data != self.dtype:
            raise ModelError(f"the dataset is {data} but the workload computes in {self.dtype}: convert with astype")

    def accumulators(self, parameters: Parameters) -> dict[str, Array]:
        """Return zero accumulators of the parameters, in the workload's accumulation dtype.

        Args:
            parameters: arrays by name.

        Returns:
            Arrays of the same names and shapes.
        """
        dtype = self.accumulation_dtype
        if callable(dtype) and not isinstance(dtype, type):  # np.float32 is a callable dtype
            return {name: np.zeros_like(array, dtype=dtype(name)) for name, array in parameters.items()}
        return {name: np.zeros_like(array, dtype=dtype) for name, array in parameters.items()}

    def initial_parameters(self, stage_index: int) -> dict[str, Array]:
        """Draw the initial weights of a stage, equal under every split.

        Args:
            stage_index: the stage's number.

        Returns:
            Arrays keyed ``layer/W``.
        """
        return self.stages[stage_index].initial_parameters(self.seed, self.dtype)
