"""The replica in which a stage's function runs: which it is, and what it does together with the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import numpy as np

from ipusim.base.errors import ModelError
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
            return np.stack([each[0] for each in every])
        case _:
            return own_chunk(call, combined(call, every), size)


def own_chunk(call: CollectiveCall, whole: Array, size: int) -> Array:
    """Return all of an all-reduce, and the first of ``size`` chunks of a reduce-scatter."""
    return whole if call.operation == "all_reduce" else whole[: -(-whole.size // size)]


def combined(call: CollectiveCall, every: Array) -> Array:
    """Return the arrays along the first axis as one, in their own dtype."""
    found: Array = getattr(np, call.combination).reduce(every, axis=0).astype(every.dtype)
    return found


@dataclass(frozen=True)
class Replica:
    """One replica of a program.

    Attributes:
        index: which it is.
        known: whether that is the one that will run; not where a function is written down once for all replicas.
        meet: takes a collective and this replica's array, and returns its result when all replicas have come.
    """

    index: int = 0
    meet: Callable[[CollectiveCall, Array], Array] = among_equals
    known: bool = True


_REPLICA: Final[ContextVar[Replica]] = ContextVar("replica", default=Replica())  # noqa: B039 - it is frozen
_NOTED: Final[ContextVar[list[CollectiveCall] | None]] = ContextVar("noted", default=None)


def replica() -> Replica:
    """Return the replica in which the caller runs; outside of a run the only one."""
    return _REPLICA.get()


def index() -> int:
    """Return which replica the caller runs in; raises ModelError where that is not known."""
    found = replica()
    if not found.known:
        raise ModelError("the number of the replica is not known where a function is written down once for all")
    return found.index


class Acting:
    """A block that runs as a replica, to be entered again and again; a class, as every pass enters one."""

    __slots__ = ("_as", "_token")

    def __init__(self, as_replica: Replica) -> None:
        """Take the replica."""
        self._as = as_replica

    def __enter__(self) -> None:
        """Begin."""
        self._token: Token[Replica] = _REPLICA.set(self._as)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Be who was before."""
        _REPLICA.reset(self._token)


@contextmanager
def noting() -> Iterator[list[CollectiveCall]]:
    """Note every collective that is called in the block."""
    found: list[CollectiveCall] = []
    token = _NOTED.set(found)
    try:
        yield found
    finally:
        _NOTED.reset(token)


def meet(call: CollectiveCall, x: Any) -> Array:
    """Carry a collective out: note it where that is asked for, and meet the other replicas.

    ``x`` becomes of the call's dtype, as gradients do not always come in that of what they belong to.
    """
    noted = _NOTED.get()
    if noted is not None:
        noted.append(call)
    return replica().meet(call, np.asarray(x, call.dtype))
