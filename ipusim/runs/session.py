"""The arithmetic of a Job, which goes on from run to run: weights, results, and the hooks that watch them."""

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
from ipusim.model.functions.untrained import check_known, frozen, set_arrays
from ipusim.model.layers.layer import Array
from ipusim.pricing.exchanges import HostExchange
from ipusim.runs.assemble.limits import summable
from ipusim.runs.job import Job
from ipusim.runs.lost import loses, with_pauses
from ipusim.runs.time_alone import timeline_of
from ipusim.runs.titles import title_of
from ipusim.timeline.timeline import Timeline

#: Called with each element of the outfeed as soon as it is with the host: of each result an array, which begins with an
#: axis of the replicas where there are several.
Sink = Callable[[tuple[Array, ...]], object]


class SessionState(NamedTuple):
    """All that runs of a session go on from, but for the place in its data.

    Attributes:
        variables: the trained variables, by name; all replicas have the same.
        slots: of each stage the optimizer's own arrays, by name.
        untrained: of each replica the variables that no optimizer trains, by name.
        executions: of the pipeline so far, on which its random draws go on; None to leave them as they are.
    """

    variables: dict[str, Array]
    slots: tuple[dict[str, Array], ...] = ()
    untrained: tuple[dict[str, Array], ...] = ()
    executions: int | None = None


class Hook(Protocol):
    """An observer of a running Job: an evaluation, a checkpoint of the training.

    It may ask the session for its results and variables. Where there is no arithmetic it sees the end alone.
    """

    def before(self, session: Session, execution: int) -> None:
        """Observe the beginning of an execution of the pipeline, which counts from 0 in each run."""

    def after(self, session: Session) -> None:
        """Observe the end of a run."""


class Session:
    """The arithmetic of a Job's replicas, if it has any; a second run goes on where the first ended.

    Args:
        job: what is run.
        host: where the job is for several hosts, which of them this is.
        own_feed: whether each host has a feed of its own; else hosts take the elements of one in turn, as replicas do.
        summed: whether hosts sum up their gradients; else they average them.

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
        #: What hosts had done together before the last run.
        self.before: tuple[HostExchange, ...] = ()
        #: For how many cycles each execution of the last run has waited until all hosts were ready to sum up.
        self.late: list[int] = []
        self._executors: list[NumpyExecutor] = []
        self._together: Replicas | None = None
        self._hooks: Sequence[Hook] = ()
        self._sink: Sink | None = None
        self._handed_over = 0
        #: Of the pipeline, in all runs so far.
        self.executions = 0
        if job.workload is None:
            return
        shape, replicas, outfeed = job.program.shape, job.system.replicas, job.program.outfeed
        first, every = (0, replicas) if host is None or own_feed else (host.rank * replicas, host.count * replicas)
        self._executors = [
            NumpyExecutor(
                shape,
                job.workload(first + replica),
                first + replica,
                every,
                outfeed,
                _ignore if replica else self._before,
                self._hand_over,
            )
            for replica in range(replicas)
        ]
        self._together = replicas_of(
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
        """Whether there is arithmetic."""
        return self._together is not None

    @property
    def results(self) -> list[list[tuple[Any, ...]]]:
        """The elements that each replica's outfeed has carried in this run so far."""
        return [executor.results for executor in self._executors]

    @property
    def not_finite(self) -> str:
        """What made the first value that is not finite, where that was in the first micro-batch; else empty."""
        return next((executor.not_finite for executor in self._executors if executor.not_finite), "")

    def state(self) -> SessionState:
        """Return copies of the state that runs go on from, which a checkpoint of a training holds."""
        if self._together is None:
            return SessionState({}, (), ())
        first = self._executors[0]
        with self._together.all_gathered():
            return SessionState(
                {name: array.copy() for name, array in first.weights().items()},
                tuple({name: array.copy() for name, array in slots.items()} for slots in first.slots()),
                tuple(dict(executor.untrained) for executor in self._executors),
                self.executions,
            )

    def set_state(self, state: SessionState) -> None:
        """Go on from a state that :meth:`state` gave for a program of the same form.

        Args:
            state: variables, slots of the optimizer and position in the data; parts may be left out.

        Raises:
            ModelError: for unknown variables, or of another shape or type.
        """
        if self._together is None:
            return
        with self._together.all_gathered():
            for replica, executor in enumerate(self._executors):
                set_arrays(executor.weights(), state.variables)
                for own_slots, slots in zip(executor.slots(), state.slots, strict=False):
                    # an optimizer of the user's own may have made some in its first update, which is still to come
                    own_slots.update({name: slot.copy() for name, slot in slots.items() if name not in own_slots})
                    set_arrays(own_slots, slots)
                values = state.untrained[replica] if replica < len(state.untrained) else {}
                check_known(executor.untrained, values)
                executor.untrained.update((name, frozen(array)) for name, array in values.items())
        self.executions = self.executions if state.executions is None else state.executions

    @property
    def elements(self) -> int:
        """The elements of the feed that all runs so far have taken, over all replicas."""
        return self.executions * self.job.program.shape.micro_batches * self.job.system.replicas

    @property
    def stages(self) -> list[list[str]]:
        """The names of each stage's variables."""
        shape = self.job.program.shape
        return [list(self._executors[0].stages(ipu)[stage].parameters) for stage, ipu in enumerate(shape.mapping)]

    def set_variables(self, values: Mapping[str, Array]) -> None:
        """Set variables of all replicas, trained or not.

        Args:
            values: arrays by the variables' names, of the shapes and types that they have.

        Raises:
            ModelError: for unknown variables, or of another shape or type.
        """
        if self._executors:
            free = self._executors[0].untrained.keys()
            trained = {name: value for name, value in values.items() if name not in free}
            others = {name: value for name, value in values.items() if name in free}
            self.set_state(SessionState(trained, (), (others,) * len(self._executors)))

    def variables(self, names: Collection[str] | None = None) -> dict[str, Array]:
        """Return copies of variables as they are now.

        Args:
            names: of the variables; None for all.

        Returns:
            Arrays by name; of variables that no optimizer trains those of the first replica.
        """
        if self._together is None:
            return {}
        with self._together.all_gathered():
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

        Args:
            executions: how many, by default those of one step.
            progress: called with how many time-steps are done, and of how many.
            hooks: their ``before`` is called as each execution begins, their ``after`` at the end of the run.
            sink: called with each element of the outfeed, a tuple of arrays, as soon as the host has it.
            before: what hosts have done together since the last run; it is recorded at the beginning of this one.
            jump: whether a run without arithmetic that repeats itself may be simulated in part.

        Returns:
            The Timeline of the run.

        Raises:
            MissingTensorError: where an operation starts without its tensor, as the machine does.
            DeadlockError: where processes wait for what never happens.
            UnsupportedProgramError: for replicas that have learnt by themselves.

        What hooks and functions raise comes through.
        """
        for executor in self._executors:
            executor.results.clear()
            executor.executions = self.executions
        self._hooks, self._sink, self._handed_over = hooks, sink, 0
        self.before, self.late = tuple(before), []
        job = self.job
        count = job.program.repeat_count if executions is None else executions
        # One BLAS thread: the same bits on any number of cores, and no spinning over matrices of a few hundred rows.
        # A training that diverges is a result: its losses say so, and NumPy need not.
        alone = one_blas_thread() if self.computes else nullcontext()
        with alone, np.errstate(all="ignore"):
            timeline = self._simulated(count, progress, jump=jump)
            self.executions += count
            for hook in hooks:
                hook.after(self)
        if self._together is not None and len(self._executors) > 1 and not job.program.sums_gradients:
            with self._together.all_gathered():
                self._check_alike()
        return timeline.about(replace(timeline.info, title=title_of(job.request.description)))

    def _simulated(self, count: int, progress: Progress | None, *, jump: bool) -> Timeline:
        """Return the Timeline of so many executions, with the arithmetic where there is any."""
        job, together = self.job, self._on_time()
        between = {0: self.before} if self.before else job.between
        if self._together is None:
            return timeline_of(job, count, jump=jump, replicas=together, between=between, progress=progress)
        lost = loses(job.system)
        timeline = simulate(
            job.plan,
            job.program,
            with_pauses(job, job.costs, job.system, count, between) if lost else job.system,
            costs=job.costs,
            executor=together,
            executions=count,
            progress=progress,
            between=between,
        )
        return summable(timeline, job.system, job.costs)

    def _on_time(self) -> Replicas | None:
        """Return the arithmetic, which records how long hosts wait for each other, or the job's record of that."""
        together = self._together
        if together is None:
            return _late(self.job) if self.job.late else None

        def sum_up(ready: int) -> int:
            last = together.sum_over_hosts(ready)
            self.late.append(last - ready)
            return last

        return replace(together, sum_over_hosts=sum_up)

    def _check_alike(self) -> None:
        """Refuse replicas whose stages have let them learn other weights; raises UnsupportedProgramError."""
        first = self._executors[0].weights()
        for replica, executor in enumerate(self._executors[1:], 1):
            for name, array in executor.weights().items():
                if not np.array_equal(array, first[name], equal_nan=True):
                    raise UnsupportedProgramError(
                        f"replicas that learn by themselves are not simulated, and variable {name!r} of replica "
                        f"{replica} is another than that of replica 0: sum up its gradient over the replicas in every "
                        "stage that has it, or let the optimizer do it"
                    )

    def _before(self, execution: int) -> None:
        for hook in self._hooks:
            hook.before(self, execution)

    def _hand_over(self) -> None:
        """Hand the elements to the sink of which every replica's part has come."""
        if self._sink is None:
            return
        complete = min(len(executor.results) for executor in self._executors)
        while self._handed_over < complete:
            parts = [executor.results[self._handed_over] for executor in self._executors]
            self._handed_over += 1
            self._sink(parts[0] if len(parts) == 1 else tuple(map(np.stack, zip(*parts, strict=True))))


def _late(job: Job) -> Replicas:
    """Return replicas without arithmetic that wait for the other hosts as long as the Job says, execution by execution.

    Each simulation begins with the first execution's wait: a run that is simulated in part takes several simulations.
    """
    waits = iter(job.late)

    def begin() -> None:
        nonlocal waits
        waits = iter(job.late)

    executors = (NullExecutor(),) * job.system.replicas
    return Replicas(executors, begin=begin, sum_over_hosts=lambda ready: ready + next(waits, 0))


def _ignore(_: int) -> None:
    """Do nothing: hooks observe once for all replicas."""
