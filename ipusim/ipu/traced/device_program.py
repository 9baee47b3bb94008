"""A traced step as a program of the machine, which goes on from the values that TensorFlow's variables have."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from ipusim.api import (
    Array,
    Request,
    Session,
    Timeline,
    analysis,
    machine,
    models,
    pipelines,
    pricing,
    rules,
    schedules,
)
from ipusim.base.errors import ProgramStateError, UnsupportedProgramError
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.graph.cut import cut
from ipusim.ipu.graph.enqueued import enqueued_of
from ipusim.ipu.graph.executable import Invocation
from ipusim.ipu.graph.kernels.normalisation import BATCH_NORMS, GROUP
from ipusim.ipu.graph.node import Output, Variable, with_attribute
from ipusim.ipu.graph.traced_functions import StepFunctions
from ipusim.ipu.graph.traced_step import TracedStep
from ipusim.ipu.runtime.host_strategy import Distribution, distribution, variables_on_host
from ipusim.ipu.runtime.program_request import STATISTICS_GROUP, placed_job, validated
from ipusim.ipu.runtime.recording import recorder
from ipusim.ipu.traced.queues import Infeed, Outfeed
from ipusim.ipu.traced.sessions import EagerHost, RunningSession

#: Last runs of programs in each session, since they were asked for.
_RUNS: Final[WeakKeyDictionary[Any, deque[tuple[str, Timeline]]]] = WeakKeyDictionary()
#: Most runs that are kept where nobody asks for them.
_KEPT: Final = 64
#: Accumulators in the dtype of their variables.
_OWN: Final[Mapping[str, np.dtype[Any]]] = {}


def events_of(session: Any) -> list[str]:
    """Return the runs of programs in a session as events, each a JSON text, and forget them."""
    return [
        json.dumps({"type": "EXECUTE", "module_name": name, "execution_report": _report(timeline)})
        for name, timeline in _RUNS.pop(session, ())
    ]


def _report(timeline: Timeline) -> str:
    return json.dumps(analysis.run_times_of(timeline).times_dict())


@dataclass(eq=False)
class PlacedProgram:
    """A program on the machine for one of TensorFlow's sessions.

    Attributes:
        key: the options of its request, and the shapes of the external and carried values.
        session: the machine's session.
        constants: values of external tensors, set anew in each run.
        elements: pulled elements in stock.
        taken: number of pulled elements.
    """

    key: Any
    session: Session
    constants: dict[Output, Any]
    elements: dict[int, Sequence[Array]] = field(default_factory=dict)
    taken: int = 0


class DeviceProgram:
    """A program of a traced step.

    Attributes:
        name: its name.
        step: the step.
        outside: external tensors of the step.
        carried: shared names of variables that exist in the program alone: values of a loop.
        pipelined: whether it is one of named stages, not a loop.
        timelines: Timeline of the last run of each session.
        timeline: Timeline of the last run; None before the first.
    """

    def __init__(
        self,
        name: str,
        step: TracedStep,
        options: Callable[[], Mapping[str, Any]],
        *,
        infeed: Infeed | None = None,
        outfeed: Outfeed | None = None,
        sent: pipelines.Outfeed,
        reduction: models.Reduction = "SUM",
        outside: Sequence[Output] = (),
        carried: Sequence[str] = (),
        accumulators: Mapping[str, np.dtype[Any]] = _OWN,
        shown: Sequence[str] = (),
        summed: Collection[str] = (),
        config: IPUConfig | None = None,
    ) -> None:
        """Take the step.

        Args:
            name: name of the program.
            step: the traced step.
            options: returns the options of the request, by the keys of a scenario, when the program is placed.
            infeed: queue that the first stage takes elements of.
            outfeed: queue that the last stage sends to.
            sent: results that are sent.
            reduction: how gradients are accumulated.
            outside: external tensors of the step.
            carried: shared names of variables that exist in the program alone: values of a loop.
            accumulators: dtype of a variable's gradient accumulator by shared name, if it is not the variable's own.
            shown: name of each stage in pictures; a name that several stages have, or none, stands for the stage's own.
            summed: shared names of variables to which all replicas' changes are added; of others those of replica 0.
            config: the program's own configuration; None for the one in effect.
        """
        self._accumulators, self._config = accumulators, config
        self.pipelined = bool(shown)
        self._shown = [name if list(shown).count(name) == 1 else "" for name in shown]
        self.name, self.step, self.outside, self.carried = name, step, tuple(outside), tuple(carried)
        self._options, self._infeed, self._outfeed = options, infeed, outfeed
        self._sent, self._reduction, self._summed = sent, reduction, frozenset(summed)
        self._host, self._distribution = machine.this_host(), distribution()
        self._on_host = variables_on_host()
        nodes = step.graph.nodes
        sending = {name: item for name in nodes if (item := enqueued_of(nodes[name])) is not None}
        of_update = [item.queue for name, item in sending.items() if name in step.update_nodes]
        self._sends_in_update = bool(of_update)
        #: Queues that learn how many replicas send to them.
        self._queues = [] if outfeed is None else [outfeed]
        self._queues += [*(item.queue for name, item in sending.items() if name in step.trace.owners), *of_update]
        #: Numbers of the tensors of an element that the first stage takes, or hands on.
        self._taken = [tensor.number for tensor in cut(step.trace)[0].takes]
        self._placed: WeakKeyDictionary[Any, PlacedProgram] = WeakKeyDictionary()
        self.timelines: WeakKeyDictionary[Any, Timeline] = WeakKeyDictionary()
        self.timeline: Timeline | None = None
        self._recorder = recorder()
        if self._recorder is not None:
            self._recorder.laid_out += 1

    @property
    def summary(self) -> analysis.RunTimes:
        """The times of the last run; raises ProgramStateError before the first."""
        if self.timeline is None:
            raise ProgramStateError(f"the program {self.name!r} has not run")
        return analysis.run_times_of(self.timeline)

    def run(
        self,
        invocation: Invocation,
        running: RunningSession | EagerHost,
        values: Sequence[Any],
        executions: int | None = None,
        begun: int | None = None,
    ) -> list[Any]:
        """Run the program once, and assign the variables that it has changed.

        Args:
            invocation: the values of TensorFlow's variables.
            running: the session that runs it.
            values: values of the tensors of :attr:`outside`, then values of the carried variables.
            executions: executions of the program, by default as many as its options say.
            begun: executions before this run, on which random draws go on; by default those of this program.

        Returns:
            The values of the carried variables behind the run.
        """
        outer = values[: len(self.outside)]
        own = zip(self.carried, values[len(self.outside) :], strict=True)
        variables = {**invocation.variables, **{name: Variable(name, np.array(value)) for name, value in own}}
        if self._infeed is not None:
            self._infeed.connect(running)
        options = self._options_on_hosts(executions)
        placed, key = self._placed.get(running.session), (options, tuple(map(np.shape, values)))
        if placed is None or placed.key != key:
            before, placed = placed, self._place(key, options, variables, outer)
            if before is not None:  # draws and elements go on
                placed.session.set_state(placed.session.state()._replace(executions=before.session.executions))
                placed.taken = placed.session.elements
            if self._infeed is not None:
                self._infeed.replicate(self, placed.session.job.system.replicas)
            self._placed[running.session] = placed
        placed.constants.update(zip(self.outside, outer, strict=True))
        session = placed.session
        updated = self._take(variables, session, begun)
        if begun is not None:
            placed.taken = session.elements
        self._begin_alike(session)
        owed = () if self._host is None else self._host.settle()
        if self._on_host and updated:
            owed = (*owed, *pricing.handed_out(updated))
        sink = None if self._outfeed is None else lambda element: self._hand_over(running, element)
        with self._receiving(running.session, session.job.system.replicas):
            timeline = session.run(sink=sink, before=owed)
        self.timeline = self.timelines[running.session] = timeline
        active = recorder() or self._recorder
        if active is not None:
            active.note(session, timeline)
        _RUNS.setdefault(running.session, deque(maxlen=_KEPT)).append((self.name, timeline))
        self._assign(variables, session)
        return [variables[name].value for name in self.carried]

    @contextmanager
    def _receiving(self, session: Any, replicas: int) -> Iterator[None]:
        """Take what passes and updates enqueue by themselves in the block."""
        if replicas > 1 and self._sends_in_update:
            raise UnsupportedProgramError(
                f"enqueue: expected one replica where apply_gradients sends to an outfeed queue, got {replicas}"
            )
        for queue in self._queues:
            queue.receive(session, replicas)
        try:
            yield
        finally:
            for queue in self._queues:
                queue.receive(None, 1)

    def _hand_over(self, running: RunningSession | EagerHost, element: tuple[Array, ...]) -> None:
        assert self._outfeed is not None
        self._outfeed.add(running.session, element)

    def _begin_alike(self, session: Session) -> None:
        """Take the first host's variables, before the first run of a program that trains on several."""
        hosts = self._distribution
        if hosts is None or session.executions or not session.job.plan.shape.training:
            return
        name = f"the first variables of the program {self.name!r}"
        session.set_variables(machine.broadcast_all(hosts.host, name, session.variables()))

    def _take(self, variables: Mapping[str, Variable], session: Session, begun: int | None) -> int:
        """Take the values of the host's variables, and the number of executions before; None leaves the session's.

        Returns:
            Bytes of untrained variables that the host has changed.
        """
        state = session.state()
        known = {name: np.asarray(variable.value) for name, variable in variables.items()}
        # Replicas go on from untrained values of their own; the host sees those of the first replica, or sums of them.
        changed = {
            name: known[name]
            for name, old in state.untrained[0].items()
            if name in self._summed or not _same(old, known[name])
        }
        session.set_state(
            state._replace(
                variables={name: known[name] for name in state.variables},
                slots=tuple({name: known[name] for name in slots} for slots in state.slots),
                untrained=tuple({**values, **changed} for values in state.untrained),
                executions=begun,
            )
        )
        return sum(value.nbytes for value in changed.values())

    def _assign(self, variables: Mapping[str, Variable], session: Session) -> None:
        """Assign the changed variables."""
        state = session.state()
        values: dict[str, Array] = dict(state.variables)
        for slots in state.slots:
            values |= slots
        values |= state.untrained[0]
        for name in self._summed.intersection(values) if len(state.untrained) > 1 else ():
            before = np.asarray(variables[name].value)
            changes = sum(each[name] - before for each in state.untrained)
            values[name] = (before + changes).astype(before.dtype)
        for name, value in values.items():
            if not _same(value, variables[name].value):
                variables[name].assign(np.asarray(value))

    def _place(
        self, key: Any, asked: dict[str, Any], variables: Mapping[str, Variable], values: Sequence[Any]
    ) -> PlacedProgram:
        """Return the program on the machine."""
        constants: dict[Output, Any] = dict(zip(self.outside, values, strict=True))
        options = validated(asked)
        group = asked.get(STATISTICS_GROUP, 1)
        functions = StepFunctions(
            self.name,
            _normalised_in_groups(self.step, group),
            {name: np.asarray(variable.value) for name, variable in variables.items()},
            lambda index: self._element(program, index),
            self._reduction,
            self._sent,
            self._accumulators,
            constants,
            () if self._infeed is None else self._of_element(self._infeed.zeros()),
            self._shown,
            from_checkpoints=_recomputes_inside(options.pipeline),
        )
        request = Request(options, name=self.name, functions=functions)
        job = placed_job(request, self._config, () if self._outfeed is None else self._outfeed.notes)
        of = self._distribution
        session = Session(job) if of is None else Session(job, of.host, own_feed=True, summed=not of.averaged)
        program = PlacedProgram(key, session, constants)
        return program

    def _options_on_hosts(self, executions: int | None) -> dict[str, Any]:
        """Return the options of the request, with a run's number of executions and the hosts that train together."""
        options = dict(self._options())
        if executions is not None:
            options["pipeline"] = {**options.get("pipeline", {}), "repeat_count": executions}
        system = options["system"]
        known = system.get("host") or {}
        if self._distribution is None and self._host is not None and known.get("count", 1) > 1:
            self._distribution = Distribution(self._host, over_links=True)  # as the configuration says
        if self._distribution is not None:
            options["system"] = {**system, "host": {**known, **self._distribution.options()}}
        return options

    def _of_element(self, values: Sequence[Array]) -> tuple[Array, ...]:
        """Return what the first stage takes of an element."""
        return tuple(values[number] for number in self._taken)

    def _element(self, placed: PlacedProgram, index: int) -> Sequence[Array]:
        """Return an element of the infeed by its number in the session; elements are pulled in order."""
        if self._infeed is None:
            return ()
        while placed.taken <= index:
            placed.elements[placed.taken] = self._of_element(self._infeed.pull())
            placed.taken += 1
        return placed.elements.pop(index)


def _same(one: Array, other: Array) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _normalised_in_groups(step: TracedStep, group: int) -> TracedStep:
    """Return a step whose batch normalisations take their statistics of so many replicas together."""
    if group == 1:
        return step
    return replace(step, trace=replace(step.trace, graph=with_attribute(step.graph, BATCH_NORMS, GROUP, group)))


def _recomputes_inside(pipeline: Any) -> bool:
    """Tell whether backward passes compute activations again, by the options of a pipeline."""
    modes = schedules.find(pipeline.schedule).recomputation_modes
    mode = modes[0] if pipeline.recomputation_mode == "Auto" and modes else pipeline.recomputation_mode
    return bool(pipeline.allow_recompute and mode == rules.INTERLEAVED)
