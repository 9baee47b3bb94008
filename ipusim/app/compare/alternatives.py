"""Name schedules that the compared stages permit, for a comparison in which a rule refused a schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ipusim.api import pipelines, runs, schedules
from ipusim.app.compare.comparison import Comparison
from ipusim.base.errors import IpusimError
from ipusim.base.units import enumerated

#: Maximum number of passes of a shape for trials of schedules. Together the trials take about 0.1 s.
_MOST_PASSES: Final = 100_000


def alternatives(comparison: Comparison) -> Iterator[str]:
    """Yield a sentence with the names of schedules outside the comparison, or nothing.

    The scenario must have a completed schedule, and a schedule refused for a reason other than memory.
    """
    refused_sources = {row.source for row in comparison.rows if row.times is None and row.memory is None}
    completed_beside = [row.result for row in comparison.completed if row.result and row.source in refused_sources]
    if len({row.schedule for row in comparison.rows}) < 2 or not completed_beside:
        return
    compared_names = {row.schedule for row in comparison.rows}
    names = [name for name in schedules_for(completed_beside[0].job.plan.shape) if name not in compared_names]
    if names:
        yield f"Other schedules for the same stages on the same IPUs: {enumerated(names)}."


def schedules_for(shape: pipelines.PlanShape) -> list[str]:
    """Return names of schedules with a Plan for the shape, recomputation aside.

    Returns:
        Names in the order of the registry; none for a shape with too many passes to try.
    """
    names = []
    for name in schedules.names() if shape.passes <= _MOST_PASSES else ():
        schedule = schedules.find(name)
        try:
            own_shape = replace(
                shape,
                micro_batches=shape.micro_batches // shape.segments * schedule.segments,
                segments=schedule.segments,
                mirrored=schedule.mirrored,
                recompute=False,
                recompute_inline=False,
            )
            runs.plan_of(schedule, own_shape)
        except IpusimError:
            continue
        names.append(name)
    return names
