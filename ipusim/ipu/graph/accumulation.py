"""Mark gradients that are accumulated over several runs of a body before the weight update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ipusim.api import models
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.registry import entry_of


@dataclass(frozen=True, eq=False)
class Accumulation:
    """Gradient accumulation of an optimizer.

    Attributes:
        count: micro-batches per weight update.
        reduction: sum, mean or running mean of the gradients.
        options: placement of optimizer states and accumulators, keyed like a scenario's pipeline section.
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


def accumulation_of(node: Node) -> Accumulation | None:
    """Return the accumulation that a node marks on a gradient; None for other nodes."""
    entry = entry_of(node)
    return entry.value if entry is not None and isinstance(entry.value, Accumulation) else None
