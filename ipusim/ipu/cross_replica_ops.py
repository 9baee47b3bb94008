"""Functions of Graphcore's ``cross_replica_ops``, and checks of the arguments of all functions of replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ipusim.api import Array, functions
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.traced.collectives import add_collective

tf = load()
#: More than any machine has.
_MOST_REPLICAS: Final = 4096


def cross_replica_sum(x: Any, replica_group_size: int | None = None, name: str | None = None) -> Any:
    """Return the sum of a tensor over all replicas, or over groups of consecutive replicas.

    Its gradient is the cross replica sum of the gradient.

    Args:
        x: tensor of floating-point or whole numbers.
        replica_group_size: replicas of a group; by default all.
        name: name of the operation.

    Raises:
        ProgramTypeError: for what is no tensor of numbers. A size that does not divide the number of replicas is
            refused when the device is known.
    """
    size = None if replica_group_size is None else factor("replica_group_size", replica_group_size)
    value = numbers(x)
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
    """Return the mean of a tensor over all replicas, or over groups of consecutive replicas.

    Its gradient is the cross replica mean of the gradient. Each replica divides before the sum, which so does not
    overflow.

    Args:
        x: tensor of floating-point numbers.
        replica_group_size: replicas of a group; by default, and for 0, all.
        name: name of the operation.

    Raises:
        ProgramTypeError: as there.
    """
    size = factor("replica_group_size", replica_group_size) if replica_group_size else None
    value = numbers(x)

    def mean(array: Array) -> Array:
        count = functions.surroundings().replica.count if size is None else size
        return functions.all_reduce(array / array.dtype.type(count), size)

    name = name or "cross_replica_mean"
    return value if size == 1 else add_collective(mean, lambda _, gradient: mean(gradient), value, value.shape, name)


def assume_equal_across_replicas(tensors: Any, inplace: bool = False) -> Any:
    """Return tensors as they are.

    Args:
        tensors: one or a structure of them.
        inplace: without effect: conditions of a simulated program may differ in replicas.
    """
    checks.truth("inplace", inplace)
    return tensors


def numbers(x: Any, *, whole: bool = False) -> Any:
    """Return a tensor of numbers, on request of whole ones alone; raises ProgramTypeError for any other value."""
    try:
        value = tf.convert_to_tensor(x)
    except (TypeError, ValueError):
        value = None
    if value is None or not (value.dtype.is_integer or (value.dtype.is_floating and not whole)):
        expected = "whole numbers" if whole else "floating-point or whole numbers"
        checks.wrong_type("x", f"a tensor of {expected}", x if value is None else value.dtype.name)
    return value


def for_each(x: Any, function: Callable[[Any], Any]) -> Any:
    """Return what a function gives for a tensor, or for each tensor of a list of them, which may have other dtypes."""
    if not isinstance(x, list | tuple) or not all(map(tf.is_tensor, x)):
        return function(x)
    results = [function(each) for each in x]
    return results[0] if len(results) == 1 else results


def factor(name: str, value: Any) -> int:
    """Return the size of replica groups; raises ProgramTypeError for what is no number, ProgramError out of range."""
    result = checks.whole(name, value, least=1)
    if result > _MOST_REPLICAS:
        checks.wrong_value(name, f"a whole number from 1 to {_MOST_REPLICAS}", result)
    return result
