"""Advice on a program that does not fit its memory, by options that were tried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ipusim.base.errors import IpusimError

if TYPE_CHECKING:
    from ipusim.app.explain.memory_moves import Moves
    from ipusim.app.scenario.problems import ScenarioMemoryError


@contextmanager
def advised() -> Iterator[None]:
    """Raise the block's ScenarioMemoryError with the advice of tried options, as ``check`` gives it."""
    from ipusim.app.explain.memory_moves import is_long, memory_moves
    from ipusim.app.scenario.problems import ScenarioMemoryError

    try:
        yield
    except ScenarioMemoryError as error:
        moves = None
        with suppress(IpusimError):  # an error of a variant, not of the scenario
            moves = None if is_long(error.job) else memory_moves(error.job)
        raise with_advice(error, moves) from None


def with_advice(error: ScenarioMemoryError, moves: Moves | None) -> ScenarioMemoryError:
    """Return an error with the advice of tried options; the same error without any that frees memory."""
    from ipusim.app.explain.memory_words import advice

    return error.advised(f"{advice(moves).rstrip('.')}.") if moves is not None and moves.moves else error
