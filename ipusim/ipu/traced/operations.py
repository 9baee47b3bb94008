"""Graphcore's operations with passes of their own, as nodes through which TensorFlow's gradients go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import numpy as np

from ipusim.api import Array, LayerCost, Shape, layers
from ipusim.ipu.graph.own_nodes import add_node
from ipusim.ipu.graph.registry import Entry
from ipusim.ipu.graph.tensorflow_import import load

tf = load()
#: Python functions that TensorFlow runs for nodes of the host, by their token.
_OF_THE_HOST: Final = import_module("tensorflow.python.ops.script_ops")._py_funcs
#: Dtype and static shape of a tensor.
Form = tuple[Any, Any]


def operate(operation: Any, tensors: Sequence[Any], forms: Sequence[Form], name: str) -> list[Any]:
    """Write an operation's node, and have its gradients written where they are asked for.

    Outside of compiled computations the host runs it.

    Args:
        operation: passes and costs on arrays, as those of ``ipusim.api.functions.operate``.
        tensors: arguments; those of whole numbers have no gradient.
        forms: dtype and static shape of each result.
        name: name of the node.

    Returns:
        The results.
    """
    arguments = [tf.convert_to_tensor(tensor) for tensor in tensors]
    argnums = [number for number, tensor in enumerate(arguments) if tensor.dtype.is_floating]
    layer = PricedOperation(operation, arguments)

    def forward(*arrays: Array) -> tuple[Array, ...]:
        results: tuple[Array, ...] = operation.forward(*arrays)[0]
        return results

    def backward(*arrays: Array) -> Sequence[Array]:
        values, gradients = arrays[: len(arguments)], arrays[len(arguments) :]
        found: Sequence[Array] = operation.backward(operation.forward(*values)[1], gradients, argnums)
        return found

    def call(*values: Any) -> Any:
        results = _node(forward, values, forms, name, layer)

        def gradients(*upstream: Any) -> list[Any]:
            trained = [(values[number].dtype, values[number].shape) for number in argnums]
            found = iter(_node(backward, [*values, *upstream], trained, f"{name}_grad"))
            return [next(found) if number in argnums else None for number in range(len(values))]

        return results, gradients

    made = tf.custom_gradient(call)(*arguments)
    return list(made) if isinstance(made, list | tuple) else [made]


def _node(
    function: Callable[..., Sequence[Array]],
    tensors: Sequence[Any],
    forms: Sequence[Form],
    name: str,
    layer: PricedOperation | None = None,
) -> list[Any]:
    """Write the node of a function of arrays, which simulated IPUs and the host can run."""

    def run(*arrays: Any) -> Any:
        values = [np.asarray(value) for value in function(*map(np.asarray, arrays))]
        return values[0] if len(values) == 1 else tuple(values)

    if tf.executing_eagerly():
        found = function(*(tensor.numpy() for tensor in tensors))
        return [tf.constant(value, dtype) for value, (dtype, _) in zip(found, forms, strict=True)]
    results = add_node(Entry(lambda node: run, layer=layer), tensors, forms, name)
    node = results[0].op
    _OF_THE_HOST._funcs[node.get_attr("token").decode()] = run
    node.graph._ipusim_functions = [*getattr(node.graph, "_ipusim_functions", ()), run]  # which the host knows weakly
    return results


class PricedOperation:
    """An operation as a layer of the simulator, which has its costs."""

    def __init__(self, operation: Any, tensors: Sequence[Any]) -> None:
        """Take the operation, and the tensors that it is called with."""
        self._operation = operation
        self._tensors = [(tf.get_static_value(each), each.shape, each.dtype.as_numpy_dtype) for each in tensors]

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work of both passes; the shapes are those of the tensors."""
        arrays = [np.zeros(shape, dtype) if value is None else value for value, shape, dtype in self._tensors]
        argnums = [number for number, array in enumerate(arrays) if array.dtype.kind == "f"]
        cost: LayerCost = self._operation.cost(arrays, argnums if need_input_gradient else argnums[1:])
        return cost


@dataclass(frozen=True)
class LayerOperation:
    """A layer of the simulator that draws nothing, as an operation on (x, parameters); x is (batch, ...).

    Attributes:
        layer: the layer.
        names: its names of the parameters.
    """

    layer: layers.Layer
    names: tuple[str, ...]

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], layers.Saved]:
        """Return the output."""
        x, *values = arrays
        parameters = dict(zip(self.names, values, strict=True))
        y, saved = self.layer.forward(parameters, x)
        return (y,), (parameters, saved)

    def backward(self, saved: layers.Saved, grads: Sequence[Array], argnums: Sequence[int]) -> list[Array]:
        """Return the gradients of the arguments ``argnums``."""
        parameters, inner = saved
        dx, own = self.layer.backward(parameters, inner, grads[0], 0 in argnums)
        found: list[Any] = [dx, *(own[name] for name in self.names)]
        return [found[number] for number in argnums]

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
        """Return the layer's own work."""
        batch, *shape = arrays[0].shape
        return self.layer.cost(tuple(shape), batch, arrays[0].dtype.itemsize, 0 in argnums)
