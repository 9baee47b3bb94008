"""Sum or average tensors over replicas (Graphcore's ``cross_replica_ops``), and check arguments for such functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ipusim.api import Array, functions
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.traced.collectives import add_collective

tf = load()
#: Maximum number of replicas in a group; no machine has more replicas.
_MAX_REPLICAS: Final = 4096


def cross_replica_sum(x: Any, replica_group_size: int | None = None, name: str | None = None) -> Any:
    """Sum a tensor over all replicas, or over groups of consecutive replicas.

    The gradient is the cross replica sum of the output's gradient.

    Args:
        x: tensor of floating-point or whole numbers.
        replica_group_size: replicas per group; by default all.
        name: name of the operation.

    Raises:
        ProgramTypeError: unless x is a tensor of numbers. A size that does not divide the number of replicas is
            refused once the device is known.
    """
    size = None if replica_group_size is None else checked_group_size("replica_group_size", replica_group_size)
    value = as_number_tensor(x)
    if size == 1:
        return value
    return add_collective(
        lambda array: functions.all_reduce(array, size),
        lambda _, gradient: functions.all_reduce(gradient, size),
        value,
        value.shape,
        name or "cross_replica_sum",
    )


def cross_replica_mean(x: Any, replica_group_size: int | None = None, name: str | None = None) -> Any:
    """Average a tensor over all replicas, or over groups of consecutive replicas.

    The gradient is the cross replica mean of the output's gradient. Every replica divides before the sum, to avoid
    overflow.

    Args:
        x: tensor of floating-point numbers.
        replica_group_size: replicas per group; by default, and for 0, all.
        name: name of the operation.

    Raises:
        ProgramTypeError: unless x is a tensor of numbers.
    """
    size = checked_group_size("replica_group_size", replica_group_size) if replica_group_size else None
    value = as_number_tensor(x)

    def mean(array: Array) -> Array:
        count = functions.surroundings().replica.count if size is None else size
        return functions.all_reduce(array / array.dtype.type(count), size)

    name = name or "cross_replica_mean"
    return value if size == 1 else add_collective(mean, lambda _, gradient: mean(gradient), value, value.shape, name)


def assume_equal_across_replicas(tensors: Any, inplace: bool = False) -> Any:
    """Return tensors unchanged.

    Args:
        tensors: a tensor or a structure of tensors.
        inplace: without effect. On hardware, conditions may only read tensors marked as equal; in a simulated program
            they may read any tensor, even with different values on the replicas.
    """
    checks.truth("inplace", inplace)
    return tensors


def as_number_tensor(x: Any, *, whole: bool = False) -> Any:
    """Return a tensor of numbers, of whole numbers on request; raises ProgramTypeError for another value."""
    try:
        value = tf.convert_to_tensor(x)
    except (TypeError, ValueError):
        value = None
    if value is None or not (value.dtype.is_integer or (value.dtype.is_floating and not whole)):
        requirement = "whole numbers" if whole else "floating-point or whole numbers"
        checks.wrong_type("x", f"a tensor of {requirement}", x if value is None else value.dtype.name)
    return value


def for_each(x: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function to a tensor, or to every tensor of a list; dtypes in a list may differ."""
    if not isinstance(x, list | tuple) or not all(map(tf.is_tensor, x)):
        return function(x)
    results = [function(tensor) for tensor in x]
    return results[0] if len(results) == 1 else results


def checked_group_size(name: str, value: Any) -> int:
    """Return the size of replica groups.

    Raises ProgramTypeError if the value is not a whole number, and ProgramError if it is out of range."""
    result = checks.whole(name, value, least=1)
    if result > _MAX_REPLICAS:
        checks.wrong_value(name, f"a whole number from 1 to {_MAX_REPLICAS}", result)
    return result
