"""Add collectives between hosts to the host's graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipusim.api import Array, machine
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.traced.operations import add_function

tf = load()


def call_collective(
    function: Callable[..., Sequence[Array]], tensors: Sequence[Any], shapes: Sequence[Any]
) -> list[Any]:
    """Call a collective function on tensors: at once in eager mode, else in every session run.

    Args:
        function: takes and returns arrays of the tensors' dtypes, called on all hosts at the same time.
        tensors: arguments of the function.
        shapes: static shapes of the results.
    """
    values = [tf.convert_to_tensor(tensor) for tensor in tensors]
    if tf.executing_eagerly():
        return [tf.constant(array) for array in function(*(value.numpy() for value in values))]
    forms = [(value.dtype, shape) for value, shape in zip(values, shapes, strict=True)]
    return add_function(function, values, forms, "collective") if values else []


def reduced(name: str, value: Any, operation: str) -> Any:
    """Return a tensor reduced over all hosts, like ``host_collectives.all_reduce``."""
    host = machine.this_host()
    tensor = tf.convert_to_tensor(value)
    return call_collective(lambda array: [machine.all_reduce(host, name, array, operation)], [tensor], [tensor.shape])[
        0
    ]


def gathered(name: str, value: Any) -> Any:
    """Return the concatenated tensors of all hosts, like ``host_collectives.all_gather``."""
    host = machine.this_host()
    tensor = tf.convert_to_tensor(value)
    rows = [None, *tensor.shape[1:]] if tensor.shape.rank else tensor.shape
    return call_collective(lambda array: [machine.all_gather(host, name, array)], [tensor], [rows])[0]


def broadcasted(name: str, value: Any, root: int) -> Any:
    """Return the tensor of the host with rank ``root``, like ``host_collectives.broadcast``."""
    host = machine.this_host()
    tensor = tf.convert_to_tensor(value)
    return call_collective(lambda array: [machine.broadcast(host, name, array, root)], [tensor], [tensor.shape])[0]
