"""Run a traced step as a program of the simulated machine, from the values of TensorFlow's variables."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
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
from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.graph.cut import cut_stages
from ipusim.ipu.graph.enqueued import EnqueueItem
from ipusim.ipu.graph.executable import Invocation
from ipusim.ipu.graph.kernels.normalisation import BATCH_NORMS, GROUP
from ipusim.ipu.graph.node import Output, Variable, with_attribute
from ipusim.ipu.graph.registry import value_of
from ipusim.ipu.graph.traced_functions import StepFunctions
from ipusim.ipu.graph.traced_step import TracedStep
from ipusim.ipu.runtime.host_strategy import Distribution, distribution, variables_on_host
from ipusim.ipu.runtime.program_request import STATISTICS_GROUP, placed_job, validate_options
from ipusim.ipu.runtime.recording import recorder
from ipusim.ipu.traced.queues import Infeed, Outfeed
from ipusim.ipu.traced.sessions import EagerHost, RunningSession

#: Name and Timeline of every program run, by session, until :func:`events_of` returns the runs.
_RUNS: Final[WeakKeyDictionary[Any, deque[tuple[str, Timeline]]]] = WeakKeyDictionary()
#: Maximum number of kept runs per session; older runs are dropped.
_MAX_KEPT_RUNS: Final = 64
#: Default: all gradient accumulators have the dtype of their variable.
_NO_OTHER_DTYPES: Final[Mapping[str, np.dtype[Any]]] = {}


def events_of(session: Any) -> list[str]:
    """Return a session's program runs as JSON events, and forget the runs."""
    return [
        json.dumps(
            {
                "type": "EXECUTE",
                "module_name": name,
                "execution_report": json.dumps(analysis.run_times_of(timeline).times_dict()),
            }
        )
        for name, timeline in _RUNS.pop(session, ())
    ]


@dataclass(eq=False)
class PlacedProgram:
    """A program on the machine for one TensorFlow session.

    Attributes:
        key: request options, and shapes of external and carried values.
        session: the machine's session.
        constants: values of external tensors, replaced on every run.
        elements: elements pulled from the infeed and not yet used, by number.
        pull_count: number of pulled elements.
    """

    key: Any
    session: Session
    constants: dict[Output, Any]
    elements: dict[int, Sequence[Array]] = field(default_factory=dict)
    pull_count: int = 0


class DeviceProgram:
    """A program for a traced step.

    Attributes:
        name: name of the program.
        step: the step.
        outside: tensors from outside the step.
        carried: shared names of variables for loop values, which exist only in the program.
        pipelined: whether the program is a pipeline of named stages rather than a loop.
        timelines: Timeline of the last run per session.
    """

    def __init__(
        self,
        name: str,
        step: TracedStep,
        options: Callable[[], Mapping[str, Any]],
        *,
        infeed: Infeed | None = None,
        outfeed: Outfeed | None = None,
        outfeed_settings: pipelines.Outfeed,
        reduction: models.Reduction = "SUM",
        outside: Sequence[Output] = (),
        carried: Sequence[str] = (),
        accumulators: Mapping[str, np.dtype[Any]] = _NO_OTHER_DTYPES,
        picture_names: Sequence[str] = (),
        summed_names: Collection[str] = (),
        config: IPUConfig | None = None,
    ) -> None:
        """Take the step, queues and options.

        Args:
            name: name of the program.
            step: the traced step.
            options: returns the request options, keyed like a scenario, at placement.
            infeed: queue for the first stage.
            outfeed: queue for the last stage.
            outfeed_settings: what the outfeed takes of the last stage's results.
            reduction: accumulation rule for gradients.
            outside: tensors from outside the step.
            carried: shared names of variables for loop values, which exist only in the program.
            accumulators: dtype of the gradient accumulator by shared name, for accumulators whose dtype differs from
                the variable's dtype.
            picture_names: stage names in pictures; empty or repeated names fall back to the stage's name.
            summed_names: shared names of variables that receive the sum of all replicas' changes; other variables
                receive replica 0's values.
            config: configuration of the program; None for the active configuration.
        """
        self._accumulators, self._config = accumulators, config
        self.pipelined = bool(picture_names)
        self._stage_names = [name if list(picture_names).count(name) == 1 else "" for name in picture_names]
        self.name, self.step, self.outside, self.carried = name, step, tuple(outside), tuple(carried)
        self._options, self._infeed, self._outfeed = options, infeed, outfeed
        self._outfeed_settings, self._reduction, self._sum_names = outfeed_settings, reduction, frozenset(summed_names)
        self._host, self._distribution = machine.this_host(), distribution()
        self._has_host_variables = variables_on_host()
        nodes = step.graph.nodes
        sending = {name: item for name in nodes if (item := value_of(nodes[name], EnqueueItem)) is not None}
        update_items = [item.queue for name, item in sending.items() if name in step.update_nodes]
        self._sends_in_update = bool(update_items)
        #: Queues that need the number of sending replicas.
        self._queues = [] if outfeed is None else [outfeed]
        self._queues += [*(item.queue for name, item in sending.items() if name in step.trace.owners), *update_items]
        #: Indices of the tensors of an element that the first stage takes or forwards.
        self._input_indices = [tensor.number for tensor in cut_stages(step.trace)[0].takes]
        self._placements: WeakKeyDictionary[Any, PlacedProgram] = WeakKeyDictionary()
        self.timelines: WeakKeyDictionary[Any, Timeline] = WeakKeyDictionary()
        self._recorder = recorder()
        if self._recorder is not None:
            self._recorder.laid_out += 1

    def run(
        self,
        invocation: Invocation,
        runner: RunningSession | EagerHost,
        values: Sequence[Any],
        executions: int | None = None,
        earlier_executions: int | None = None,
    ) -> list[Any]:
        """Run the program once, and assign changed variables.

        Args:
            invocation: values of TensorFlow's variables.
            runner: session that runs the program.
            values: values of :attr:`outside`, then values of the carried variables.
            executions: number of executions in this run; by default the number in the program's options.
            earlier_executions: number of executions before this run, from which random draws continue; by default the
                program counts them.

        Returns:
            Values of the carried variables after the run.
        """
        outer = values[: len(self.outside)]
        initial_values = zip(self.carried, values[len(self.outside) :], strict=True)
        variables = {
            **invocation.variables,
            **{name: Variable(name, np.array(value)) for name, value in initial_values},
        }
        if self._infeed is not None:
            self._infeed.connect(runner)
        options = self._options_on_hosts(executions)
        placement, key = self._placements.get(runner.session), (options, tuple(map(np.shape, values)))
        if placement is None or placement.key != key:
            predecessor, placement = placement, self._place(key, options, variables, outer)
            if predecessor is not None:  # continue draws and elements
                placement.session.set_state(
                    placement.session.state()._replace(executions=predecessor.session.executions)
                )
                placement.pull_count = placement.session.elements
            if self._infeed is not None:
                self._infeed.replicate(self, placement.session.job.system.replicas)
            self._placements[runner.session] = placement
        placement.constants.update(zip(self.outside, outer, strict=True))
        session = placement.session
        bytes_updated = self._take_host_variables(variables, session, earlier_executions)
        if earlier_executions is not None:
            placement.pull_count = session.elements
        self._share_first_variables(session)
        exchanges = () if self._host is None else self._host.settle()
        if self._has_host_variables and bytes_updated:
            exchanges = (*exchanges, *pricing.weight_copies(bytes_updated))
        sink = None if self._outfeed is None else partial(self._outfeed.add, runner.session)
        with self._receiving_enqueues(runner.session, session.job.system.replicas):
            timeline = session.run(sink=sink, before=exchanges)
        self.timelines[runner.session] = timeline
        active = recorder() or self._recorder
        if active is not None:
            active.note(session, timeline)
        _RUNS.setdefault(runner.session, deque(maxlen=_MAX_KEPT_RUNS)).append((self.name, timeline))
        self._assign(variables, session)
        return [variables[name].value for name in self.carried]

    @contextmanager
    def _receiving_enqueues(self, session: Any, replicas: int) -> Iterator[None]:
        """Receive enqueues from passes and updates during the block."""
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

    def _share_first_variables(self, session: Session) -> None:
        """Give every host the first host's variables before the first training run on several hosts."""
        hosts = self._distribution
        if hosts is None or session.executions or not session.job.plan.shape.training:
            return
        name = f"the first variables of the program {self.name!r}"
        session.set_variables(machine.broadcast_all(hosts.host, name, session.variables()))

    def _take_host_variables(self, variables: Mapping[str, Variable], session: Session, executions: int | None) -> int:
        """Copy the host's variables and the number of earlier executions into a session.

        The session keeps its number if ``executions`` is None.

        Returns:
            Bytes of untrained variables changed by the host.
        """
        state = session.state()
        host_values = {name: np.asarray(variable.value) for name, variable in variables.items()}
        # Replicas keep separate untrained values, and the host has replica 0's values or sums. Values changed by the
        # host go to all replicas.
        changes = {
            name: host_values[name]
            for name, old in state.untrained[0].items()
            if name in self._sum_names or not _is_same(old, host_values[name])
        }
        session.set_state(
            state._replace(
                variables={name: host_values[name] for name in state.variables},
                slots=tuple({name: host_values[name] for name in slots} for slots in state.slots),
                untrained=tuple({**values, **changes} for values in state.untrained),
                executions=executions,
            )
        )
        return sum(value.nbytes for value in changes.values())

    def _assign(self, variables: Mapping[str, Variable], session: Session) -> None:
        """Assign the session's changed values to the host's variables."""
        state = session.state()
        values: dict[str, Array] = dict(state.variables)
        for slots in state.slots:
            values |= slots
        values |= state.untrained[0]
        for name in self._sum_names.intersection(values) if len(state.untrained) > 1 else ():
            first_value = np.asarray(variables[name].value)
            changes = sum(state_of_replica[name] - first_value for state_of_replica in state.untrained)
            values[name] = (first_value + changes).astype(first_value.dtype)
        for name, value in values.items():
            if not _is_same(value, variables[name].value):
                variables[name].assign(np.asarray(value))

    def _place(
        self, key: Any, request_options: dict[str, Any], variables: Mapping[str, Variable], values: Sequence[Any]
    ) -> PlacedProgram:
        """Return the program placed on the machine."""
        constants: dict[Output, Any] = dict(zip(self.outside, values, strict=True))
        options = validate_options(request_options)
        group = request_options.get(STATISTICS_GROUP, 1)
        functions = StepFunctions(
            self.name,
            _with_group_statistics(self.step, group),
            {name: np.asarray(variable.value) for name, variable in variables.items()},
            lambda index: self._element(program, index),
            self._reduction,
            self._outfeed_settings,
            self._accumulators,
            constants,
            () if self._infeed is None else self._stage_inputs(self._infeed.zeros()),
            self._stage_names,
            from_checkpoints=_recomputes_in_backward_pass(options.pipeline),
        )
        request = Request(options, name=self.name, functions=functions)
        job = placed_job(request, self._config, () if self._outfeed is None else self._outfeed.notes)
        hosts = self._distribution
        session = Session(job) if hosts is None else Session(job, hosts.host, own_feed=True, summed=not hosts.averaged)
        program = PlacedProgram(key, session, constants)
        return program

    def _options_on_hosts(self, executions: int | None) -> dict[str, Any]:
        """Return the request options, including executions of a run and hosts."""
        options = dict(self._options())
        if executions is not None:
            options["pipeline"] = {**options.get("pipeline", {}), "repeat_count": executions}
        system = options["system"]
        host_options = system.get("host") or {}
        if self._distribution is None and self._host is not None and host_options.get("count", 1) > 1:
            self._distribution = Distribution(self._host, over_links=True)  # the configuration asks for several hosts
        if self._distribution is not None:
            options["system"] = {**system, "host": {**host_options, **self._distribution.options()}}
        return options

    def _stage_inputs(self, values: Sequence[Array]) -> tuple[Array, ...]:
        """Return the tensors of an element that the first stage takes."""
        return tuple(values[number] for number in self._input_indices)

    def _element(self, placement: PlacedProgram, index: int) -> Sequence[Array]:
        """Return an infeed element by the session's element number; elements are pulled in order."""
        if self._infeed is None:
            return ()
        while placement.pull_count <= index:
            placement.elements[placement.pull_count] = self._stage_inputs(self._infeed.pull())
            placement.pull_count += 1
        return placement.elements.pop(index)


def _is_same(a: Array, b: Array) -> bool:
    """Tell whether two arrays are equal, with NaN equal to NaN."""
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _with_group_statistics(step: TracedStep, group: int) -> TracedStep:
    """Return a step whose batch normalisations share statistics between groups of replicas."""
    if group == 1:
        return step
    return replace(step, trace=replace(step.trace, graph=with_attribute(step.graph, BATCH_NORMS, GROUP, group)))


def _recomputes_in_backward_pass(pipeline: Any) -> bool:
    """Tell whether backward passes recompute activations under given pipeline options."""
    modes = schedules.find(pipeline.schedule).recomputation_modes
    mode = modes[0] if pipeline.recomputation_mode == "Auto" and modes else pipeline.recomputation_mode
    return bool(pipeline.allow_recompute and mode == rules.INTERLEAVED)
