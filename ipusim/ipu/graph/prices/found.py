"""Find the simulator's layers among the nodes of a forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.prices import kernel_layers, norm_layers, recurrent_layers, whole_layers, written_layers
from ipusim.ipu.graph.prices.layer import FoundLayer
from ipusim.ipu.graph.prices.view import PassView

#: Returns the layer whose last or characteristic node is given; None for other nodes.
Pattern = Callable[[PassView, Node], FoundLayer | None]
#: All patterns, sorted from many nodes to few.
PATTERNS: Final[tuple[Pattern, ...]] = (
    whole_layers.attention,
    recurrent_layers.recurrent,
    kernel_layers.dense,
    kernel_layers.convolution,
    norm_layers.fused_norm,
    norm_layers.written_norm,
    whole_layers.dropout,
    whole_layers.pool,
    whole_layers.cross_entropy,
    whole_layers.squared_error,
    whole_layers.activation,
    written_layers.embedding,
    written_layers.positions,
    written_layers.add,
)


def find_layers(view: PassView) -> list[FoundLayer]:
    """Return the layers of a forward pass in order; no node belongs to two layers."""
    result: list[FoundLayer] = []
    for pattern in PATTERNS:
        for entry in view.entries.values():
            if entry.node.name in view.claimed:
                continue
            layer = pattern(view, entry.node)
            if layer is not None and not view.claimed & layer.nodes:
                view.claimed |= layer.nodes
                result.append(layer)
    order = {name: number for number, name in enumerate(view.entries)}
    return sorted(result, key=lambda layer: min(order[name] for name in layer.nodes))
