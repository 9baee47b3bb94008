"""The replica in which a stage's function runs: its number, and its collectives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from ipusim.model.collective_call import CollectiveCall
from ipusim.model.layers.layer import Array


def among_equals(call: CollectiveCall, x: Array) -> Array:
    """Return the result of a collective where every replica of the group holds ``x``, for the first of them.

    So a function is tried before the device is known, and runs where there is one replica.
    """
    size = 1 if call.group is None else call.group
    every = np.broadcast_to(x, (size, *x.shape))
    match call.operation:
        case "all_gather":
            return every.reshape(-1)
        case "all_to_all":
            return np.stack([array[0] for array in every])
        case _:
            return own_chunk(call, combined(call, every), size)


def own_chunk(call: CollectiveCall, whole: Array, size: int) -> Array:
    """Return the whole of an all-reduce, or the first of ``size`` chunks of a reduce-scatter."""
    return whole if call.operation == "all_reduce" else whole[: -(-whole.size // size)]


def combined(call: CollectiveCall, every: Array) -> Array:
    """Return the arrays along the first axis as one, in their own dtype."""
    total: Array = getattr(np, call.combination).reduce(every, axis=0).astype(every.dtype)
    return total


@dataclass(frozen=True)
class Replica:
    """One replica of a program.

    Attributes:
        index: which it is.
        meet: takes a collective and this replica's array, and returns its result when all replicas have come.
        count: number of replicas; 1 where a function is tried.
    """

    index: int = 0
    meet: Callable[[CollectiveCall, Array], Array] = among_equals
    count: int = 1


#: The replica outside of a run.
ONLY_REPLICA: Final = Replica()
