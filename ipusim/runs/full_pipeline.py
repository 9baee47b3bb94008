"""Which counts of a full pipeline grow evenly, by a state of the machine that recurs."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from ipusim.runs.job import Job
from ipusim.runs.problems import RequestError
from ipusim.runs.time_alone import timeline_of
from ipusim.timeline.timeline import Timeline

#: How many times its ramps and a period, or its IPUs, a run takes in which a state is looked for. Where all
#: micro-batches go forward first, tensors may pile up: no state recurs then, and twice as long a run takes four times
#: as long to simulate.
_TRIED: Final = 4, 16, 64
_TRIED_IN_PHASES: Final = _TRIED[:1]


class FullCounts(NamedTuple):
    """Gradient accumulation counts of a full pipeline.

    Attributes:
        least: from which on it is full.
        apart: how far apart they are; of some schedules it takes several times as many more to do the same again.
    """

    least: int
    apart: int


def full_counts(job: Job) -> FullCounts:
    """Return counts whose time tells, where it grows by as much from one to the next, how it grows for good.

    Where IPUs meet, those are all that the schedule takes. Where they do not, counts that are closer may deceive: of
    three IPUs under 1F1B, between which tensors take their time, it grows by as much from 8 micro-batches to 16 as
    from there to 24, and by a twelfth less in the long run. Those of a state that recurs do not; where none does,
    whole rounds of all IPUs stand for them.

    Args:
        job: a run, of any count.

    Returns:
        Counts as ``gradient_accumulation_count`` has them.

    Example:
        >>> from ipusim.api import Request, assemble
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> pipeline = {"schedule": "1f1b", "gradient_accumulation_count": 4, "stages": stages}
        >>> full_counts(assemble(Request.from_dict({"system": {"name": "free"}, "pipeline": pipeline})))
        FullCounts(least=3, apart=1)
    """
    schedule, shape = job.schedule, job.program.shape
    ramps, step = schedule.ramps(shape), schedule.count_step(shape)
    if job.plan.sync.meets:
        return FullCounts(-(-ramps // step) * step, step)
    ipus, of_count = len(set(shape.mapping)), shape.serialization * shape.segments
    multiple = math.lcm(schedule.step(shape), of_count)
    least = ramps + max(1 if schedule.period is None else schedule.period(shape), ipus)
    timeline = _recurring(job, least, multiple)
    if timeline is not None:
        apart = math.lcm(multiple, *(repeat.length for repeat in timeline.repeats))
        return FullCounts(timeline.contiguous().info.count // of_count, apart // of_count)
    rounds = math.lcm(step, ipus)
    return FullCounts(-(-ramps // rounds) * rounds, rounds)


def _recurring(job: Job, least: int, multiple: int) -> Timeline | None:
    """Return an execution in which a state recurs, of some times ``least`` micro-batches; None where none does."""
    if job.schedule.period is None or job.of is None:
        return None
    for times in _TRIED_IN_PHASES if job.schedule.in_phases else _TRIED:
        try:
            timeline = timeline_of(job.of(-(-times * least // multiple) * multiple, 1), 1)
        except RequestError:  # of a count that was not requested
            return None
        if timeline.repeats:
            return timeline
    return None
