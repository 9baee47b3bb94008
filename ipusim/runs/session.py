"""Run a Job several times in a session: weights and optimizer state continue from run to run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from ipusim.base.errors import UnsupportedProgramError
from ipusim.machine.cross_replica import replicas_of
from ipusim.machine.executor import NullExecutor, Replicas
from ipusim.machine.hosts import Host
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.machine.one_thread import one_blas_thread
from ipusim.machine.simulate import Progress, simulate
from ipusim.model.functions.untrained import check_known, read_only_copy, set_arrays
from ipusim.model.layers.layer import Array
from ipusim.pricing.exchanges import HostExchange
from ipusim.runs.assemble.limits import check_sums
from ipusim.runs.job import Job
from ipusim.runs.lost import loses, with_pauses
from ipusim.runs.time_alone import timeline_of
from ipusim.runs.titles import title_of
from ipusim.timeline.timeline import Timeline

#: Called with each element of the outfeed on arrival at the host: an array for each result, with a leading axis for
#: several replicas.
Sink = Callable[[tuple[Array, ...]], object]


class SessionState(NamedTuple):
    """State of a session between runs, except for the position in its data.

    Attributes:
        variables: trained variables by name, equal on all replicas.
        slots: optimizer's arrays of each stage, by name.
        untrained: variables of each replica that no optimizer trains, by name.
        executions: executions of the pipeline so far, the position of random draws; None to leave them unchanged.
    """

    variables: dict[str, Array]
    slots: tuple[dict[str, Array], ...] = ()
    untrained: tuple[dict[str, Array], ...] = ()
    executions: int | None = None


class Hook(Protocol):
    """Observer of a running Job, such as an evaluation or a training checkpoint.

    A hook may read the session's results and variables. Without arithmetic, only ``after`` is called.
    """

    def before(self, session: Session, execution: int) -> None:
        """Observe the beginning of a pipeline execution, counted from 0 in each run."""

    def after(self, session: Session) -> None:
        """Observe the end of a run."""


class Session:
    """A Job that runs several times; if it has arithmetic, each run continues from the state of the previous run.

    Args:
        job: Job to run.
        host: this host, for a Job on several hosts.
        own_feed: whether each host has a separate feed; otherwise hosts take turns on the elements, as replicas do.
        summed: whether hosts sum gradients; otherwise hosts average them.

    Example:
        >>> from ipusim.api import Request, Session, assemble
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> session = Session(assemble(Request.from_dict(options)))
        >>> len(session.run()), session.computes, session.executions
        (22, False, 1)
    """

    def __init__(self, job: Job, host: Host | None = None, *, own_feed: bool = False, summed: bool = False) -> None:
        """Put the initial variables on their IPUs."""
        self.job = job
        #: Joint work of hosts before the last run.
        self.before: tuple[HostExchange, ...] = ()
        #: Cycles that each execution of the last run waited for all hosts to be ready to sum.
        self.late: list[int] = []
        self._executors: list[NumpyExecutor] = []
        self._replicas: Replicas | None = None
        self._hooks: Sequence[Hook] = ()
        self._sink: Sink | None = None
        self._handed_over_count = 0
        #: Number of executions of the pipeline over all runs.
        self.executions = 0
        if job.workload is None:
            return
        shape, replicas, outfeed = job.program.shape, job.system.replicas, job.program.outfeed
        first_replica, total = (
            (0, replicas) if host is None or own_feed else (host.rank * replicas, host.count * replicas)
        )
        self._executors = [
            NumpyExecutor(
                shape,
                job.workload(first_replica + replica),
                first_replica + replica,
                total,
                outfeed,
                _ignore if replica else self._observe_begin,
                self._hand_over,
            )
            for replica in range(replicas)
        ]
        self._replicas = replicas_of(
            self._executors,
            job.plan,
            job.program,
            job.system,
            job.costs,
            host,
            averaged=not summed,
            as_replicas=not own_feed,
        )

    @property
    def computes(self) -> bool:
        """Whether the Job has arithmetic."""
        return self._replicas is not None

    @property
    def results(self) -> list[list[tuple[Any, ...]]]:
        """Elements of each replica's outfeed in this run so far."""
        return [executor.results for executor in self._executors]

    @property
    def not_finite(self) -> str:
        """Cause of the first value that is not finite, searched in the first micro-batch; empty if all are finite."""
        return next((executor.not_finite for executor in self._executors if executor.not_finite), "")

    def state(self) -> SessionState:
        """Return copies of the state that runs continue from, for a checkpoint."""
        if self._replicas is None:
            return SessionState({}, (), ())
        first = self._executors[0]
        with self._replicas.all_gathered():
            return SessionState(
                {name: array.copy() for name, array in first.weights().items()},
                tuple({name: array.copy() for name, array in slots.items()} for slots in first.slots()),
                tuple(dict(executor.untrained) for executor in self._executors),
                self.executions,
            )

    def set_state(self, state: SessionState) -> None:
        """Continue from a state returned by :meth:`state` for a program of the same form.

        Args:
            state: variables, slots of the optimizer and position in the data; parts may be left out.

        Raises:
            ModelError: for unknown variables, or variables of another shape or type.
        """
        if self._replicas is None:
            return
        with self._replicas.all_gathered():
            for replica, executor in enumerate(self._executors):
                set_arrays(executor.weights(), state.variables)
                for own_slots, slots in zip(executor.slots(), state.slots, strict=False):
                    # a user's optimizer may create slots only in its first update, which has not happened yet
                    own_slots.update({name: slot.copy() for name, slot in slots.items() if name not in own_slots})
                    set_arrays(own_slots, slots)
                values = state.untrained[replica] if replica < len(state.untrained) else {}
                check_known(executor.untrained, values)
                executor.untrained.update((name, read_only_copy(array)) for name, array in values.items())
        self.executions = self.executions if state.executions is None else state.executions

    @property
    def elements(self) -> int:
        """Number of feed elements taken in all runs so far, over all replicas."""
        return self.executions * self.job.program.shape.micro_batches * self.job.system.replicas

    @property
    def stages(self) -> list[list[str]]:
        """Names of each stage's variables."""
        shape = self.job.program.shape
        return [list(self._executors[0].stages(ipu)[stage].parameters) for stage, ipu in enumerate(shape.mapping)]

    def set_variables(self, values: Mapping[str, Array]) -> None:
        """Set variables of all replicas, trained or not.

        Args:
            values: arrays by variable name, of unchanged shapes and types.

        Raises:
            ModelError: for unknown variables, or variables of another shape or type.
        """
        if self._executors:
            untrained_names = self._executors[0].untrained.keys()
            weights = {name: value for name, value in values.items() if name not in untrained_names}
            state = {name: value for name, value in values.items() if name in untrained_names}
            self.set_state(SessionState(weights, (), (state,) * len(self._executors)))

    def variables(self, names: Collection[str] | None = None) -> dict[str, Array]:
        """Return copies of the current variables.

        Args:
            names: names of the variables; None for all variables.

        Returns:
            Arrays by name; untrained variables are those of the first replica.
        """
        if self._replicas is None:
            return {}
        with self._replicas.all_gathered():
            arrays = self._executors[0].weights() | self._executors[0].untrained
            return {name: array.copy() for name, array in arrays.items() if names is None or name in names}

    def run(
        self,
        executions: int | None = None,
        progress: Progress | None = None,
        hooks: Sequence[Hook] = (),
        sink: Sink | None = None,
        before: Sequence[HostExchange] = (),
        *,
        jump: bool = True,
    ) -> Timeline:
        """Run the pipeline.

        Exceptions of hooks and functions are passed on.

        Args:
            executions: number of executions, by default the repeat count of a step.
            progress: called with the number of finished time-steps and the total number.
            hooks: ``before`` is called as each execution begins, ``after`` at the end of the run.
            sink: called with each element of the outfeed, a tuple of arrays, on arrival at the host.
            before: joint work of hosts since the last run, recorded at the beginning of this run.
            jump: whether a timing-only run skips micro-batches and executions whose timing repeats.

        Returns:
            Timeline of the run.

        Raises:
            MissingTensorError: if an operation starts without its tensor.
            DeadlockError: if processes wait for events that never happen.
            UnsupportedProgramError: for replicas that have learnt independently.
        """
        for executor in self._executors:
            executor.results.clear()
            executor.executions = self.executions
        self._hooks, self._sink, self._handed_over_count = hooks, sink, 0
        self.before, self.late = tuple(before), []
        job = self.job
        count = job.program.repeat_count if executions is None else executions
        # One BLAS thread gives equal bits on any number of cores; several threads would spin over small matrices.
        # Diverging training is a valid result that its losses show, so NumPy's warnings are switched off.
        one_thread = one_blas_thread() if self.computes else nullcontext()
        with one_thread, np.errstate(all="ignore"):
            timeline = self._simulate(count, progress, jump=jump)
            self.executions += count
            for hook in hooks:
                hook.after(self)
        if self._replicas is not None and len(self._executors) > 1 and not job.program.sums_gradients:
            with self._replicas.all_gathered():
                self._check_equal_weights()
        return timeline.with_info(replace(timeline.info, title=title_of(job.request.description)))

    def _simulate(self, count: int, progress: Progress | None, *, jump: bool) -> Timeline:
        """Return the Timeline of ``count`` executions, with arithmetic if the Job has arithmetic."""
        job, replicas = self.job, self._replicas_for_run()
        between = {0: self.before} if self.before else job.between
        if self._replicas is None:
            return timeline_of(job, count, jump=jump, replicas=replicas, between=between, progress=progress)
        has_losses = loses(job.system)
        timeline = simulate(
            job.plan,
            job.program,
            with_pauses(job, job.costs, job.system, count, between) if has_losses else job.system,
            costs=job.costs,
            executor=replicas,
            executions=count,
            progress=progress,
            between=between,
        )
        return check_sums(timeline, job.system, job.costs)

    def _replicas_for_run(self) -> Replicas | None:
        """Return the arithmetic, extended to record this host's waits for other hosts before sums.

        For a timing-only Job, return replicas that repeat the waits recorded in the Job.
        """
        replicas = self._replicas
        if replicas is None:
            return _replicas_with_waits(self.job) if self.job.late else None

        def sum_up(ready: int) -> int:
            last = replicas.sum_over_hosts(ready)
            self.late.append(last - ready)
            return last

        return replace(replicas, sum_over_hosts=sum_up)

    def _check_equal_weights(self) -> None:
        """Raise UnsupportedProgramError for replicas with different weights."""
        first = self._executors[0].weights()
        for replica, executor in enumerate(self._executors[1:], 1):
            for name, array in executor.weights().items():
                if not np.array_equal(array, first[name], equal_nan=True):
                    raise UnsupportedProgramError(
                        f"replicas with separate training are not simulated, and variable {name!r} of replica "
                        f"{replica} differs from the variable of replica 0: sum its gradient over the replicas in "
                        "every stage with the variable, or in the optimizer"
                    )

    def _observe_begin(self, execution: int) -> None:
        for hook in self._hooks:
            hook.before(self, execution)

    def _hand_over(self) -> None:
        """Pass elements to the sink once all replicas' parts have arrived."""
        if self._sink is None:
            return
        complete = min(len(executor.results) for executor in self._executors)
        while self._handed_over_count < complete:
            parts = [executor.results[self._handed_over_count] for executor in self._executors]
            self._handed_over_count += 1
            self._sink(parts[0] if len(parts) == 1 else tuple(map(np.stack, zip(*parts, strict=True))))


def _replicas_with_waits(job: Job) -> Replicas:
    """Return timing-only replicas that repeat the recorded waits for other hosts.

    The search for a shorter run that repeats simulates several; each of them starts with the first execution's wait.
    """
    waits = iter(job.late)

    def begin() -> None:
        nonlocal waits
        waits = iter(job.late)

    executors = (NullExecutor(),) * job.system.replicas
    return Replicas(executors, begin=begin, sum_over_hosts=lambda ready: ready + next(waits, 0))


def _ignore(_: int) -> None:
    """Do nothing: hooks observe once for all replicas."""
