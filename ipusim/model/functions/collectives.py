"""Offer collectives on arrays to a replica's Python function, while replicas run a pass in lock step."""

from __future__ import annotations

import numpy as np

from ipusim.base.errors import ModelError
from ipusim.hardware.collectives.collective import Operation
from ipusim.model.collective_call import CollectiveCall, Combination
from ipusim.model.functions.surrounded import surroundings
from ipusim.model.layers.layer import Array


def replica_index() -> int:
    """Return the index of the caller's replica."""
    return surroundings().replica.index


def all_reduce(x: Array, group: int | None = None) -> Array:
    """Return the sum of ``x`` over the replicas of a group.

    ``group`` is the number of consecutive replicas per group, here and in other collectives; None for the whole device.
    """
    return _collective("all_reduce", x, group)


def all_gather(x: Array, group: int) -> Array:
    """Return the concatenated arrays of a group's replicas, shape (group, *x.shape)."""
    return np.reshape(_collective("all_gather", x, group), (group, *x.shape))


def all_to_all(x: Array, group: int) -> Array:
    """Return row r of every replica's ``x``, shape (group, ...); r is this replica's index in the group."""
    return np.reshape(_collective("all_to_all", np.reshape(x, (group, -1)), group), x.shape)


def reduce_scatter(x: Array, group: int, combination: Combination = "add") -> Array:
    """Return this replica's chunk of the sum (or other combination) of ``x``, shape (n,).

    Chunks have ceil(n / group) elements, padded with zeros beyond the end of ``x``.
    """
    return _collective("reduce_scatter", x, group, combination)


def reduce_scatter_gradient(x: Array, gradient: Array, group: int, combination: Combination = "add") -> Array:
    """Return the gradient of ``x`` from the gradient of the chunk.

    A product, minimum or maximum needs the rows of the other replicas. If several elements equal the minimum or
    maximum, they share the gradient equally, like in autograd. Raises ModelError for a logical combination.
    """
    if combination in ("logical_and", "logical_or"):
        call = _call("reduce_scatter", x, group, combination)
        raise ModelError(f"no gradient comes back through {call}: use its output only for results")
    whole_gradient = np.reshape(all_gather(gradient, group), (-1,))[: len(x)]
    if combination == "add":
        return whole_gradient
    arrays = all_gather(x, group)
    if combination == "multiply":
        index = replica_index() % group
        return np.asarray(whole_gradient * np.prod(np.concatenate([arrays[:index], arrays[index + 1 :]]), axis=0))
    extremes = (np.max if combination == "maximum" else np.min)(arrays, axis=0)
    return np.asarray(whole_gradient * (x == extremes) / np.sum(arrays == extremes, axis=0, dtype=x.dtype))


def own_chunk(x: Array, group: int) -> Array:
    """Return this replica's chunk of a local ``x``, shape (n,), cut as in :func:`reduce_scatter`."""
    size = -(-x.shape[0] // group)
    padded = np.concatenate([x, np.zeros(size * group - x.shape[0], x.dtype)])
    first = replica_index() % group * size
    return padded[first : first + size]


def _call(operation: Operation, x: Array, group: int | None, combination: Combination = "add") -> CollectiveCall:
    return CollectiveCall(operation, tuple(x.shape), np.dtype(x.dtype).name, group, combination)


def _collective(operation: Operation, x: Array, group: int | None, combination: Combination = "add") -> Array:
    """Return this replica's result; an all-gather or a reduce-scatter returns a flat row.

    Record the call if the surroundings have a list for calls, then wait for the other replicas.
    """
    call, context = _call(operation, x, group, combination), surroundings()
    if context.collectives is not None:
        context.collectives.append(call)
    return context.replica.meet(call, x)
