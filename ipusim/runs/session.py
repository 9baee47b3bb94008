"""The arithmetic of a Job, which goes on from run to run: weights, results, and the hooks that watch them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from ipusim.machine.cross_replica import replicas_of
from ipusim.machine.executor import Replicas
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.machine.simulate import Progress, simulate
from ipusim.model.layers.layer import Array
from ipusim.runs.job import Job
from ipusim.timeline.timeline import Timeline


class Hook(Protocol):
    """What looks on while a Job runs: an evaluation, a checkpoint of the training, a reader of the outfeed.

    It may ask the session for its results and variables. Where there is no arithmetic it sees the end alone.
    """

    def before(self, session: Session, execution: int) -> None:
        """Look on at the beginning of an execution of the pipeline, which counts from 0 in each run."""

    def after(self, session: Session) -> None:
        """Look on at the end of a run."""


class Session:
    """The executors of a Job's replicas, None without arithmetic; a second run goes on where the first ended."""

    def __init__(self, job: Job) -> None:
        """Place the initial variables on their IPUs."""
        self.job = job
        self._executors: list[NumpyExecutor] = []
        self._together: Replicas | None = None
        self._hooks: Sequence[Hook] = ()
        if job.workload is None:
            return
        shape, replicas, outfeed = job.program.shape, job.system.replicas, job.program.outfeed
        self._executors = [
            NumpyExecutor(
                shape, job.workload(replica), replica, replicas, outfeed, _ignore if replica else self._before
            )
            for replica in range(replicas)
        ]
        self._together = replicas_of(self._executors, job.plan, job.program, job.system, job.costs)

    @property
    def computes(self) -> bool:
        """Whether there is arithmetic."""
        return self._together is not None

    @property
    def results(self) -> list[list[tuple[Any, ...]]]:
        """What each replica's outfeed has carried in this run so far, element by element."""
        return [executor.results for executor in self._executors]

    @property
    def not_finite(self) -> str:
        """What made the first value that is not finite, where that was in the first micro-batch; else empty."""
        return next((each.not_finite for each in self._executors if each.not_finite), "")

    def variables(self) -> dict[str, Array]:
        """Return copies of all variables as they are now, by name; of untrained ones those of the first replica."""
        if self._together is None:
            return {}
        self._together.gather_all()
        found = {name: array.copy() for name, array in self._executors[0].weights().items()}
        self._together.let_go_of_all()
        return found | {name: array.copy() for name, array in self._executors[0].untrained.items()}

    def run(
        self, executions: int | None = None, progress: Progress | None = None, hooks: Sequence[Hook] = ()
    ) -> Timeline:
        """Run that many executions, by default those of one step; return the Timeline.

        Raises MissingTensorError and DeadlockError as the machine does, and what hooks and functions raise.
        """
        for executor in self._executors:
            executor.results.clear()
        self._hooks = hooks
        job = self.job
        # One BLAS thread: the same bits on any number of cores, and no spinning over matrices of a few hundred rows.
        # A training that diverges is a result: its losses say so, and NumPy need not.
        alone = threadpool_limits(limits=1, user_api="blas") if self.computes else nullcontext()
        with alone, np.errstate(all="ignore"):
            timeline = simulate(
                job.plan,
                job.program,
                job.system,
                costs=job.costs,
                executor=self._together,
                executions=job.program.repeat_count if executions is None else executions,
                progress=progress,
            )
            for hook in hooks:
                hook.after(self)
        return timeline

    def _before(self, execution: int) -> None:
        for hook in self._hooks:
            hook.before(self, execution)


def _ignore(_: int) -> None:
    """Do nothing: the hooks look on once for all replicas."""
