"""The context in which a stage's function runs: one value, entered by its caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ipusim.model.collective_call import CollectiveCall
from ipusim.model.functions.replica import ONLY_REPLICA, Replica
from ipusim.model.functions.untrained import Untrained
from ipusim.model.layers.layer import Array, Key
from ipusim.model.work import TableBytes, Work

#: From a variable's name and initial value to what the function computes with. One that keeps the value copies it:
#: stages ask in every pass, and most have the variable already.
Lookup = Callable[[str, Array], Any]
#: Takes the work of one pass, and the arrays that came in and went out.
Counter = Callable[[Work, Sequence[Array], Sequence[Array]], None]


@dataclass(frozen=True, eq=False)
class HostScope:
    """One block whose operations run on the host, whether it is gone through once or call by call.

    Attributes:
        name: as the user calls it.
    """

    name: str


class Surroundings(NamedTuple):
    """The context of a function; by default it runs by itself, outside of every stage.

    Attributes:
        lookup: gives the variables that the function asks for by name; None outside of stages.
        lookup_outside: gives those that are asked for outside of stages, in a graph of the program's own.
        untrained: the variables that it reads and changes and no optimizer trains; None outside of a program.
        key: seeds the random draws of its layers: the micro-batch's; None: no draws.
        scope: the block on the host in which its operations run; None on the IPU.
        ipu_alone: what is running, where that is priced as a whole and has no scopes of the host's.
        replica: the replica in which it runs; outside of a run the only one.
        counter: told of the work of layers and operations, where they are counted.
        collectives: takes every collective that is called, where they are noted.
        look_ups: takes what each look-up of a table of the host's moves, where functions are only tried, and nothing
            is learned.
    """

    lookup: Lookup | None = None
    lookup_outside: Lookup | None = None
    untrained: Untrained | None = None
    key: Key | None = None
    scope: HostScope | None = None
    ipu_alone: str = ""
    replica: Replica = ONLY_REPLICA
    counter: Counter | None = None
    collectives: list[CollectiveCall] | None = None
    look_ups: list[TableBytes] | None = None


_NOW: Final[ContextVar[Surroundings]] = ContextVar("surroundings", default=Surroundings())  # noqa: B039 - it is frozen


def surroundings() -> Surroundings:
    """Return the caller's surroundings."""
    return _NOW.get()


def inside() -> bool:
    """Tell whether a stage is running."""
    return _NOW.get().lookup is not None


class Surrounded:
    """A block whose surroundings differ in some attributes; may be entered as often as one likes, but not in itself.

    A class, as every pass enters one, which one of contextlib's generators is too slow for.

    >>> with Surrounded(ipu_alone="a layer"):
    ...     surroundings().ipu_alone
    'a layer'
    """

    __slots__ = ("_changes", "_token")

    def __init__(self, **changes: Any) -> None:
        """Take the attributes of :class:`Surroundings` that differ."""
        self._changes = changes

    def __enter__(self) -> None:
        """Change the surroundings."""
        self._token: Token[Surroundings] = _NOW.set(_NOW.get()._replace(**self._changes))

    def __exit__(self, *_: object) -> None:
        """Restore those from before."""
        _NOW.reset(self._token)
