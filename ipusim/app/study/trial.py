"""A request with changes, laid out for time alone: a Job with its run, or the refusal.

Time does not depend on data, so a trial computes nothing. A program too large for its memory is laid out and run too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

from ipusim.api import Job, Request, Timeline, analysis, assemble, hardware, runs, timelines
from ipusim.base.errors import IpusimError

#: The changes of a request that leave its arithmetic out.
_ALONE: Final = {"numerics": "off", "evaluate": None, "expect": None}
#: The same of a scenario file, whose problems have their places, and its programs laid out that do not fit.
WITHOUT_ARITHMETIC: Final = "numerics=off"
WITH_MISFITS: Final = "memory=report"


@dataclass(frozen=True, eq=False)
class Trial:
    """The outcome of a request with changes.

    Attributes:
        job: the program laid out; None if it is refused.
        refusal: reason of the refusal, with a line for each problem; empty if there is a Job.
        priced: returns other costs and another System of the Job; None for its own.
    """

    job: Job | None
    refusal: str = ""
    priced: runs.Priced | None = None

    @property
    def accepted_job(self) -> Job:
        """The Job of a request that is not refused."""
        assert self.job is not None
        return self.job

    @property
    def fits(self) -> analysis.Fits | None:
        """The answer to whether the program fits its memory; None if it is refused."""
        return None if self.job is None else self.job.memory.fits

    @cached_property
    def timeline(self) -> Timeline:
        """The Timeline of the whole run; raises RequestError for a run that is too long."""
        job = self.accepted_job
        if self.priced is None:
            return runs.timeline_of(job, job.executions)
        return runs.timeline_of(job, job.executions, priced=self.priced)

    @cached_property
    def throughput(self) -> analysis.Throughput:
        """The rates of the whole run."""
        return analysis.throughput_of(self.timeline)

    @cached_property
    def waterfall(self) -> analysis.Waterfall:
        """The parts of the time of the whole run."""
        return runs.waterfall_of(self.accepted_job, self.timeline)

    @cached_property
    def parts_s(self) -> dict[timelines.TimePart, float]:
        """Seconds of each part of the time between two weight updates."""
        job = self.accepted_job
        per = job.executions * job.system.clock_hz
        return {part: cycles / per for part, cycles in self.waterfall.cycles.items()}

    @cached_property
    def cycles(self) -> int | None:
        """Cycles of the first execution with its weight update; None if the request is refused."""
        if self.job is None:
            return None
        two = runs.timeline_of(self.job, min(self.job.program.repeat_count, 2))
        return analysis.find_execution(two, 0).execution_cycles

    @property
    def period(self) -> Fraction:
        """Mean cycles from one weight update to the next, over the whole run with its host."""
        return Fraction(self.throughput.run_cycles, self.accepted_job.executions)

    @property
    def samples(self) -> int:
        """Samples behind a weight update."""
        program = self.accepted_job.program
        return program.micro_batch_size * program.shape.count * self.accepted_job.system.learners


def tried(request: Request, changes: Mapping[str, Any] | None = None) -> Trial:
    """Return the Trial of a request with changes of options; the first read of a time runs the program.

    Args:
        request: the request to change.
        changes: values of options by their dotted names; None unsets an option.

    Returns:
        The Trial, with a refusal in place of a Job if a rule of a schedule, or of Graphcore, refuses the changes.
    """
    try:
        return Trial(assemble(time_alone(request, changes, misfits=True)))
    except IpusimError as error:  # a rule's, or that of a schedule of one's own
        return Trial(None, str(error))


def time_alone(request: Request, changes: Mapping[str, Any] | None = None, *, misfits: bool = False) -> Request:
    """Return a request that takes the same time and computes nothing.

    Args:
        request: the request; functions of a program stay as they are.
        changes: values of options by their dotted names; None unsets an option.
        misfits: whether a program that does not fit is laid out, where memory is limited.

    Returns:
        The request with the changes.

    Raises:
        RequestError: for unknown names and invalid values.
    """
    changes = changes or {}
    alone = {} if request.functions is not None else _ALONE
    reported = {"memory": "report"} if misfits and is_limited(request, changes) else {}
    return changed(request, {**alone, **reported, **changes})


def changed(request: Request, changes: Mapping[str, Any]) -> Request:
    """Return ``request`` with other values for options by their dotted names; None takes one out.

    Raises RequestError for what is no option.
    """
    values = {name: value for name, value in changes.items() if value is not None}
    return request.replace(values, without=changes.keys() - values.keys())


def is_limited(request: Request, changes: Mapping[str, Any] | None = None) -> bool:
    """Tell whether the memory of a request with changes is limited, also if misfits are reported only."""
    changes, options = changes or {}, request.options
    memory = changes.get("memory", options.memory)
    machine = hardware.MACHINES.get(changes.get("system.name", options.system.name))
    return memory != "off" and (memory is not None or machine is None or not machine.free)
