"""From a Job to a Run."""

from __future__ import annotations

from collections.abc import Sequence

from ipusim.analysis.learning import Learning, received
from ipusim.analysis.orders import order_reports
from ipusim.analysis.summary import summarise
from ipusim.machine.simulate import Progress
from ipusim.runs.evaluation import Evaluations
from ipusim.runs.job import Job
from ipusim.runs.run import Run
from ipusim.runs.session import Hook, Session
from ipusim.timeline.timeline import Timeline


def execute(job: Job, progress: Progress | None = None, hooks: Sequence[Hook] = ()) -> Run:
    """Run all steps of a Job and sum them up; ``hooks`` look on.

    Raises MissingTensorError and DeadlockError as the machine does, and what the request's own functions raise.
    """
    session = Session(job)
    evaluations = [Evaluations(job.held_out)] if job.held_out is not None else []
    timeline = session.run(job.executions, progress, (*evaluations, *hooks))
    learning = None
    if session.computes:
        losses, outputs = received(job.program, session.results)
        learning = Learning(
            losses=losses,
            outputs=outputs,
            weights=session.variables(),
            evaluations=tuple(found for each in evaluations for found in each.found),
            constant_loss=job.constant_loss,
            not_finite=session.not_finite,
        )
    return sum_up(job, timeline, learning)


def sum_up(job: Job, timeline: Timeline, learning: Learning | None) -> Run:
    """Return the Run of a Job of which the Timeline, and what its arithmetic gave, are there."""
    orders = order_reports(job.plan, job.program, job.system, job.costs)
    summary = summarise(
        timeline,
        program=job.program,
        system=job.system,
        costs=job.costs,
        fit=job.memory,
        orders=orders,
        learning=learning,
        description=job.request.description,
        notes=(*job.notes, *filter(None, [learning.warning if learning else ""])),
        steps=job.steps,
    )
    return Run(job, timeline, summary, learning)
