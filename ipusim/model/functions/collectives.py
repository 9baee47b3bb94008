"""Collectives of the replicas that run a pass in lock step, on their arrays."""

from __future__ import annotations

import numpy as np

from ipusim.base.errors import ModelError
from ipusim.hardware.collectives.collective import Operation
from ipusim.model.collective_call import CollectiveCall, Combination
from ipusim.model.functions.surrounded import surroundings
from ipusim.model.layers.layer import Array


def replica_index() -> int:
    """Return which replica the caller runs in."""
    return surroundings().replica.index


def all_reduce(x: Array, group: int | None = None) -> Array:
    """Return the sum of ``x`` over the replicas of each group.

    As of all collectives, ``group`` is that many replicas in a row; None for all of the device.
    """
    return _collective("all_reduce", x, group)


def all_gather(x: Array, group: int) -> Array:
    """Return the arrays of all replicas of a group, shape (group, *x.shape)."""
    return np.reshape(_collective("all_gather", x, group), (group, *x.shape))


def all_to_all(x: Array, group: int) -> Array:
    """Return in row k what replica k of the group has in the row of this one; ``x``: shape (group, ...)."""
    return np.reshape(_collective("all_to_all", np.reshape(x, (group, -1)), group), x.shape)


def reduce_scatter(x: Array, group: int, combination: Combination = "add") -> Array:
    """Return this replica's chunk of the sum of ``x``, shape (n,), or of another combination of its elements.

    Chunks have ceil(n / group) elements; behind the end of ``x`` are zeros.
    """
    return _collective("reduce_scatter", x, group, combination)


def reduce_scatter_gradient(x: Array, gradient: Array, group: int, combination: Combination = "add") -> Array:
    """Return the gradient of ``x`` from that of its chunk.

    For what is no sum, every replica needs the rows of the others. Of equal elements that are the least or the
    largest each gets the same share, as in autograd. Raises ModelError for a logical combination.
    """
    if combination in ("logical_and", "logical_or"):
        call = _call("reduce_scatter", x, group, combination)
        raise ModelError(f"no gradient comes back through {call}: use its output only for results")
    arriving = np.reshape(all_gather(gradient, group), (-1,))[: len(x)]
    if combination == "add":
        return arriving
    every = all_gather(x, group)
    if combination == "multiply":
        own = replica_index() % group
        return np.asarray(arriving * np.prod(np.concatenate([every[:own], every[own + 1 :]]), axis=0))
    extremes = (np.max if combination == "maximum" else np.min)(every, axis=0)
    return np.asarray(arriving * (x == extremes) / np.sum(every == extremes, axis=0, dtype=x.dtype))


def own_chunk(x: Array, group: int) -> Array:
    """Return this replica's chunk of its own ``x``, shape (n,), as :func:`reduce_scatter` cuts it."""
    size = -(-x.shape[0] // group)
    padded = np.concatenate([x, np.zeros(size * group - x.shape[0], x.dtype)])
    first = replica_index() % group * size
    return padded[first : first + size]


def _call(operation: Operation, x: Array, group: int | None, combination: Combination = "add") -> CollectiveCall:
    return CollectiveCall(operation, tuple(x.shape), np.dtype(x.dtype).name, group, combination)


def _collective(operation: Operation, x: Array, group: int | None, combination: Combination = "add") -> Array:
    """Return the result in this replica, in one row but for an all-reduce and an all-to-all.

    Notes the call where that is asked for, and meets the other replicas.
    """
    call, now = _call(operation, x, group, combination), surroundings()
    if now.collectives is not None:
        now.collectives.append(call)
    return now.replica.meet(call, x)
