"""Reduce a tensor over replicas, and return this replica's part: Graphcore's ``reduce_scatter_op``."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ipusim.api import functions
from ipusim.ipu.cross_replica_ops import as_number_tensor, checked_group_size, for_each
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.traced.collectives import add_collective

tf = load()
#: Graphcore's name of a sum.
_ADD: Final = "COLLECTIVE_OP_ADD"
#: Graphcore's name of a sum of squares.
_SQUARE_ADD: Final = "COLLECTIVE_OP_SQUARE_ADD"
#: Graphcore's name for no reduction: a replica keeps a part of its local values.
_LOCAL: Final = "COLLECTIVE_OP_LOCAL"
#: Graphcore's name of a mean.
_MEAN: Final = "COLLECTIVE_OP_MEAN"
#: How a group's values are combined, by Graphcore's name.
_COMBINATIONS: Final[dict[str, functions.Combination]] = {
    _ADD: "add",
    "COLLECTIVE_OP_MUL": "multiply",
    "COLLECTIVE_OP_MIN": "minimum",
    "COLLECTIVE_OP_MAX": "maximum",
    "COLLECTIVE_OP_LOGICAL_AND": "logical_and",
    "COLLECTIVE_OP_LOGICAL_OR": "logical_or",
    _SQUARE_ADD: "add",
    _MEAN: "add",
}


def reduce_scatter(x: Any, replication_factor: int, op: str = _ADD, name: str | None = None) -> Any:
    """Return this replica's part of a rank 1 tensor, reduced over a group's replicas.

    A part has ceil(elements / replication_factor) elements, padded with zeros at the end. Logical operations take whole
    numbers, return 1 and 0, and have no gradient.

    Args:
        x: tensor of rank 1, or a list of tensors, which gives a list.
        replication_factor: number of consecutive replicas per group.
        op: operation, under Graphcore's name.
        name: name of the operation.

    Raises:
        ProgramError: if the rank is not 1 or the operation is unknown.
        ProgramTypeError: unless x is a tensor of numbers. A factor that does not divide the number of replicas is
            refused once the device is known.
    """
    size = checked_group_size("replication_factor", replication_factor)
    if not isinstance(op, str) or op not in (*_COMBINATIONS, _LOCAL):
        checks.wrong_value("op", f"{', '.join(_COMBINATIONS)} or {_LOCAL}", op)
    return for_each(x, lambda tensor: _scattered(tensor, size, op, name or "reduce_scatter"))


def _scattered(x: Any, size: int, op: str, name: str) -> Any:
    """Add the node of :func:`reduce_scatter` for a single tensor."""
    logical = op.startswith("COLLECTIVE_OP_LOGICAL")
    value = as_number_tensor(x, whole=logical)
    if value.shape.rank != 1:
        checks.wrong_value("x", "a tensor of rank 1", tuple(value.shape.as_list()))
    length = int(value.shape[0])
    shape = [-(-length // size)]
    if op == _LOCAL:
        return add_collective(
            lambda array: functions.own_chunk(array, size), _gradient_of_own_part(size), value, shape, name
        )
    values = value * value if op == _SQUARE_ADD else value
    if op == _MEAN:
        values = values / tf.cast(size, values.dtype)
    if size == 1:
        return tf.cast(values != 0, values.dtype) if logical else values
    combination = _COMBINATIONS[op]
    return add_collective(
        lambda array: functions.reduce_scatter(array, size, combination),
        lambda array, gradient: functions.reduce_scatter_gradient(array, gradient, size, combination),
        values,
        shape,
        name,
    )


def _gradient_of_own_part(size: int) -> Any:
    """Return the gradient function of ``COLLECTIVE_OP_LOCAL``: zeros outside the replica's part."""

    def pull_back(array: Any, gradient: Any) -> Any:
        result = np.zeros(gradient.size * size, array.dtype)
        start = functions.replica_index() % size * gradient.size
        result[start : start + gradient.size] = gradient
        return result[: array.size]

    return pull_back
