"""Add Graphcore's operations, with forward and backward pass, as nodes that TensorFlow can differentiate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import numpy as np

from ipusim.api import Array, LayerCost, layers
from ipusim.ipu.graph.own_nodes import add_node
from ipusim.ipu.graph.registry import Entry, Price
from ipusim.ipu.graph.tensorflow_import import load

tf = load()
#: TensorFlow's table of the Python functions that host nodes call, by token.
HOST_FUNCTIONS: Final = import_module("tensorflow.python.ops.script_ops")._py_funcs
#: Dtype and static shape of a tensor.
Form = tuple[Any, Any]


def operate(operation: Any, tensors: Sequence[Any], forms: Sequence[Form], name: str) -> list[Any]:
    """Add an operation's node, including gradients on demand.

    Outside compiled computations the host runs the operation.

    Args:
        operation: object with passes and costs on arrays, like the classes in ``ipusim.ipu.runtime.operations``.
        tensors: arguments; integer tensors have no gradient.
        forms: dtype and static shape per result.
        name: name of the node.

    Returns:
        Result tensors; an empty list if ``forms`` is empty. A node without results runs for its effect.
    """
    arguments = [tf.convert_to_tensor(tensor) for tensor in tensors]
    argnums = [number for number, tensor in enumerate(arguments) if tensor.dtype.is_floating]
    count = len(arguments)

    def price_forward(values: Sequence[Any], _: Collection[int]) -> Any:
        return operation.cost(_arrays(values), argnums).forward

    def price_backward(values: Sequence[Any], read_indices: Collection[int]) -> Any:
        return operation.cost(_arrays(values[:count]), [argnums[number] for number in sorted(read_indices)]).backward

    def forward(*arrays: Array) -> Any:
        return operation.forward(*arrays)[0]

    def backward(*arrays: Array) -> Any:
        values, gradients = arrays[:count], arrays[count:]
        return operation.backward(operation.forward(*values)[1], gradients, argnums)

    def call(*values: Any) -> Any:
        results = add_function(forward, values, forms, name, price_forward)

        def gradients(*upstream: Any) -> list[Any]:
            forms_of_inputs = [(values[number].dtype, values[number].shape) for number in argnums]
            inputs = [*values, *map(tf.convert_to_tensor, upstream)]
            gradients_of_inputs = iter(add_function(backward, inputs, forms_of_inputs, f"{name}_grad", price_backward))
            return [next(gradients_of_inputs) if number in argnums else None for number in range(count)]

        return results, gradients

    if not forms:
        add_function(forward, arguments, forms, name, price_forward)
        return []
    results = tf.custom_gradient(call)(*arguments)
    return list(results) if isinstance(results, list | tuple) else [results]


def operate_without_gradient(operation: Any, tensors: Sequence[Any], forms: Sequence[Form], name: str) -> list[Any]:
    """Add the node of an operation without gradient, whose ``cost`` is the work; see :func:`operate`.

    Returns:
        Result tensors, or only the operation in a list if ``forms`` is empty.
    """

    arguments = [tf.stop_gradient(tf.convert_to_tensor(tensor)) for tensor in tensors]
    results = add_function(operation.forward, arguments, forms, name, lambda values, _: operation.cost(_arrays(values)))
    return results if not forms else [tf.stop_gradient(result) for result in results]


def add_function(
    function: Callable[..., Sequence[Any]],
    tensors: Sequence[Any],
    forms: Sequence[Form],
    name: str,
    price: Price | None = None,
) -> list[Any]:
    """Add a node for an array function that simulated IPUs and the host can run.

    Args:
        function: takes and returns arrays.
        tensors: arguments.
        forms: dtype and static shape per result; a node without results runs for the effect.
        name: name of the node.
        price: function for the node's work; None for a node without work.

    Returns:
        Result tensors, or only the operation in a list if ``forms`` is empty.
    """

    def run(*arrays: Any) -> Any:
        return tuple(np.asarray(value) for value in function(*map(np.asarray, arrays)))

    if tf.executing_eagerly():
        outcome = function(*(tensor.numpy() for tensor in tensors))
        return [tf.constant(value, dtype) for value, (dtype, _) in zip(outcome, forms, strict=True)] or [None]
    results = add_node(Entry(lambda node: run, effect=not forms, price=price), tensors, forms, name)
    node = results[0] if not forms else results[0].op
    let_host_run(node, run)
    return results


def let_host_run(node: Any, function: Callable[..., Any]) -> None:
    """Let TensorFlow call a function when the host runs a node."""
    HOST_FUNCTIONS._funcs[node.get_attr("token").decode()] = function
    node.graph._ipusim_functions = [
        *getattr(node.graph, "_ipusim_functions", ()),
        function,
    ]  # TensorFlow holds only weak references


def _arrays(values: Sequence[Any]) -> list[Array]:
    return [np.asarray(value) for value in values]


@dataclass(frozen=True)
class LayerOperation:
    """A deterministic layer of the simulator on (x, parameters); x is (batch, ...).

    Attributes:
        layer: the layer.
        names: parameter names of the layer.
    """

    layer: layers.Layer
    names: tuple[str, ...]

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], layers.Saved]:
        """Return the output and the saved values."""
        x, *values = arrays
        parameters = dict(zip(self.names, values, strict=True))
        y, saved_values = self.layer.forward(parameters, x)
        return (y,), (parameters, saved_values)

    def backward(self, saved_values: layers.Saved, grads: Sequence[Array], argnums: Sequence[int]) -> list[Array]:
        """Return the gradients for arguments ``argnums``."""
        parameters, layer_values = saved_values
        dx, gradients = self.layer.backward(parameters, layer_values, grads[0], 0 in argnums)
        input_gradients: list[Any] = [dx, *(gradients[name] for name in self.names)]
        return [input_gradients[number] for number in argnums]

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
        """Return the work of the layer."""
        batch, *shape = arrays[0].shape
        cost: LayerCost = self.layer.cost(tuple(shape), batch, arrays[0].dtype.itemsize, 0 in argnums)
        return cost if any(argnums) else LayerCost(cost.forward, cost.halves.input)
