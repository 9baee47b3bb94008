"""Make a timing-only run of a Job, and record states of the machine at marks (noted moments)."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from ipusim.hardware.system import System
from ipusim.machine.recurrence import Mark
from ipusim.machine.simulate import simulate
from ipusim.pricing.costs import Costs
from ipusim.runs.job import Job
from ipusim.timeline.timeline import Timeline


def marked_run(
    job: Job, costs: Costs, system: System, executions: int, micro_batches: Container[int], **options: Any
) -> tuple[Timeline, list[Mark]]:
    """Return a run's Timeline, and its states before each execution and before the given micro-batches.

    ``micro_batches`` holds the numbers of these micro-batches. ``options`` are options of
    :func:`~ipusim.machine.simulate.simulate`.
    """
    marks: list[Mark] = []
    run = {"executions": executions, "marked": micro_batches, "note": marks.append, **options}
    return simulate(job.plan, job.program, system, costs=costs, **run), marks
