"""Recognise layers with a kernel: product or convolution, optional bias, optional activation.

Views are nodes such as reshapes, which only change the shape of their input.
"""

from __future__ import annotations

from typing import Any, Final

from ipusim.api import layers
from ipusim.ipu.graph.kernels.windows import Windows
from ipusim.ipu.graph.node import Node, Output
from ipusim.ipu.graph.prices.layer import FoundLayer
from ipusim.ipu.graph.prices.view import VIEWS, PassView
from ipusim.ipu.graph.prices.written_layers import written_behind

#: Simulator's activation names by operation type.
ACTIVATIONS: Final = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid"}
_SUMS: Final = frozenset({"BiasAdd", "Add", "AddV2"})


class Tail:
    """Nodes of a layer after the product: bias and activation.

    Attributes:
        nodes: names of the layer's nodes.
        last: last node of the layer.
        biased: whether the layer adds a bias.
        activation: name of the activation.
    """

    def __init__(self, view: PassView, product: Node, units: int) -> None:
        """Follow the product's result as long as only one node reads the result."""
        self.nodes = {product.name}
        self.last = product
        self.biased = False
        self.activation = "identity"
        reader, _ = view.reader_behind_views(self.last)
        if reader is not None and reader.type in _SUMS and self._adds_bias(view, reader, units):
            self._add(view, reader)
            self.biased = True
            reader, _ = view.reader_behind_views(self.last)
        if reader is not None and reader.type in ACTIVATIONS:
            self._add(view, reader)
            self.activation = ACTIVATIONS[reader.type]
        else:
            self._add_written_activation(view)

    def _add_written_activation(self, view: PassView) -> None:
        """Add the nodes of an activation written as arithmetic, and the views before them."""
        _, views = view.reader_behind_views(self.last)
        pattern = written_behind(view, [self.last, *views][-1].outputs[0])
        if pattern is not None:
            self.nodes |= {item.name for item in views} | pattern.nodes
            self.last, self.activation = pattern.last, pattern.activation

    def _add(self, view: PassView, node: Node) -> None:
        """Add a node and the views before it."""
        for tensor in node.inputs:
            maker = view.node(tensor)
            while (
                maker is not None
                and maker.type in VIEWS
                and maker.name not in self.nodes
                and self._has_same_source(view, maker)
            ):
                self.nodes.add(maker.name)
                maker = view.node(maker.inputs[0])
        self.nodes.add(node.name)
        self.last = node

    def _has_same_source(self, view: PassView, node: Node) -> bool:
        """Tell whether a view shows the layer's current result."""
        return view.source(node.outputs[0]).node == view.source(self.last.outputs[0]).node

    @staticmethod
    def _adds_bias(view: PassView, node: Node, units: int) -> bool:
        """Tell whether a sum adds a variable with one element per unit."""
        return any(view.is_weight(tensor) and view.form(tensor).size == units for tensor in node.inputs)


def dense(view: PassView, node: Node) -> FoundLayer | None:
    """Return the dense layer that begins at a product of activation and variable."""
    if node.type not in ("MatMul", "BatchMatMulV2", "BatchMatMulV3") or len(node.inputs) < 2:
        return None
    x, weight = node.inputs[:2]
    if view.is_weight(x) or not view.is_weight(weight) or len(view.form(weight).shape) != 2:
        return None
    units = view.form(node.outputs[0]).shape[-1]
    elements = view.form(weight).size // units
    rows = view.form(x).size // elements
    tail = Tail(view, node, units)
    layer = layers.Dense(units, tail.activation, tail.biased)
    return FoundLayer(node.name, layer, (elements,), rows, _itemsize(view, x), frozenset(tail.nodes), weight.node)


def convolution(view: PassView, node: Node) -> FoundLayer | None:
    """Return the convolution layer that begins at a convolution by a variable."""
    if node.type != "Conv2D" or not view.is_weight(node.inputs[1]):
        return None
    windows = Windows.of_node(node)
    if windows.padding == "EXPLICIT" or any(dilation > 1 for dilation in windows.dilations):
        return None
    x, weight = node.inputs
    batch, height, width, channels = windows.sizes(view.form(x).shape)
    kernel = view.form(weight).shape
    tail = Tail(view, node, kernel[-1])
    options: dict[str, Any] = {
        "kernel_size": kernel[:2],
        "strides": windows.strides,
        "padding": windows.padding.lower(),
        "groups": channels // kernel[-2],
        "activation": tail.activation,
        "use_bias": tail.biased,
    }
    layer = layers.Conv2D(filters=kernel[-1], **options)
    shape = (height, width, channels)
    return FoundLayer(node.name, layer, shape, batch, _itemsize(view, x), frozenset(tail.nodes), weight.node)


def _itemsize(view: PassView, tensor: Output) -> int:
    return view.form(tensor).dtype.itemsize
