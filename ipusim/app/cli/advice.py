"""Advise on programs that exceed memory: try changed options, and name the best change in the error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ipusim.base.errors import IpusimError

if TYPE_CHECKING:
    from ipusim.api import Job
    from ipusim.app.explain.memory_moves import Moves


@contextmanager
def advise_on_memory(moves_of: Callable[[Job], Moves | None] | None = None) -> Iterator[None]:
    """Add advice on memory to a ScenarioMemoryError that the block raises.

    Args:
        moves_of: function from a Job to changes that free memory. By default, changes are tried unless trials take
            long.
    """
    from ipusim.app.explain.memory_moves import is_long, memory_moves
    from ipusim.app.explain.memory_words import advice
    from ipusim.app.scenario.problems import ScenarioMemoryError

    try:
        yield
    except ScenarioMemoryError as error:
        found = None
        with suppress(IpusimError):  # the error of a tried variant says nothing about the scenario
            if moves_of is not None:
                found = moves_of(error.job)
            elif not is_long(error.job):
                found = memory_moves(error.job, with_longer_parts=False)
        if found is not None and found.moves:
            raise error.with_advice(f"{advice(found).rstrip('.')}.") from None
        raise error from None
