"""Symbols of Keras' functional models: tensors without values, and the calls of layers that give them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, cast

import numpy as np

from ipusim.api import functions
from ipusim.base.errors import ConfigAttributeError, ProgramError, ProgramTypeError
from ipusim.ipu.runtime.structures import leaves, mapped

#: A layer, which is on this room's floor and knows it (:class:`ipusim.ipu.tensorflow.keras.layer.Layer`).
Layer = Any
#: Samples of the batches that stand for any, where a shape is found by trying: axes that follow them are the batch's.
TRIED: Final = (2, 3)
#: Most elements of a sample in a layer that is tried: more than an IPU's memory holds.
_MOST: Final = 1 << 28


class KerasTensor:
    """A tensor that a layer will give; its operators are those of :mod:`ipusim.ipu.tensorflow.keras.graph`.

    Attributes:
        shape: with None for the batch.
        dtype: of its elements.
        node: the call that gives it; None for an input of a model.
        name: that of an input.
    """

    __array_priority__ = 1000.0

    def __init__(
        self, shape: Sequence[int | None], dtype: Any = np.float32, node: Node | None = None, name: str = ""
    ) -> None:
        """Take all of it."""
        self.shape, self.dtype, self.node, self.name = tuple(shape), np.dtype(dtype), node, name
        #: What stands for it among a model's layers, where it is an input of one.
        self.input_layer: Layer = None

    def __repr__(self) -> str:
        """Say shape and dtype."""
        return f"<KerasTensor shape={self.shape} dtype={self.dtype}>"

    def __array__(self, *_: Any, **__: Any) -> Any:
        """Refuse to be an array. Raises ProgramTypeError."""
        raise ProgramTypeError(
            "a symbolic Keras tensor has no value: expected a layer to be called on it, such as "
            "keras.layers.Lambda(function)"
        )

    def __bool__(self) -> bool:
        """Refuse, as TensorFlow does. Raises ProgramTypeError."""
        raise ProgramTypeError("using a symbolic Keras tensor as a Python `bool` is not allowed")

    def __iter__(self) -> Iterator[Any]:
        """Refuse. Raises ProgramTypeError."""
        raise ProgramTypeError("a symbolic Keras tensor cannot be iterated over")

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape without the batch."""
        return cast("tuple[int, ...]", self.shape[1:])

    def zeros(self, batch: int) -> np.ndarray[Any, Any]:
        """Return an array of its shape and dtype for a ``batch``; raises ProgramError for more than fits."""
        if math.prod(axis or 1 for axis in self.shape) > _MOST:
            raise ProgramError(f"expected tensors of at most {_MOST:,} elements a sample, got shape {self.shape}")
        return np.zeros([batch if axis is None else axis for axis in self.shape], self.dtype)


@dataclass(eq=False)
class Node:
    """A call of a layer.

    Attributes:
        layer: that is called.
        args, kwargs: of the call, structures with tensors in them.
        outputs: what it gives, a structure of tensors.
        index: of this call among the layer's.
        pipeline_stage: in which it was made; None for none.
        scope: in which the host runs it; None on an IPU.
    """

    layer: Layer
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    index: int
    pipeline_stage: int | None = None
    scope: functions.HostScope | None = field(default_factory=lambda: functions.surroundings().scope)
    outputs: Any = field(default=None)

    @property
    def inputs(self) -> list[KerasTensor]:
        """The tensors that it takes."""
        return list(tensors((self.args, self.kwargs)))

    @property
    def inbound_layers(self) -> Any:
        """The layer whose tensor it takes, that of an input too, or a list of several."""
        layers = [input_.input_layer if input_.node is None else input_.node.layer for input_ in self.inputs]
        return one_or_all([layer for layer in layers if layer is not None])

    def run(self, values: Mapping[int, Any], **context: Any) -> Iterator[tuple[int, Any]]:
        """Call the layer on the values of its tensors, by their identity; yield those of what it gives."""

        def value(item: KerasTensor) -> Any:
            return values[id(item)]

        first, *others = mapped_tensors(value, self.args)
        with functions.Surrounded(scope=self.scope or functions.surroundings().scope):
            returned = self.layer(first, *others, **(mapped_tensors(value, dict(self.kwargs)) | context))
        yield from zip(map(id, tensors(self.outputs)), leaves_like(self.outputs, returned), strict=True)


def tensors(structure: Any) -> Iterator[KerasTensor]:
    """Yield the symbolic tensors of a structure, from left to right."""
    return (leaf for leaf in leaves(structure) if isinstance(leaf, KerasTensor))


def is_symbolic(structure: Any) -> bool:
    """Tell whether there is a symbolic tensor in a structure."""
    return next(tensors(structure), None) is not None


def batched(first: Sequence[int], second: Sequence[int]) -> tuple[int | None, ...]:
    """Return a shape with None for the batch, of what was given for two batches; at least the first axis is one."""
    axes = [one if one == two else None for one, two in zip(first, second, strict=True)]
    return tuple(axes) if None in axes else (None, *axes[1:])


def mapped_tensors(function: Callable[[KerasTensor], Any], structure: Any) -> Any:
    """Return a structure with ``function`` of each symbolic tensor in its place."""
    return mapped(lambda item: function(item) if isinstance(item, KerasTensor) else item, structure)


def leaves_like(structure: Any, values: Any) -> Iterator[Any]:
    """Yield the values that stand in the places of a structure's tensors."""
    if isinstance(structure, KerasTensor):
        yield values
    elif isinstance(structure, Mapping):
        for name, item in structure.items():
            yield from leaves_like(item, values[name])
    elif isinstance(structure, tuple | list):
        for part, item in zip(structure, values, strict=True):
            yield from leaves_like(part, item)


def post_order(outputs: Any) -> list[Node]:
    """Return the calls that compute tensors, each after the calls of its inputs."""
    result: dict[int, Node] = {}
    waiting: list[tuple[Node, bool]] = [(tensor.node, False) for tensor in tensors(outputs) if tensor.node][::-1]
    while waiting:
        node, ready = waiting.pop()
        if id(node) in result:
            continue
        if ready:
            result[id(node)] = node
            continue
        waiting.append((node, True))
        waiting += [(input_.node, False) for input_ in node.inputs[::-1] if input_.node]
    return list(result.values())


class Called:
    """Something that has been called on symbolic tensors.

    Attributes:
        inbound_nodes: the calls.
    """

    inbound_nodes: list[Node]

    @property
    def name(self) -> str:
        """Its name; defined by subclasses."""
        raise NotImplementedError

    @property
    def input(self) -> Any:
        """The tensor that its only call takes, or several; raises ConfigAttributeError for none or several calls."""
        return one_or_all(self._only("input").inputs)

    @property
    def output(self) -> Any:
        """The tensor that its only call gives, or several; raises ConfigAttributeError for none or several calls."""
        return self._only("output").outputs

    @property
    def input_shape(self) -> Any:
        """The shape of its input; raises as :attr:`input` does."""
        return mapped_tensors(attrgetter("shape"), self.input)

    @property
    def output_shape(self) -> Any:
        """The shape of its output; raises as :attr:`output` does."""
        return mapped_tensors(attrgetter("shape"), self.output)

    def get_input_at(self, node_index: int) -> Any:
        """Return the inputs of a call; raises ProgramError for an unknown call."""
        return one_or_all(self._at(node_index).inputs)

    def get_output_at(self, node_index: int) -> Any:
        """Return the outputs of a call; raises ProgramError for an unknown call."""
        return self._at(node_index).outputs

    def _at(self, node_index: int) -> Node:
        calls = len(self.inbound_nodes)
        if not -calls <= node_index < calls:
            raise ProgramError(
                f"Asked to get tensor at node {node_index}, but the layer has only {calls} inbound nodes."
            )
        return self.inbound_nodes[node_index]

    def _only(self, what: str) -> Node:
        if not self.inbound_nodes:
            raise ConfigAttributeError(f"Layer {self.name} has no inbound nodes.")
        if len(self.inbound_nodes) > 1:
            raise ConfigAttributeError(
                f'Layer {self.name} has multiple inbound nodes, hence the notion of "layer {what}" is ill-defined. Use '
                f"`get_{what}_at(node_index)` instead."
            )
        return self.inbound_nodes[0]


def one_or_all(values: list[Any]) -> Any:
    """Return the only one of several values, or all of them."""
    return values[0] if len(values) == 1 else values
