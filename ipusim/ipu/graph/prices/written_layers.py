"""Recognise activations written as arithmetic, embeddings, and sums of two values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from ipusim.api import layers
from ipusim.ipu.graph.executable import Executable, Invocation
from ipusim.ipu.graph.node import Node, Output
from ipusim.ipu.graph.prices.layer import FoundLayer
from ipusim.ipu.graph.prices.view import SAME_VALUE, PassView

#: Names of the simulator's activations by the operation type of the elementary function inside.
_ACTIVATION_OF: Final = {"Tanh": "gelu", "Erf": "gelu_erf", "Erfc": "gelu_erf", "Sigmoid": "swish"}
_ARITHMETIC: Final = SAME_VALUE | {
    "Mul",
    "RealDiv",
    "Add",
    "AddV2",
    "Sub",
    "Pow",
    "Square",
    "Neg",
    "Cast",
    *_ACTIVATION_OF,
}
_SUMS: Final = frozenset({"Add", "AddV2"})
#: Maximum number of nodes of an activation: GELU's tanh form, with its cube as two products, has ten nodes.
_MAX_NODES: Final = 16
#: Largest difference between an activation's values and its definition in float32. It must tell GELU's two forms
#: apart, which differ by 5e-4.
_TOLERANCE: Final = 2e-5
#: The same difference in float16, where a program's constants have only three digits.
_TOLERANCE_IN_HALF: Final = 1e-2


class WrittenActivation(NamedTuple):
    """An activation written as arithmetic.

    Attributes:
        activation: name of the activation.
        x: argument of the activation.
        nodes: names of the nodes.
        last: last node.
    """

    activation: str
    x: Output
    nodes: frozenset[str]
    last: Node


def written_activation(view: PassView, node: Node) -> WrittenActivation | None:
    """Return the activation written around an elementary function, like GELU around tanh.

    The arithmetic may have any form with one tensor and constants, as long as its values are the activation's values.
    """
    if node.type not in _ACTIVATION_OF:
        return None
    for x in _upstream(view, node.inputs[0]):
        nodes: set[str] = set()
        if _depends_only_on(view, node.outputs[0], x, nodes):
            last: Node | None = node
            while last is not None and len(nodes) <= _MAX_NODES:
                if (
                    last.type in ("Mul", "RealDiv")
                    and last is not node
                    and _has_values(view, _ACTIVATION_OF[node.type], x, last)
                ):
                    return WrittenActivation(_ACTIVATION_OF[node.type], x, frozenset(nodes), last)
                last = view.only_reader(last)
                if (
                    last is None
                    or last.type not in _ARITHMETIC
                    or not _depends_only_on(view, last.outputs[0], x, nodes)
                ):
                    break
    return None


def written_behind(view: PassView, tensor: Output) -> WrittenActivation | None:
    """Return the activation written as arithmetic on a tensor, or None for other arithmetic."""
    queue, visited = [tensor.node], dict.fromkeys([tensor.node])
    while queue and len(visited) <= _MAX_NODES:
        for node in view.readers(view.entries[queue.pop(0)].node):
            if node.name in visited or node.type not in _ARITHMETIC:
                continue
            visited[node.name] = None
            queue.append(node.name)
            pattern = written_activation(view, node)
            if pattern is not None and view.source(pattern.x) == view.source(tensor):
                return pattern
    return None


def _upstream(view: PassView, tensor: Output) -> Iterator[Output]:
    """Yield a tensor and its arithmetic ancestors, nearest first."""
    queue, visited = [tensor], {tensor}
    while queue and len(visited) <= _MAX_NODES:
        tensor = queue.pop(0)
        yield tensor
        node = view.node(tensor)
        if node is not None and node.type in _ARITHMETIC:
            new = [operand for operand in node.inputs if operand not in visited and not view.is_constant(operand)]
            queue += new
            visited |= {*new}


def _depends_only_on(view: PassView, tensor: Output, x: Output, nodes: set[str]) -> bool:
    """Tell whether a tensor depends only on ``x`` and constants; add the nodes between them to ``nodes``."""
    if tensor == x or view.is_constant(tensor):
        return True
    node = view.node(tensor)
    if node is None or node.type not in _ARITHMETIC or len(nodes) > _MAX_NODES:
        return False
    nodes.add(node.name)
    return all(_depends_only_on(view, operand, x, nodes) for operand in node.inputs)


def _has_values(view: PassView, activation: str, x: Output, last: Node) -> bool:
    """Tell whether the nodes from ``x`` to ``last`` compute an activation, by their values at sample points.

    The points lie along an axis before those of the tensors, so constants of any shape can be combined with them. A
    constant of several numbers gives the values a larger shape, which is not an activation's.
    """
    dtype = view.form(x).dtype
    axes = [1] * len(view.form(last.outputs[0]).shape)
    points: Any = np.linspace(-4.0, 4.0, 33).astype(dtype).reshape(-1, *axes)
    executable = Executable(view.graph, [x], [last.outputs[0]])
    (result,) = executable.run(Invocation({}), [points])
    expected_values, _ = layers.ActivationLayer(activation).forward({}, points.astype(np.float64))
    tolerance = _TOLERANCE if dtype.itemsize >= np.dtype(np.float32).itemsize else _TOLERANCE_IN_HALF
    return np.shape(result) == points.shape and bool(
        np.allclose(result.astype(np.float64), expected_values, tolerance, tolerance)
    )


def embedding(view: PassView, node: Node) -> FoundLayer | None:
    """Return the embedding that gathers rows of a table: TensorFlow's ``gather`` and ``embedding_lookup``."""
    if node.type == "ResourceGather":
        table = view.entries[node.name].inputs[0]
    elif node.type in ("Gather", "GatherV2") and view.is_weight(node.inputs[0]):
        table = view.form(node.inputs[0])
    else:
        return None
    ids, rows = view.entries[node.name].inputs[1], view.form(node.outputs[0])
    if len(table.shape) != 2 or len(ids.shape) < 1 or rows.shape != (*ids.shape, table.shape[1]):
        return None
    layer = layers.Embedding(*table.shape)
    return FoundLayer(node.name, layer, ids.shape[1:], ids.shape[0], rows.dtype.itemsize, frozenset({node.name}))


def positions(view: PassView, node: Node) -> FoundLayer | None:
    """Return the position embedding, which adds a variable with one row per position to each sample."""
    if node.type not in _SUMS:
        return None
    form = view.form(node.outputs[0])
    rows = [tensor for tensor in node.inputs if view.is_weight(tensor)]
    if len(rows) != 1 or len(form.shape) != 3 or form.shape[1:] != _without_batch_axis(view.form(rows[0]).shape):
        return None
    return FoundLayer.over(node, layers.PositionEmbedding(), form)


def _without_batch_axis(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a position table's shape without a leading axis of length 1."""
    return shape[1:] if len(shape) == 3 and shape[0] == 1 else shape


def add(view: PassView, node: Node) -> FoundLayer | None:
    """Return the sum of two equally shaped values, such as a skip connection's end."""
    if node.type not in _SUMS or any(view.is_weight(operand) or view.is_constant(operand) for operand in node.inputs):
        return None
    form, *forms = (view.form(tensor) for tensor in (node.outputs[0], *node.inputs))
    if forms != [form, form] or len(form.shape) < 2 or form.dtype.kind not in "fV":
        return None
    return FoundLayer.over(node, layers.Add(layers.EarlierLayer("")).with_source_shape(form.shape[1:]), form)
