"""Gradients that are accumulated over several runs of a body before its weight update takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ipusim.api import models
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.registry import entry_of


@dataclass(frozen=True, eq=False)
class Accumulation:
    """How an optimizer's gradients are accumulated.

    Attributes:
        count: micro-batches of a weight update.
        reduction: how gradients are accumulated.
        options: where optimizer states and accumulators lie, by the keys of a scenario's pipeline.
        dtype_of: returns the dtype of a variable's accumulator; None for that of the variable.
        dtype: dtype of this variable's accumulator; None for that of the variable.
    """

    count: int
    reduction: models.Reduction = "SUM"
    options: Mapping[str, Any] = field(default_factory=dict)
    dtype_of: Callable[[Any], Any] = lambda _: None
    dtype: Any = None


def accumulation_of(node: Node) -> Accumulation | None:
    """Return how a node accumulates the gradient that it takes; None for a node that does not."""
    entry = entry_of(node)
    return entry.value if entry is not None and isinstance(entry.value, Accumulation) else None
