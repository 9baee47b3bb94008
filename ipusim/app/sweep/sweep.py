"""Run a sweep: workers simulate a request once at every point, and each point is saved as it ends.

Points that differ only in disturbances are computed without event simulation, if this gives exact times.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from ipusim.api import Progress, Request, RequestError, assemble
from ipusim.app.render.tables import text_of
from ipusim.app.study.trial import time_alone
from ipusim.app.sweep.crew import Crew
from ipusim.app.sweep.journal import Journal, file_hash, key_of
from ipusim.app.sweep.outcome import Outcome, outcome_of
from ipusim.app.sweep.seeds import disturbed_outcomes
from ipusim.app.sweep.vary import Axis, names_of, points_of
from ipusim.base.errors import IpusimError, OptionError


class AllFailedError(IpusimError):
    """Raised if no point of a sweep runs; the text is the first point's error."""


@dataclass(frozen=True)
class Sweep:
    """Outcomes of a sweep's points.

    Attributes:
        request: the varied request.
        axes: the varied options.
        is_zipped: whether axes vary together; otherwise every combination of their values is a point.
        points: values of the axes at every point.
        outcomes: outcomes of the points; None for pending points.
        reused_count: number of outcomes taken from an earlier sweep.
    """

    request: Request
    axes: tuple[Axis, ...]
    is_zipped: bool
    points: tuple[tuple[Any, ...], ...]
    outcomes: tuple[Outcome | None, ...]
    reused_count: int = 0

    def changes(self, point: Sequence[Any]) -> dict[str, Any]:
        """Return a point's values by option path."""
        return {axis.path: value for axis, value in zip(self.axes, point, strict=True)}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Distinct names of the axes."""
        return names_of(self.axes)

    @cached_property
    def finished_points(self) -> tuple[tuple[tuple[Any, ...], Outcome], ...]:
        """Finished points with their outcomes, in order."""
        pairs = zip(self.points, self.outcomes, strict=True)
        return tuple((point, outcome) for point, outcome in pairs if outcome is not None)

    def words(self, point: Sequence[Any]) -> str:
        """Return a point for readers: ``gradient_accumulation_count 16, schedule grouped``."""
        return ", ".join(f"{name} {text_of(value)}" for name, value in zip(self.names, point, strict=True))


def sweep(
    request: Request,
    axes: Sequence[Axis],
    vary_together: bool = False,
    losses: bool = False,
    crew: Crew | None = None,
    journal: Journal | None = None,
    progress: Progress | None = None,
    on_point: Callable[[Sweep], None] | None = None,
) -> Sweep:
    """Run ``request`` at every point of ``axes``; arithmetic runs only with ``losses``.

    Points and refusals in ``journal`` are reused, and new ones are stored as they end. After every point, ``on_point``
    receives the partial sweep. A failing point is recorded; the sweep continues.

    Raises OptionError for invalid axes and pools; AllFailedError, or the request's error, if no point runs; OutputError
    if the journal cannot be written, or a cluster does not answer.
    """
    crew = crew or Crew()
    crew.check()
    points = points_of(axes, vary_together)
    if request.functions is not None:
        raise AllFailedError("expected stages given by options, got functions: use a scenario's keys, or a file")
    if request.leaves_costs_open([axis.path for axis in axes]):
        text = "expected new cycles of stages with each size, because the present cycles are for one micro-batch size"
        raise OptionError("vary", f"pipeline.micro_batch_size: {text}")
    if not losses:
        request = time_alone(request)
    study = Sweep(request, tuple(axes), vary_together, points, (None,) * len(points))
    outcomes, keys = _known_outcomes(study, journal)
    reused = sum(outcome is not None and number in keys for number, outcome in enumerate(outcomes))

    def partial_sweep() -> Sweep:
        return Sweep(request, study.axes, vary_together, points, tuple(outcomes), reused)

    pending_changes = {number: study.changes(points[number]) for number in keys if outcomes[number] is None}
    progress_count = len(points) - len(pending_changes)
    if progress:
        progress(progress_count, len(points))
    with closing(_outcome_stream(request, pending_changes, crew, losses=losses)) as outcome_stream:
        for number, outcome in outcome_stream:
            outcomes[number] = outcome
            progress_count += 1
            if journal is not None and (outcome.has_run or outcome.is_refusal):  # after other errors points run again
                journal.add(keys[number], outcome)
            if on_point:
                on_point(partial_sweep())
            if progress:
                progress(progress_count, len(points))
    result = partial_sweep()
    if not any(outcome.has_run for _, outcome in result.finished_points):
        _raise_first_error(result)
    return result


def _outcome_stream(
    request: Request, points: Mapping[int, Mapping[str, Any]], crew: Crew, *, losses: bool
) -> Generator[tuple[int, Outcome], None, None]:
    """Yield number and outcome of points: jointly computed points first, then points of the worker pool."""
    pending = dict(points)
    if not losses:
        for number, outcome in disturbed_outcomes(request, points):
            del pending[number]
            yield number, outcome
    yield from crew.run(request, pending)


def _known_outcomes(study: Sweep, journal: Journal | None) -> tuple[list[Outcome | None], dict[int, str]]:
    """Return the outcomes known before any run (points of invalid options and of the journal), and the points' keys."""
    outcomes: list[Outcome | None] = [None] * len(study.points)
    keys: dict[int, str] = {}
    hash_once = cache(file_hash)
    for number, point in enumerate(study.points):
        try:
            variant = study.request.replace(study.changes(point))
        except RequestError:
            outcomes[number] = outcome_of(study.request, study.changes(point))
            continue
        keys[number] = key_of(variant, hash_once) if journal is not None else ""
        if journal is not None:
            outcomes[number] = journal.outcomes.get(keys[number])
    return outcomes, keys


def _raise_first_error(result: Sweep) -> None:
    """Raise the error of a sweep without successful points: the request's, or the first point's."""
    assemble(result.request)
    assemble(result.request.replace(result.changes(result.points[0])))
    raise AllFailedError(f"no point runs: {result.finished_points[0][1].message}")
