"""Patterns of normalisations: fused by TensorFlow, or written as arithmetic around a squared difference."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from ipusim.api import layers
from ipusim.ipu.graph.node import Node, Output, reach
from ipusim.ipu.graph.prices.layer import FoundLayer
from ipusim.ipu.graph.prices.view import VIEWS, PassView

_QUOTIENTS: Final = frozenset({"RealDiv", "DivNoNan"})
_REDUCTIONS: Final = frozenset({"Mean", "Sum"})
#: Node types that compute the mean from the input, or the variance from the squared difference.
_STATISTICS_TYPES: Final = VIEWS | _REDUCTIONS | _QUOTIENTS | {"Mul"}
#: Node types behind the statistics: arithmetic with input, mean, variance, scale and offset.
_APPLYING_TYPES: Final = VIEWS | {"Mul", "RealDiv", "Sub", "Neg", "Add", "AddV2", "Rsqrt", "Sqrt"}


class _Kind(NamedTuple):
    """Class of a normalisation's layer, shape of its input including the batch, and its options."""

    layer: Any
    shape: tuple[int, ...]
    options: dict[str, Any]


def fused_norm(view: PassView, node: Node) -> FoundLayer | None:
    """Return the normalisation of a fused training node.

    Keras computes a layer normalisation by such a node, too.
    """
    if not node.type.startswith("FusedBatchNorm") or not node.attributes["is_training"]:
        return None
    form, x = view.form(node.inputs[0]), view.source(node.inputs[0])
    center, scale = (not view.is_constant(node.inputs[number]) for number in (2, 1))
    channels_first = node.attributes["data_format"].startswith("NC")
    if channels_first and not (center or scale) and form.shape[0] == form.shape[3] == 1:
        kind = _Kind(
            layers.LayerNorm, (*view.form(x).shape[:-1], form.shape[2]), {"epsilon": node.attributes["epsilon"]}
        )
        return _with_weights(view, node, x, {node.name}, kind)
    shape = (*form.shape[2:], form.shape[1]) if channels_first else form.shape[1:]
    layer = layers.BatchNorm(node.attributes["epsilon"], center, scale)
    return FoundLayer(node.name, layer, shape, form.shape[0], form.dtype.itemsize, frozenset({node.name}))


def written_norm(view: PassView, node: Node) -> FoundLayer | None:
    """Return the normalisation around a squared difference from the mean.

    The program may call ``batch_normalization`` with ``moments`` or ``weighted_moments``, or write the arithmetic
    itself. All nodes depend only on the input, and on variables with one element per channel. The mean's shape tells
    which normalisation it is.
    """
    if node.type != "SquaredDifference":
        return None
    x, form, mean = view.source(node.inputs[0]), view.form(node.inputs[0]), view.form(node.inputs[1])
    nodes = {node.name}
    if not _is_mean(view, node.inputs[1], x, nodes) or not _is_variance_computed(view, node, nodes):
        return None
    statistics = (*[1] * (len(form.shape) - len(mean.shape)), *mean.shape)
    kind = _kind_of(form.shape, view.form(x).shape, statistics)
    return None if kind is None else _with_weights(view, node, x, nodes, kind)


def _kind_of(shape: tuple[int, ...], source: tuple[int, ...], statistics: tuple[int, ...]) -> _Kind | None:
    """Return the kind by the shapes of the input's view, of the input, and of the statistics; None for other kinds."""
    if len(shape) < 2:
        return None
    (*_, rows, columns), statistics_size = shape, math.prod(statistics)
    grouped = source[0] == shape[0] == statistics[0] and source[-1] == rows * columns
    if statistics_size * columns == math.prod(shape) and statistics[-1] == 1:
        result = _Kind(layers.LayerNorm, shape, {})
    elif statistics_size == columns == statistics[-1]:
        result = _Kind(layers.BatchNorm, shape, {})
    elif grouped and statistics_size == shape[0] * rows == shape[0] * statistics[-2]:
        result = _Kind(layers.GroupNorm, source, {"groups": rows, "strided_channel_grouping": False})
    elif grouped and statistics_size == shape[0] * columns == shape[0] * statistics[-1]:
        result = _Kind(layers.GroupNorm, source, {"groups": columns})
    elif statistics_size == shape[0] == statistics[0]:
        result = _Kind(layers.GroupNorm, shape, {"groups": 1})
    elif statistics_size == shape[0] * columns and statistics[0] == shape[0] and statistics[-1] == columns:
        result = _Kind(layers.InstanceNorm, shape, {})
    else:
        result = None
    return result


def _is_mean(view: PassView, tensor: Output, x: Output, nodes: set[str]) -> bool:
    """Tell whether a tensor is a mean of ``x``, computed by sums and constants; add the nodes between to ``nodes``."""

    def depends_on_input(operand: Output) -> bool:
        if view.source(operand) == x or view.is_constant(operand):
            return True
        node = view.node(operand)
        if node is None or node.type not in _STATISTICS_TYPES:
            return False
        nodes.add(node.name)
        return all(map(depends_on_input, node.inputs))

    return depends_on_input(tensor) and any(view.entries[name].node.type in _REDUCTIONS for name in nodes)


def _is_variance_computed(view: PassView, node: Node, nodes: set[str]) -> bool:
    """Tell whether nodes compute the mean of a squared difference; add them to ``nodes``."""
    reader, is_reduced = view.only_reader(node), False
    while reader is not None and reader.type in _STATISTICS_TYPES and _has_constants(view, reader):
        nodes.add(reader.name)
        is_reduced = is_reduced or reader.type in _REDUCTIONS
        reader = view.only_reader(reader)
    return is_reduced


def _has_constants(view: PassView, node: Node) -> bool:
    """Tell whether all inputs of a node but one are constants."""
    return sum(not view.is_constant(tensor) for tensor in node.inputs) == 1


def _with_weights(view: PassView, node: Node, x: Output, nodes: set[str], kind: _Kind) -> FoundLayer | None:
    """Return the layer, including the nodes that apply the statistics, scale and offset to the input.

    The layer includes only nodes before results of the input's size.
    """
    size = view.form(node.inputs[0]).size
    reached = set(nodes)
    work = [view.entries[name].node for name in nodes]
    while work:
        for reader in view.readers(work.pop()):
            if reader.name in reached or reader.type not in _APPLYING_TYPES or reader.name in view.claimed:
                continue
            if all(_belongs(view, tensor, reached, x, kind.shape[-1]) for tensor in reader.inputs):
                reached.add(reader.name)
                work += [view.entries[name].node for name in reached]
    applying = {name for name in reached if view.form(view.entries[name].node.outputs[0]).size == size}
    applying = reach(applying, lambda name: {tensor.node for tensor in view.entries[name].node.inputs} & reached)
    layer_nodes = [view.entries[name].node for name in applying | nodes]
    if node.type == "SquaredDifference" and not any(layer_node.type in ("Rsqrt", "Sqrt") for layer_node in layer_nodes):
        return None
    weights = sum(view.is_weight(tensor) for layer_node in layer_nodes for tensor in layer_node.inputs)
    layer = kind.layer(center=weights > 1, scale=weights > 0, **kind.options)
    batch, *shape = kind.shape
    itemsize = view.form(node.inputs[0]).dtype.itemsize
    return FoundLayer(
        node.name, layer, tuple(shape), batch, itemsize, frozenset(layer_node.name for layer_node in layer_nodes)
    )


def _belongs(view: PassView, tensor: Output, nodes: set[str], x: Output, channels: int) -> bool:
    """Tell whether a tensor belongs to the normalisation: node, input, constant or per-channel variable."""
    if tensor.node in nodes or view.source(tensor) == x or view.is_constant(tensor):
        return True
    return view.is_weight(tensor) and view.form(tensor).size == channels
