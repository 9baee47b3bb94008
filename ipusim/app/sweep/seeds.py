"""Compute sweep points over jitter seeds, slower IPUs and slower cables, without event simulation where exact."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from ipusim.api import Job, Request, Session, assemble, runs
from ipusim.app.sweep.outcome import Outcome, outcome_of_cycles, outcome_of_run
from ipusim.base.cache import Cache
from ipusim.base.errors import IpusimError

#: Option of all disturbances.
_DISTURBANCES: Final = "disturbances"
#: Option of a jitter's seed.
_SEED: Final = re.compile(rf"{_DISTURBANCES}\.\d+\.seed")
#: Minimum number of points that are computed together; fewer points are simulated separately.
_FEWEST: Final = 3
#: Maximum ratio of a run's passes to its simulated spans: with more passes, simulation is faster than computation.
_MOST_PASSES: Final = 3


def disturbed_outcomes(request: Request, points: Mapping[int, Mapping[str, Any]]) -> Iterator[tuple[int, Outcome]]:
    """Yield the outcomes of points that differ only in disturbances, for each value of the other options.

    The first point is simulated as a check. If its computed cycles differ, no further outcome follows.

    Args:
        request: the varied request, for timing-only runs.
        points: changes of the request by the number of the point.

    Yields:
        Number and outcome of each point with exact times.
    """
    groups = defaultdict[str, dict[int, Mapping[str, Any]]](dict)
    for number, changes in points.items():
        other_changes = [
            (path, value) for path, value in changes.items() if path != _DISTURBANCES and not _SEED.fullmatch(path)
        ]
        groups[repr(other_changes)][number] = changes
    for group in groups.values():
        if len(group) >= _FEWEST:
            with suppress(IpusimError, MemoryError):  # errors are reported when the point runs alone
                yield from _outcomes({number: request.replace(changes) for number, changes in group.items()}, group)


def _outcomes(
    requests: Mapping[int, Request], points: Mapping[int, Mapping[str, Any]]
) -> Iterator[tuple[int, Outcome]]:
    """Yield the outcomes of requests that differ only in disturbances, made by ``points``."""
    first, job = next(iter(requests)), assemble(next(iter(requests.values())))
    timeline = Session(job).run(job.executions)
    result = outcome_of_run(job, timeline)
    if not result.is_complete:
        return
    yield first, result
    if not any(_DISTURBANCES in changes for changes in points.values()):
        run_cycles = runs.runs_with_seeds(job, [_seeds(variant) for variant in requests.values()])
    elif job.program.shape.passes * job.executions <= _MOST_PASSES * len(timeline):
        run_cycles = _cycles(job, [*requests.values()])
    else:
        return
    for number, cycles in zip(requests, run_cycles, strict=True):
        outcome = None if cycles is None else outcome_of_cycles(job, timeline.info, cycles)
        if number == first and outcome != result:
            return
        if number != first and outcome is not None:
            yield number, outcome


def _cycles(job: Job, requests: Sequence[Request]) -> Iterator[runs.RunCycles | None]:
    """Yield the cycles of requests that differ from a Job only in disturbances; None for inexact cycles."""
    cache = Cache()
    for request in requests:
        cycles: runs.RunCycles | None = None
        with suppress(IpusimError), cache.activate():
            variant = assemble(request)
            if variant.costs == job.costs:
                (cycles,) = runs.runs_with_seeds(replace(job.whole, system=variant.system), [_seeds(request)])
        yield cycles


def _seeds(request: Request) -> list[int]:
    """Return the seeds of a request's jitters."""
    disturbances = request.options.disturbances or ()
    return [item.seed for item in disturbances if hasattr(item, "seed")]
