"""Define what a stage's Python function sees of its replica: index, number of replicas, and collectives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from ipusim.model.collective_call import CollectiveCall
from ipusim.model.layers.layer import Array


def among_equals(call: CollectiveCall, x: Array) -> Array:
    """Return the first replica's result of a collective, supposing that all replicas hold ``x``.

    Such calls do not wait for other replicas: they occur in trials of functions before the device is known, in runs
    with a single replica, and in the search for the first value that is not finite.
    """
    size = 1 if call.group is None else call.group
    arrays = np.broadcast_to(x, (size, *x.shape))
    match call.operation:
        case "all_gather":
            return arrays.reshape(-1)
        case "all_to_all":
            return np.stack([array[0] for array in arrays])
        case _:
            return own_chunk(call, combine(call, arrays), size)


def own_chunk(call: CollectiveCall, result: Array, size: int) -> Array:
    """Return the whole result of an all-reduce, or the first of ``size`` chunks of a reduce-scatter."""
    return result if call.operation == "all_reduce" else result[: -(-result.size // size)]


def combine(call: CollectiveCall, arrays: Array) -> Array:
    """Combine arrays along the first axis with the collective's operation, such as a sum; the dtype stays."""
    total: Array = getattr(np, call.combination).reduce(arrays, axis=0).astype(arrays.dtype)
    return total


@dataclass(frozen=True)
class Replica:
    """A replica of a program.

    Attributes:
        index: index of the replica.
        meet: function from a collective and this replica's array to the result, once every replica has arrived.
        count: number of replicas; 1 in a trial of a function.
    """

    index: int = 0
    meet: Callable[[CollectiveCall, Array], Array] = among_equals
    count: int = 1


#: Replica of a trial, and of a run with a single replica.
ONLY_REPLICA: Final = Replica()
