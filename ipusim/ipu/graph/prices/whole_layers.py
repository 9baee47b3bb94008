"""Recognise pools, losses, standalone activations, attention, and dropout.

A pattern takes a view (a pass's executed nodes with their readers) and a node; it returns the layer around the node, or
None.
"""

from __future__ import annotations

from typing import Any, Final

from ipusim.api import layers
from ipusim.ipu.graph.kernels.windows import Windows
from ipusim.ipu.graph.node import Node, Output
from ipusim.ipu.graph.prices.kernel_layers import ACTIVATIONS, Tail
from ipusim.ipu.graph.prices.layer import FoundLayer
from ipusim.ipu.graph.prices.view import VIEWS, PassView
from ipusim.ipu.graph.prices.written_layers import written_activation

_PRODUCTS: Final = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"})
#: Node types that scale or mask scores between the query-key product and the softmax.
_SCALES: Final = frozenset({"Mul", "RealDiv", "Add", "AddV2", "Sub"})
#: Node types among scales that add a mask.
_MASKS: Final = frozenset({"Add", "AddV2", "Sub"})


def pool(view: PassView, node: Node) -> FoundLayer | None:
    """Return an image pooling layer."""
    if node.type not in ("MaxPool", "AvgPool"):
        return None
    windows = Windows.of_node(node)
    form = view.form(node.inputs[0])
    batch, *shape = windows.sizes(form.shape)
    kind = layers.MaxPool2D if node.type == "MaxPool" else layers.AveragePool2D
    padding: Any = windows.padding.lower()
    size, strides = ((pair[0], pair[1]) for pair in (windows.size, windows.strides))
    layer = kind(size, strides, padding)
    return FoundLayer(node.name, layer, tuple(shape), batch, form.dtype.itemsize, frozenset({node.name}))


def _mean_nodes(view: PassView, node: Node) -> list[Node]:
    """Return the nodes that compute the mean or sum of a node's elements; an empty list if no node does.

    Keras writes a loss's mean as a sum with constant weights, divided by a constant.
    """
    path: list[Node] = []
    reader = view.only_reader(node)
    while reader is not None and (reader.type in VIEWS or _is_by_constant(view, reader, "Mul")):
        path.append(reader)
        reader = view.only_reader(reader)
    if reader is None or reader.type not in ("Mean", "Sum") or view.form(reader.outputs[0]).size != 1:
        return []
    path.append(reader)
    reader = view.only_reader(reader)
    while reader is not None and (
        reader.type == "Sum" or _is_by_constant(view, reader, "DivNoNan") or reader.type in VIEWS
    ):
        path.append(reader)
        reader = view.only_reader(reader)
    return path


def _is_by_constant(view: PassView, node: Node, kind: str) -> bool:
    """Tell whether a node has the given type and a constant second operand."""
    return node.type == kind and view.is_constant(node.inputs[1])


def cross_entropy(view: PassView, node: Node) -> FoundLayer | None:
    """Return a classifier's loss, including the mean over samples."""
    if node.type not in ("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits"):
        return None
    form = view.form(node.inputs[0])
    return FoundLayer.over(node, layers.SoftmaxCrossEntropy(), form, (mean.name for mean in _mean_nodes(view, node)))


def squared_error(view: PassView, node: Node) -> FoundLayer | None:
    """Return a regression's loss: mean of squared differences."""
    if node.type != "SquaredDifference":
        return None
    nodes_of_mean = _mean_nodes(view, node)
    if not nodes_of_mean:
        return None
    names = (mean.name for mean in nodes_of_mean)
    return FoundLayer.over(node, layers.MeanSquaredError(), view.form(node.outputs[0]), names)


def activation(view: PassView, node: Node) -> FoundLayer | None:
    """Return an activation without a preceding product."""
    pattern = written_activation(view, node)
    if pattern is None and node.type not in ACTIVATIONS:
        return None
    layer = layers.ActivationLayer(ACTIVATIONS[node.type] if pattern is None else pattern.activation)
    return FoundLayer.over(node, layer, view.form(node.outputs[0]), () if pattern is None else pattern.nodes)


def attention(view: PassView, node: Node) -> FoundLayer | None:
    """Return the self-attention around a softmax: projections of one input, and an output projection.

    It may have several heads and added masks, and has separate products for queries, keys and values.
    """
    if node.type != "Softmax":
        return None
    scores, path = _back_to_product(view, node.inputs[0])
    weighted, weights_path = _next_product(view, node)
    if scores is None or weighted is None or view.source(weighted.inputs[0]).node != node.name:
        return None
    found = [_projection(view, tensor) for tensor in (*scores.inputs[:2], weighted.inputs[1])]
    last, output_path = _next_product(view, weighted)
    if last is None or not view.is_weight(last.inputs[1]) or any(projection is None for projection in found):
        return None
    projections: list[tuple[Node, set[str]]] = [projection for projection in found if projection is not None]
    inputs = {view.source(product.inputs[0]) for product, _ in projections}
    if len(inputs) != 1:
        return None
    return _attention_layer(view, node, projections, (scores, weighted, last), path | weights_path | output_path)


def _attention_layer(
    view: PassView,
    node: Node,
    projections: list[tuple[Node, set[str]]],
    products: tuple[Node, Node, Node],
    path: set[str],
) -> FoundLayer:
    """Return the attention layer for given projections and products."""
    scores, weighted, last = products
    x, query = view.form(projections[0][0].inputs[0]), view.form(scores.inputs[0])
    positions, head = query.shape[-2:]
    inner = view.form(projections[0][0].outputs[0]).shape[-1]
    elements = x.size // (view.form(projections[0][0].outputs[0]).size // inner)
    batch = x.size // (positions * elements)
    tail = Tail(view, last, view.form(last.outputs[0]).shape[-1])
    nodes = {node.name, scores.name, weighted.name, *path, *tail.nodes}
    for _, names in projections:
        nodes |= names
    masks = sum(view.entries[name].node.type in _MASKS for name in path if name in view.entries)
    options: dict[str, Any] = {
        "causal": masks > 0,
        "padding_mask": masks > 1,
        "use_bias": tail.biased,
        "split_qkv": True,
    }
    layer = layers.MultiHeadAttention(num_heads=inner // head, key_dim=head, **options)
    return FoundLayer(node.name, layer, (positions, elements), batch, x.dtype.itemsize, frozenset(nodes))


def _back(view: PassView, tensor: Output, through: frozenset[str]) -> tuple[Node | None, set[str]]:
    """Return the node that a tensor comes from, through views, and through arithmetic by constants and variables.

    The second result has the names of the nodes between.
    """
    names: set[str] = set()
    maker = view.node(tensor)
    while maker is not None and maker.type in through:
        names.add(maker.name)
        varying = [operand for operand in maker.inputs if not view.is_constant(operand) and not view.is_weight(operand)]
        maker = view.node(varying[0]) if varying else None
    return maker, names


def _back_to_product(view: PassView, tensor: Output) -> tuple[Node | None, set[str]]:
    """Return the query-key product that scores come from, and the names of the scales and views between."""
    maker, path = _back(view, tensor, VIEWS | _SCALES)
    is_product = maker is not None and maker.type in _PRODUCTS and not any(map(view.is_weight, maker.inputs[:2]))
    return (maker if is_product else None), path


def _projection(view: PassView, tensor: Output) -> tuple[Node, set[str]] | None:
    """Return the product by a variable that a tensor comes from, with the names of this and the nodes between."""
    maker, names = _back(view, tensor, VIEWS | _SCALES | {"BiasAdd"})
    if maker is None or maker.type not in _PRODUCTS or not view.is_weight(maker.inputs[1]):
        return None
    return maker, names | {maker.name}


def _next_product(view: PassView, node: Node) -> tuple[Node | None, set[str]]:
    """Return the product reading a node's result, without other readers, and the names of views between."""
    reader, views = view.reader_behind_views(node)
    is_product = reader is not None and reader.type in _PRODUCTS
    return (reader if is_product else None), {item.name for item in views}


def dropout(view: PassView, node: Node) -> FoundLayer | None:
    """Return a dropout: random numbers, compared with the rate, select the scaled input or zero."""
    if node.type != "RandomUniform":
        return None
    names, reader = {node.name}, view.only_reader(node)
    while reader is not None and reader.type in ("Mul", "Add", "AddV2", "Cast", "Identity", "GreaterEqual"):
        names.add(reader.name)
        is_mask = reader.type == "GreaterEqual"
        rate = reader.inputs[1] if is_mask else None
        reader = view.only_reader(reader)
        if rate is not None and reader is not None and reader.type in ("SelectV2", "Mul"):
            return _dropout_of(view, reader, names, view.constant(rate))
    return None


def _dropout_of(view: PassView, selection: Node, names: set[str], rate: float | None) -> FoundLayer | None:
    """Return the dropout whose mask selects input or zero in the node ``selection``."""
    scale = next((view.node(tensor) for tensor in selection.inputs if tensor.node not in names), None)
    if rate is None or scale is None or scale.type not in ("Mul", "RealDiv"):
        return None
    form = view.form(selection.outputs[0])
    return FoundLayer.over(selection, layers.Dropout(float(rate)), form, (*names, scale.name))
