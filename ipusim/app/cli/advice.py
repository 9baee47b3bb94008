"""Advice on a program that does not fit its memory, by options that were tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ipusim.base.errors import IpusimError

if TYPE_CHECKING:
    from ipusim.api import Job
    from ipusim.app.explain.memory_moves import Moves


@contextmanager
def advised(moves_of: Callable[[Job], Moves | None] | None = None) -> Iterator[None]:
    """Raise the block's ScenarioMemoryError with the advice of changes, where some free memory.

    ``moves_of`` returns the changes for a Job; by default they are tried unless that takes long.
    """
    from ipusim.app.explain.memory_moves import is_long, memory_moves
    from ipusim.app.explain.memory_words import advice
    from ipusim.app.scenario.problems import ScenarioMemoryError

    try:
        yield
    except ScenarioMemoryError as error:
        moves = None
        with suppress(IpusimError):  # an error of a variant, not of the scenario
            if moves_of is not None:
                moves = moves_of(error.job)
            elif not is_long(error.job):
                moves = memory_moves(error.job)
        if moves is not None and moves.moves:
            raise error.advised(f"{advice(moves).rstrip('.')}.") from None
        raise error from None
