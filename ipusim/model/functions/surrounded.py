"""The context in which a stage's function runs: one value, entered by its caller."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any, Final, NamedTuple

from ipusim.model.collective_call import CollectiveCall
from ipusim.model.functions.replica import ONLY_REPLICA, Replica
from ipusim.model.functions.untrained import Untrained
from ipusim.model.work import TableBytes


class Surroundings(NamedTuple):
    """The context of a function; by default it runs by itself, outside of every stage.

    Attributes:
        untrained: the variables that it reads and changes and no optimizer trains; None outside of a program.
        replica: the replica in which it runs; outside of a run the only one.
        collectives: takes every collective that is called, where they are noted.
        look_ups: takes what each look-up of a table of the host's moves, where functions are only tried, and nothing
            is learned.
    """

    untrained: Untrained | None = None
    replica: Replica = ONLY_REPLICA
    collectives: list[CollectiveCall] | None = None
    look_ups: list[TableBytes] | None = None


_NOW: Final[ContextVar[Surroundings]] = ContextVar("surroundings", default=Surroundings())  # noqa: B039 - it is frozen


def surroundings() -> Surroundings:
    """Return the caller's surroundings."""
    return _NOW.get()


class Surrounded:
    """A block whose surroundings differ in some attributes; may be entered as often as one likes, but not in itself.

    A class, as every pass enters one, which one of contextlib's generators is too slow for.

    >>> with Surrounded(collectives=[]):
    ...     surroundings().collectives
    []
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
