"""Recognise recurrent layers, which TensorFlow writes as loops over time steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from ipusim.api import layers
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.prices.layer import FoundLayer
from ipusim.ipu.graph.prices.observed import ObservedNode
from ipusim.ipu.graph.prices.view import SAME_VALUE, PassView

#: Layer and its number of tanh nodes per time step, by the number of sigmoids per tanh.
_LAYERS_BY_RATIO: Final[Mapping[Fraction, tuple[type[layers.LSTM | layers.GRU], int]]] = {
    Fraction(3, 2): (layers.LSTM, 2),
    Fraction(2): (layers.GRU, 1),
}
#: Node types that at most reorder the stack of all time steps' outputs.
_REORDERINGS: Final = frozenset({"Identity", "Transpose"})


def recurrent(view: PassView, node: Node) -> FoundLayer | None:
    """Return the LSTM or the GRU computed by a loop.

    An LSTM's step has three sigmoids and two tanh per unit, a GRU's step two sigmoids and one tanh. A step's
    products multiply input and state by a kernel with columns for every gate; several products may share the columns.
    """
    if node.type not in ("While", "StatelessWhile"):
        return None
    inner = view.entries[node.name].inner
    products = [entry for entry in inner if entry.node.type == "MatMul"]
    tanhs = [entry.outputs[0] for entry in inner if entry.node.type == "Tanh"]
    sigmoids = sum(entry.outputs[0].size for entry in inner if entry.node.type == "Sigmoid")
    found = _LAYERS_BY_RATIO.get(Fraction(sigmoids, sum(form.size for form in tanhs) or 1))
    if found is None or not products or any(form.shape != tanhs[0].shape for form in tanhs):
        return None
    kind, tanhs_of_step = found
    batch, units = tanhs[0].shape
    steps, is_uneven = divmod(len(tanhs), tanhs_of_step)
    kernels = {entry.node.name: entry.inputs[1].size for entry in products}
    elements, remainder = divmod(sum(kernels.values()), kind.gate_count * units)
    if is_uneven or remainder or elements <= units or len(products) != steps * len(kernels):
        return None
    columns = {entry.outputs[0].shape[-1] for entry in products}
    options: dict[str, Any] = {} if kind is layers.LSTM else {"reset_after": not _resets_state(inner)}
    layer = kind(
        units=units,
        use_bias=any(_adds_bias(entry, columns) for entry in inner),
        return_sequences=_returns_sequences(view, node),
        **options,
    )
    nodes = frozenset((node.name, *_stacking_nodes(view, node)))
    return FoundLayer(node.name, layer, (steps, elements - units), batch, tanhs[0].dtype.itemsize, nodes)


def _resets_state(inner: Sequence[ObservedNode]) -> bool:
    """Tell whether the reset gate multiplies the state before the state enters a product."""
    makers = {entry.node.name: entry.node for entry in inner}
    work = [entry.node.inputs[0] for entry in inner if entry.node.type == "MatMul"]
    for tensor in work:
        maker = makers.get(tensor.node)
        if maker is not None and maker.type == "Mul":
            return True
        if maker is not None and maker.type in ("Identity", "ConcatV2"):
            work += maker.inputs
    return False


def _stacking_nodes(view: PassView, node: Node) -> Iterator[str]:
    """Yield the names of nodes that unstack inputs before a loop, and stack outputs after the loop."""
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
                yield from _last_step_nodes(view, stack)


def _last_step_nodes(view: PassView, stack: Node) -> list[str]:
    """Return the names of nodes selecting a stack's last step; empty if nodes also read other steps."""
    work, names, has_slice = [stack], list[str](), False
    while work:
        for reader in view.readers(work.pop()):
            if reader.type in _REORDERINGS:
                work.append(reader)
            elif reader.type == "StridedSlice":
                has_slice = True
            elif reader.type == "Shape":
                continue
            else:
                return []
            names.append(reader.name)
    return names if has_slice else []


def _adds_bias(inner: ObservedNode, columns: Collection[int]) -> bool:
    """Tell whether a node of a step adds one element per column of a product."""
    is_sum = inner.node.type in ("BiasAdd", "Add", "AddV2")
    return is_sum and any(len(form.shape) == 1 and form.size in columns for form in inner.inputs)


def _returns_sequences(view: PassView, node: Node) -> bool:
    """Tell whether later nodes read outputs of all steps, rather than only the last step."""
    for reader in view.readers(node):
        for stack in (reader, *view.readers(reader)):
            if stack.type == "TensorListStack":
                return not _last_step_nodes(view, stack)
    return False
