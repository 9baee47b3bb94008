"""Turn the expectations of a scenario into lines to print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipusim.api import runs
    from ipusim.app.regression.expectations import Judgement


def expectation_lines(judgements: Sequence[Judgement], still_open: Sequence[runs.Expectation] = ()) -> Iterator[str]:
    """Yield a line per judged expectation, and a line per expectation that needs a run."""
    yield from map(str, judgements)
    yield from (f"open    {expectation.name}: {expectation.text}, known after a run" for expectation in still_open)
