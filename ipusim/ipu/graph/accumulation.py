"""Mark gradients that are accumulated over several runs of a body before the weight update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ipusim.api import models


@dataclass(frozen=True, eq=False)
class Accumulation:
    """Gradient accumulation of an optimizer.

    Attributes:
        count: micro-batches per weight update.
        reduction: sum, mean or running mean of the gradients.
        options: placement of optimizer states and accumulators, with the keys of a scenario's section ``pipeline``.
        dtype_of: returns a variable's accumulator dtype; None for the variable's dtype.
        dtype: accumulator dtype of this variable; None for the variable's dtype.
        variable: name of the variable in the nodes; empty if unknown.
    """

    count: int
    reduction: models.Reduction = "SUM"
    options: Mapping[str, Any] = field(default_factory=dict)
    dtype_of: Callable[[Any], Any] = lambda _: None
    dtype: Any = None
    variable: str = ""
