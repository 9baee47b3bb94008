"""Set the surroundings of a stage's Python function: variables, replica, and lists that record its calls.

The surroundings are the value of one context variable, which the caller of a function sets.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any, Final, NamedTuple

from ipusim.model.collective_call import CollectiveCall
from ipusim.model.functions.replica import ONLY_REPLICA, Replica
from ipusim.model.functions.untrained import Untrained
from ipusim.model.work import TableBytes


class Surroundings(NamedTuple):
    """Context of a function; the default is outside of any stage.

    Attributes:
        untrained: variables that the function reads and changes without an optimizer; None outside of a program.
        replica: replica that runs the function; :data:`ONLY_REPLICA` in a trial, and in a run with a single replica.
        collectives: list that records collective calls; None to record no calls.
        look_ups: list that records the traffic of look-ups in host tables, in trials without learning; otherwise None.
    """

    untrained: Untrained | None = None
    replica: Replica = ONLY_REPLICA
    collectives: list[CollectiveCall] | None = None
    look_ups: list[TableBytes] | None = None


_SURROUNDINGS: Final[ContextVar[Surroundings]] = ContextVar("surroundings", default=Surroundings())  # noqa: B039 - it is frozen


def surroundings() -> Surroundings:
    """Return the caller's surroundings."""
    return _SURROUNDINGS.get()


class Surrounded:
    """Block with changed surroundings; reusable, but not reentrant.

    Every pass enters a block, and a class is faster than contextlib's generators.

    >>> with Surrounded(collectives=[]):
    ...     surroundings().collectives
    []
    """

    __slots__ = ("_changes", "_token")

    def __init__(self, **changes: Any) -> None:
        """Store the changed attributes of :class:`Surroundings`."""
        self._changes = changes

    def __enter__(self) -> None:
        """Change the surroundings."""
        self._token: Token[Surroundings] = _SURROUNDINGS.set(_SURROUNDINGS.get()._replace(**self._changes))

    def __exit__(self, *_: object) -> None:
        """Restore the previous surroundings."""
        _SURROUNDINGS.reset(self._token)
