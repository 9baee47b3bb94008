"""Find gradient accumulation counts that fill the pipeline, so that time grows linearly from one count to the next.

Differences between these counts are whole numbers of periods; a period is the time until the simulated machine's state
repeats.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from ipusim.runs.job import Job
from ipusim.runs.problems import RequestError
from ipusim.runs.time_alone import timeline_of
from ipusim.timeline.timeline import Timeline

#: Lengths of the runs in which a repeated state is searched, as multiples of a least length: ramps (fill and drain)
#: plus a period, or plus the number of IPUs.
_MULTIPLES: Final = 4, 16, 64
#: The same for schedules in which all micro-batches go forward first: only the shortest run is tried. Tensors may pile
#: up, so that no state repeats, and a run of twice the length takes four times as long to simulate.
_PHASED_MULTIPLES: Final = _MULTIPLES[:1]


class FullCounts(NamedTuple):
    """Gradient accumulation counts of a full pipeline.

    Attributes:
        least: least count of a full pipeline.
        apart: difference between successive counts; a multiple of the schedule's step.
    """

    least: int
    apart: int


def full_counts(job: Job) -> FullCounts:
    """Return counts whose times show the linear growth of time with the count.

    Arbitrary counts may mislead: for three IPUs under 1F1B with slow copies, time grows equally from 8 to 16 and from
    16 to 24 micro-batches, but by a twelfth less in the long run. So the difference is the period of a repeated state;
    if no state repeats, it is the number of IPUs.

    Args:
        job: run with any count.

    Returns:
        Counts in units of ``gradient_accumulation_count``.

    Example:
        >>> from ipusim.api import Request, assemble
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> pipeline = {"schedule": "1f1b", "gradient_accumulation_count": 4, "stages": stages}
        >>> full_counts(assemble(Request.from_dict({"system": {"name": "free"}, "pipeline": pipeline})))
        FullCounts(least=3, apart=1)
    """
    schedule, shape = job.schedule, job.program.shape
    ramps, step = schedule.ramps(shape), schedule.count_step(shape)
    ipus, parts_per_count = len(set(shape.mapping)), shape.serialization * shape.segments
    multiple = math.lcm(schedule.step(shape), parts_per_count)
    least_count = ramps + max(1 if schedule.period is None else schedule.period(shape), ipus)
    timeline = _repeating_run(job, least_count, multiple)
    if timeline is not None:
        distance = math.lcm(multiple, *(repeat.length for repeat in timeline.repeats))
        return FullCounts(timeline.contiguous().info.count // parts_per_count, distance // parts_per_count)
    step_of_all_ipus = math.lcm(step, ipus)
    return FullCounts(-(-ramps // step_of_all_ipus) * step_of_all_ipus, step_of_all_ipus)


def _repeating_run(job: Job, least_count: int, multiple: int) -> Timeline | None:
    """Return an execution with a repeated state, of a multiple of ``least_count`` micro-batches; otherwise None."""
    if job.schedule.period is None or job.with_counts is None:
        return None
    for times in _PHASED_MULTIPLES if job.schedule.in_phases else _MULTIPLES:
        try:
            timeline = timeline_of(job.with_counts(-(-times * least_count // multiple) * multiple, 1), 1)
        except RequestError:  # about a count that the user did not request
            return None
        if timeline.repeats:
            return timeline
    return None
