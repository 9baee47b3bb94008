"""The graph of a Keras model: its inputs, its outputs, and the calls of layers between them, in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ipusim.errors import ProgramError
from ipusim.ipu.tensorflow.array_functions import cast, tensor
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
