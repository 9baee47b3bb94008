"""Try changed requests: lay them out and simulate only their time, or keep their refusals.

Time does not depend on data, hence trials do no arithmetic. Programs too large for their memory are laid out and run
too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

from ipusim.api import Job, Request, Timeline, analysis, assemble, hardware, runs, timelines
from ipusim.base.errors import IpusimError

#: Changes that remove a request's arithmetic.
_NO_NUMERICS: Final = {"numerics": "off", "evaluate": None, "expect": None}
#: Override of a scenario file that removes arithmetic; problems keep their places in the file.
WITHOUT_ARITHMETIC: Final = "numerics=off"
#: Override of a scenario file that lays out programs too large for their memory.
ALLOW_OVERSIZED: Final = "memory=report"


@dataclass(frozen=True, eq=False)
class Trial:
    """Outcome of a request with changes.

    Attributes:
        job: laid out program; None if refused.
        refusal: reasons of the refusal, a line per problem; empty with a Job.
        price: function that returns other costs and another System for the Job; None to keep costs and System.
        run_cycles: cycles of the whole run if computed without event simulation, else None.
    """

    job: Job | None
    refusal: str = ""
    price: runs.PriceFunction | None = None
    run_cycles: int | None = None

    @property
    def accepted_job(self) -> Job:
        """Job of an accepted request."""
        assert self.job is not None
        return self.job

    @property
    def fits(self) -> analysis.Fits | None:
        """Whether the program fits its memory; None if refused."""
        return None if self.job is None else self.job.memory.fits

    @cached_property
    def timeline(self) -> Timeline:
        """Timeline of the whole run; raises RequestError if the run is too long."""
        job = self.accepted_job
        if self.price is None:
            return runs.timeline_of(job, job.executions)
        return runs.timeline_of(job, job.executions, price=self.price)

    @cached_property
    def throughput(self) -> analysis.Throughput:
        """Rates of the whole run."""
        return analysis.throughput_of(self.timeline)

    @cached_property
    def waterfall(self) -> analysis.Waterfall:
        """Parts of the whole run's time."""
        return runs.waterfall_of(self.accepted_job, self.timeline if self.run_cycles is None else self.run_cycles)

    @cached_property
    def parts_s(self) -> dict[timelines.TimePart, float]:
        """Seconds of each part of the time between two weight updates."""
        job = self.accepted_job
        cycles_of_second = job.executions * job.system.clock_hz  # summed over all executions
        return {part: cycles / cycles_of_second for part, cycles in self.waterfall.cycles.items()}

    @cached_property
    def cycles(self) -> int | None:
        """Cycles of the first execution with its weight update; None if refused."""
        if self.job is None:
            return None
        timeline = runs.timeline_of(self.job, min(self.job.program.repeat_count, 2))
        return analysis.find_execution(timeline, 0).execution_cycles

    @property
    def period(self) -> Fraction:
        """Mean cycles between weight updates, over the whole run with its host."""
        return Fraction(self.throughput.run_cycles, self.accepted_job.executions)

    @property
    def samples(self) -> int:
        """Samples per weight update."""
        program = self.accepted_job.program
        return program.micro_batch_size * program.shape.count * self.accepted_job.system.learners


def try_request(request: Request, changes: Mapping[str, Any] | None = None) -> Trial:
    """Return the Trial of a request with changed options; reading a time runs the program.

    Args:
        request: the request to change.
        changes: values of options by their dotted names; None unsets an option.

    Returns:
        The Trial, with a refusal in place of a Job if a rule of a schedule, or of Graphcore, refuses the changes.
    """
    try:
        return Trial(assemble(time_alone(request, changes, allow_oversized=True)))
    except IpusimError as error:  # a rule of ipusim or of a user's schedule
        return Trial(None, str(error))


def time_alone(request: Request, changes: Mapping[str, Any] | None = None, *, allow_oversized: bool = False) -> Request:
    """Return a request with the same time and no arithmetic.

    Args:
        request: the request; functions of a program stay unchanged.
        changes: values of options by their dotted names; None unsets an option.
        allow_oversized: whether to lay out programs that exceed a limited memory.

    Returns:
        The changed request.

    Raises:
        RequestError: for unknown names and invalid values.
    """
    changes = changes or {}
    no_numerics = {} if request.functions is not None else _NO_NUMERICS
    memory_option = {"memory": "report"} if allow_oversized and is_limited(request, changes) else {}
    return change_request(request, {**no_numerics, **memory_option, **changes})


def change_request(request: Request, changes: Mapping[str, Any]) -> Request:
    """Return ``request`` with changed options by dotted name; None removes an option.

    Raises RequestError for an unknown option.
    """
    values = {name: value for name, value in changes.items() if value is not None}
    return request.replace(values, without=changes.keys() - values.keys())


def is_limited(request: Request, changes: Mapping[str, Any] | None = None) -> bool:
    """Return whether a changed request has limited memory, even if programs too large for it are only reported."""
    changes, options = changes or {}, request.options
    memory = changes.get("memory", options.memory)
    machine = hardware.MACHINES.get(changes.get("system.name", options.system.name))
    return memory != "off" and (memory is not None or machine is None or not machine.free)
