"""Recognise recurrent layers, which TensorFlow writes as loops over time steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from ipusim.api import layers
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.prices.layer import FoundLayer
from ipusim.ipu.graph.prices.observed import Form, ObservedNode
from ipusim.ipu.graph.prices.view import SAME_VALUE, PassView

#: Gates of an LSTM, and activations per step: three sigmoids, two tanh.
_GATES, _SIGMOIDS, _TANHS = 4, 3, 2
#: Node types that reorder a stack of all steps.
_OF_STACK: Final = frozenset({"Identity", "Transpose"})


def lstm(view: PassView, node: Node) -> FoundLayer | None:
    """Return the LSTM computed by a loop.

    Per step: products into four gates, three sigmoids and two tanh.

    TensorFlow 1 cells multiply input and state side by side in one product per step. Keras uses separate products for
    input and state.
    """
    if node.type not in ("While", "StatelessWhile"):
        return None
    entry = view.entries[node.name]
    counts = Counter(inner.node.type for inner in entry.inner)
    products = [inner for inner in entry.inner if inner.node.type == "MatMul"]
    steps, remainder = divmod(counts["Tanh"], _TANHS)
    if not steps or remainder or counts["Sigmoid"] != _SIGMOIDS * steps or len(products) not in (steps, 2 * steps):
        return None
    columns = products[0].outputs[0].shape[-1]
    batch, units = products[0].outputs[0].shape[0], columns // _GATES
    kernels = {inner.node.name: _kernel(inner).shape[0] for inner in products}
    elements = sum(kernels.values()) - units
    biased = any(_adds_bias(inner, columns) for inner in entry.inner)
    layer = layers.LSTM(units=units, use_bias=biased, return_sequences=_returns_sequences(view, node))
    itemsize = products[0].outputs[0].dtype.itemsize
    nodes = frozenset((node.name, *_around(view, node)))
    return FoundLayer(node.name, layer, (steps, elements), batch, itemsize, nodes)


def _around(view: PassView, node: Node) -> Iterator[str]:
    """Yield nodes that unstack inputs before a loop and stack outputs afterwards."""
    for tensor in node.inputs:
        maker = view.node(tensor)
        if maker is not None and maker.type.startswith("TensorList"):
            yield maker.name
    for reader in view.readers(node):
        if reader.type in SAME_VALUE:
            yield reader.name
        for stack in (reader, *view.readers(reader)):
            if stack.type == "TensorListStack":
                yield stack.name
                yield from _last_taken(view, stack)


def _last_taken(view: PassView, stack: Node) -> Iterator[str]:
    """Yield nodes that take the last step of a stack without other readers."""
    if not _only_last_is_taken(view, stack):
        return
    work = [stack]
    while work:
        for reader in view.readers(work.pop()):
            if reader.type in _OF_STACK or reader.type == "StridedSlice":
                yield reader.name
                work += [reader] if reader.type in _OF_STACK else []


def _kernel(product: ObservedNode) -> Form:
    return product.inputs[1]


def _adds_bias(inner: ObservedNode, columns: int) -> bool:
    """Tell whether a node of a step adds one element per unit of every gate."""
    sums = inner.node.type in ("BiasAdd", "Add", "AddV2")
    return sums and any(form.shape == (columns,) for form in inner.inputs)


def _returns_sequences(view: PassView, node: Node) -> bool:
    """Tell whether later nodes read outputs of all steps, rather than only the last step."""
    for reader in view.readers(node):
        for stack in (reader, *view.readers(reader)):
            if stack.type == "TensorListStack":
                return not _only_last_is_taken(view, stack)
    return False


def _only_last_is_taken(view: PassView, stack: Node) -> bool:
    """Tell whether nodes read a stack only through slices of a single step."""
    work, slices = [stack], 0
    while work:
        for reader in view.readers(work.pop()):
            if reader.type in _OF_STACK:
                work.append(reader)
            elif reader.type == "StridedSlice":
                slices += 1
            elif reader.type != "Shape":
                return False
    return slices > 0
