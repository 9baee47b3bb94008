"""One plan tried: assembled by the one road, held against the memory, and simulated for an execution or two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from ipusim.api import Job, Request, analysis, assemble
from ipusim.app.fidelity.throughputs import session_cycles
from ipusim.app.suggest.baseline import changed, reported
from ipusim.base.errors import IpusimError


@dataclass(frozen=True, eq=False)
class Trial:
    """The simulated outcome of one plan.

    Attributes:
        job: it laid out; None where it is refused.
        refusal: why, in the words of the rule; empty otherwise.
        fits: the answer to whether the program fits its memory; None where it is refused.
        cycles: of the first execution with its weight update, by which plans are searched; None where it was not
            simulated.
        mean: of all executions of a session run, whose first alone waits for the host's first elements.
    """

    job: Job | None
    refusal: str = ""
    fits: analysis.Fits | None = None
    cycles: int | None = None
    mean: Fraction = Fraction(0)

    @property
    def accepted_job(self) -> Job:
        """The Job of a plan that is not refused."""
        assert self.job is not None
        return self.job

    @property
    def period(self) -> Fraction:
        """Cycles from one weight update to the next: with its part of what the host does between session runs."""
        return self.mean + host_part(self.accepted_job)

    @property
    def samples(self) -> int:
        """Samples behind a weight update."""
        program = self.accepted_job.program
        return program.micro_batch_size * program.shape.count * self.accepted_job.system.learners


def same_plan(one: Job | None, other: Job | None) -> bool:
    """Tell whether both are laid out, as the same plan at the same costs."""
    return one is not None and other is not None and one.plan == other.plan and one.costs == other.costs


def host_part(job: Job) -> Fraction:
    """Return the cycles that each weight update has of what the host does between session runs."""
    host = job.costs.host
    return host.state + Fraction(host.call, job.program.repeat_count)


def laid_out(request: Request) -> Trial:
    """Return a plan assembled, and whether it fits; not simulated."""
    try:
        job = assemble(changed(request, reported(request.options)))
    except IpusimError as error:  # a rule's, or that of a schedule of one's own
        return Trial(None, str(error))
    return tried(job)


def tried(job: Job) -> Trial:
    """Return a plan that was assembled, and whether it fits; not simulated."""
    return Trial(job, fits=job.memory.fits)


def simulated(trial: Trial) -> Trial:
    """Return ``trial`` with its cycles: those with which a run of the scenario begins, and their mean."""
    cycles, mean = session_cycles(trial.accepted_job)
    return replace(trial, cycles=cycles, mean=mean)
