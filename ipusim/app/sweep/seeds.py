"""Sweep points over seeds of jitter, computed together without events where exact."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from ipusim.api import Request, Session, assemble, runs
from ipusim.app.sweep.outcome import Outcome, outcome_of_cycles, outcome_of_run
from ipusim.base.errors import IpusimError

#: Option of a jitter's seed.
_SEED: Final = re.compile(r"disturbances\.\d+\.seed")
#: Least number of points computed together; fewer are simulated separately.
_FEWEST: Final = 3


def seeded_outcomes(request: Request, points: Mapping[int, Mapping[str, Any]]) -> Iterator[tuple[int, Outcome]]:
    """Yield the outcomes of points that differ only in seeds of jitter.

    The first point is simulated. If its computed cycles differ from the simulation, no further outcome follows.

    Args:
        request: the varied request, without arithmetic.
        points: changes of the request by the number of the point.

    Yields:
        Number and outcome of each point whose times are exact without events.
    """
    if len(points) < _FEWEST or not all(_SEED.fullmatch(path) for changes in points.values() for path in changes):
        return
    with suppress(IpusimError, MemoryError):  # reported when the point runs alone
        requests = {number: request.replace(changes) for number, changes in points.items()}
        first, job = next(iter(points)), assemble(next(iter(requests.values())))
        timeline = Session(job).run(job.executions)
        result = outcome_of_run(job, timeline)
        if not result.is_complete:
            return
        yield first, result
        run_cycles = runs.runs_with_seeds(job, [_seeds(variant) for variant in requests.values()])
        for number, cycles in zip(requests, run_cycles, strict=True):
            outcome = None if cycles is None else outcome_of_cycles(job, timeline.info, cycles)
            if number == first and outcome != result:
                return
            if number != first and outcome is not None:
                yield number, outcome


def _seeds(request: Request) -> list[int]:
    """Return the seeds of a request's jitters."""
    disturbances = request.options.disturbances or ()
    return [item.seed for item in disturbances if hasattr(item, "seed")]
