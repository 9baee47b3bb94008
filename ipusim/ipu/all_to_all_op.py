"""Gather tensors from replicas or exchange blocks between them: Graphcore's ``all_to_all_op``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import functions
from ipusim.ipu.cross_replica_ops import as_number_tensor, checked_group_size, for_each
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.traced.collectives import add_collective

tf = load()


def all_gather(x: Any, replication_factor: int, name: str | None = None) -> Any:
    """Gather a tensor from a group's replicas, shape (replication_factor, *x.shape).

    Args:
        x: tensor of floating-point or whole numbers, or a list of tensors, which gives a list.
        replication_factor: number of consecutive replicas per group.
        name: name of the operation.

    Raises:
        ProgramTypeError: unless x is a tensor of numbers. A factor that does not divide the number of replicas is
            refused once the device is known.
    """
    size = checked_group_size("replication_factor", replication_factor)
    return for_each(x, lambda tensor: _gathered(as_number_tensor(tensor), size, name or "all_gather"))


def _gathered(value: Any, size: int, name: str) -> Any:
    if size == 1:
        return value[None]

    def pull_back(array: Any, gradient: Any) -> Any:
        return np.reshape(functions.reduce_scatter(gradient.reshape(-1), size), array.shape)

    shape = [size, *value.shape.as_list()]
    return add_collective(lambda array: functions.all_gather(array, size), pull_back, value, shape, name)


def all_to_all(
    x: Any, split_dimension: int, concat_dimension: int, replication_factor: int, name: str | None = None
) -> Any:
    """Exchange blocks: replica r gets block r of every replica's tensor, concatenated.

    Args:
        x: tensor of floating-point or whole numbers, cut into replication_factor blocks.
        split_dimension: dimension to cut.
        concat_dimension: dimension along which blocks are joined.
        replication_factor: number of replicas.
        name: name of the operation.

    Raises:
        ProgramError: if a dimension does not exist or cannot be cut into equal blocks.
        ProgramTypeError: unless x is a tensor of numbers. A factor other than the number of replicas is refused once
            the device is known.
    """
    size, value = checked_group_size("replication_factor", replication_factor), as_number_tensor(x)
    split_axis = _dimension("split_dimension", split_dimension, value)
    concat_axis = _dimension("concat_dimension", concat_dimension, value)
    if int(value.shape[split_axis]) % size:
        requirement = f"one that {size} replicas cut into equal blocks"
        checks.wrong_value("split_dimension", requirement, int(value.shape[split_axis]))
    if size == 1:
        return value
    blocks = tf.stack(tf.split(value, size, axis=split_axis))
    exchange = add_collective(
        lambda array: functions.all_to_all(array, size),
        lambda _, gradient: functions.all_to_all(gradient, size),
        blocks,
        blocks.shape,
        name or "all_to_all",
    )
    return tf.concat(tf.unstack(exchange), axis=concat_axis)


def _dimension(name: str, value: int, x: Any) -> int:
    """Return the number of a tensor's dimension; raises ProgramError if the tensor has fewer dimensions."""
    result = checks.whole(name, value)
    if result >= x.shape.rank:
        checks.wrong_value(name, f"a dimension of a tensor of rank {x.shape.rank}", result)
    return result
