"""The graph of a Keras model: its inputs, its outputs, and the calls of layers between them, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ipusim.base.errors import ProgramError
from ipusim.ipu.tensorflow.array_functions import cast, tensor
from ipusim.ipu.tensorflow.keras.input_layer import InputLayer
from ipusim.ipu.tensorflow.keras.layer import Layer
from ipusim.ipu.tensorflow.keras.probabilities import as_last
from ipusim.ipu.tensorflow.keras.symbolic import KerasTensor, Node, mapped_tensors, post_order, tensors

#: Values of tensors, by these tensors' identity.
Values = dict[int, Any]


class Graph:
    """The calls of layers between symbolic tensors.

    Attributes:
        inputs, outputs: structures of symbolic tensors.
        nodes: the calls, each after those whose tensors it takes.
    """

    def __init__(self, inputs: Any, outputs: Any) -> None:
        """Find the calls; raises ProgramError where ``outputs`` depend on other inputs."""
        self.inputs, self.outputs = inputs, outputs
        self.nodes = post_order(outputs)
        known = {id(each) for each in tensors(inputs)}
        for each in tensors((outputs, [(node.args, dict(node.kwargs)) for node in self.nodes])):
            if each.node is None and id(each) not in known:
                raise ProgramError(
                    f"Graph disconnected: cannot obtain value for tensor {each!r}, which is no input of the model"
                )

    @property
    def layers(self) -> list[Layer]:
        """The layers that are called, each once, in the order of their first calls."""
        return list({id(node.layer): node.layer for node in self.nodes}.values())

    def given(self, values: Any) -> Values:
        """Return the values of the inputs, each in the dtype of its tensor.

        ``values`` are in the structure of the inputs, or in a list in their order, or in a dictionary by their names.
        Raises ProgramError for another number of them, or other shapes.
        """
        expected = list(tensors(self.inputs))
        found = _flat(values, expected)
        if len(found) != len(expected):
            raise ProgramError(f"expected {len(expected)} inputs of the model, got {len(found)}")
        return {id(each): _fitting(value, each) for each, value in zip(expected, found, strict=True)}

    def run(self, values: Values, nodes: Iterable[Node], training: bool | None) -> None:
        """Make the calls of ``nodes``, and put what they give among the ``values``."""
        for node in nodes:
            explicit = node.kwargs.get("training")
            with as_last(node.outputs is self.outputs):
                values.update(node.run(values, training=training if explicit is None else explicit))

    def result(self, values: Values) -> Any:
        """Return the outputs."""
        return mapped_tensors(lambda each: values[id(each)], self.outputs)

    def __call__(self, inputs: Any, training: bool | None = None) -> Any:
        """Return the outputs for values of the inputs."""
        values = self.given(inputs)
        self.run(values, self.nodes, training)
        return self.result(values)


def _flat(values: Any, expected: list[KerasTensor]) -> list[Any]:
    if isinstance(values, Mapping):
        if all(each.name in values for each in expected):
            return [values[each.name] for each in expected]
        return list(values.values())
    return list(values) if isinstance(values, tuple | list) else [values]


def _fitting(value: Any, reference: KerasTensor) -> Any:
    """Return a value in the dtype of an input; raises ProgramError for another shape."""
    found = tensor(value)
    if tuple(np.shape(found)[1:]) != reference.shape[1:]:
        name = f" {reference.name!r}" if reference.name else ""
        raise ProgramError(
            f"input{name} of the model: expected shape {reference.shape}, found shape={tuple(np.shape(found))}"
        )
    return found if found.dtype == reference.dtype else cast(found, reference.dtype)


def summary_lines(model: Any, line_length: int) -> Iterator[str]:
    """Yield the lines, as Keras has them."""
    ends = [int(line_length * share) for share in (0.45, 0.85, 1.0)]
    yield f'Model: "{model.name}"'
    yield "_" * line_length
    yield row(("Layer (type)", "Output Shape", "Param #"), ends)
    yield "=" * line_length
    for layer in model.layers:
        cells = (f"{layer.name} ({type(layer).__name__})", _shape(model, layer), f"{layer.count_params()}")
        yield row(cells, ends)
    yield "=" * line_length
    trained, kept = (
        sum(int(np.prod(weight.shape)) for weight in weights)
        for weights in (model.trainable_weights, model.non_trainable_weights)
    )
    yield f"Total params: {trained + kept:,}"
    yield f"Trainable params: {trained:,}"
    yield f"Non-trainable params: {kept:,}"
    yield "_" * line_length


def row(cells: tuple[str, ...], ends: list[int]) -> str:
    """Return cells, each up to its column's end, the next one a space behind."""
    found = ""
    for cell, end in zip(cells, ends, strict=True):
        found = f"{found} {cell}"[: end - 1].ljust(end)
    return found.rstrip()


def _shape(model: Any, layer: Any) -> str:
    """Return the shape that a layer gives in this model."""
    if isinstance(layer, InputLayer):
        return str([layer.tensor.shape])
    nodes = [] if model.graph is None else [node for node in model.graph.nodes if node.layer is layer]
    if not nodes:
        return "multiple"
    given: Any = nodes[0].outputs
    found = given.shape if isinstance(given, KerasTensor) else mapped_tensors(lambda each: each.shape, given)
    return str(found)
