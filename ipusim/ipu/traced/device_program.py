"""A traced step as a program of the machine, which goes on from the values that TensorFlow's variables have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from ipusim.api import Array, Job, Request, Session, Timeline, analysis, models, pipelines, rules, runs, schedules
from ipusim.base.errors import ProgramStateError
from ipusim.ipu.graph.cut import cut
from ipusim.ipu.graph.executable import Invocation
from ipusim.ipu.graph.node import Output, Variable
from ipusim.ipu.graph.traced_functions import StepFunctions
from ipusim.ipu.graph.traced_step import TracedStep
from ipusim.ipu.runtime.program_request import placed
from ipusim.ipu.runtime.recording import recorder
from ipusim.ipu.traced.queues import Infeed, Outfeed
from ipusim.ipu.traced.sessions import EagerHost, RunningSession

#: Accumulators in the dtype of their variables.
_OWN: Final[Mapping[str, np.dtype[Any]]] = {}


@dataclass(eq=False)
class PlacedProgram:
    """A program on the machine for one of TensorFlow's sessions.

    Attributes:
        session: the machine's session.
        constants: values of external tensors, set anew in each run.
        form: options of the request and shapes of the external and carried values that it is laid out for.
        elements: pulled elements in stock.
        taken: number of pulled elements.
    """

    session: Session
    constants: dict[Output, Any]
    form: tuple[Any, ...]
    elements: dict[int, Sequence[Array]] = field(default_factory=dict)
    taken: int = 0


class DeviceProgram:
    """A program of a traced step.

    Attributes:
        name: its name.
        step: the step.
        outside: external tensors of the step.
        carried: shared names of variables that exist in the program alone: values of a loop.
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
        place: Callable[[Request], Job] = placed,
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
            place: returns the job of a request.
        """
        self._accumulators, self._place_request = accumulators, place
        self._shown = [name if list(shown).count(name) == 1 else "" for name in shown]
        self.name, self.step, self.outside, self.carried = name, step, tuple(outside), tuple(carried)
        self._options, self._infeed, self._outfeed = options, infeed, outfeed
        self._sent, self._reduction = sent, reduction
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
    ) -> list[Any]:
        """Run the program once, and assign the variables that it has changed.

        Args:
            invocation: the values of TensorFlow's variables.
            running: the session that runs it.
            values: values of the tensors of :attr:`outside`, then values of the carried variables.
            executions: executions of the program, by default as many as its options say.

        Returns:
            The values of the carried variables behind the run.
        """
        outer = values[: len(self.outside)]
        own = zip(self.carried, values[len(self.outside) :], strict=True)
        variables = {**invocation.variables, **{name: Variable(name, np.array(value)) for name, value in own}}
        if self._infeed is not None:
            self._infeed.connect(running)
        placed = self._placed.get(running.session)
        form = dict(self._options()), tuple(map(np.shape, values))
        if placed is None or placed.form != form:
            before, placed = placed, self._place(variables, outer, form)
            if before is not None:  # draws and elements go on
                placed.session.set_state(placed.session.state()._replace(executions=before.session.executions))
                placed.taken = placed.session.elements
            self._placed[running.session] = placed
        placed.constants.update(zip(self.outside, outer, strict=True))
        session = placed.session
        state = session.state()
        known = {name: np.asarray(variable.value) for name, variable in variables.items()}
        session.set_state(
            state._replace(
                variables={name: known[name] for name in state.variables},
                slots=tuple({name: known[name] for name in slots} for slots in state.slots),
                untrained=tuple({name: known[name] for name in values} for values in state.untrained),
            )
        )
        sink = None if self._outfeed is None else lambda element: self._hand_over(running, element)
        self.timeline = self.timelines[running.session] = session.run(executions, sink=sink)
        active = recorder() or self._recorder
        if active is not None:
            active.note(session, self.timeline)
        self._assign(variables, session)
        return [variables[name].value for name in self.carried]

    def _hand_over(self, running: RunningSession | EagerHost, element: tuple[Array, ...]) -> None:
        assert self._outfeed is not None
        self._outfeed.add(running.session, element)

    @staticmethod
    def _assign(variables: Mapping[str, Variable], session: Session) -> None:
        """Assign the changed variables."""
        state = session.state()
        values: dict[str, Array] = dict(state.variables)
        for slots in state.slots:
            values |= slots
        values |= state.untrained[0]
        for name, value in values.items():
            if not np.array_equal(value, variables[name].value, equal_nan=value.dtype.kind == "f"):
                variables[name].assign(np.asarray(value))

    def _place(self, variables: Mapping[str, Variable], values: Sequence[Any], form: tuple[Any, ...]) -> PlacedProgram:
        """Return the program on the machine."""
        constants: dict[Output, Any] = dict(zip(self.outside, values, strict=True))
        options = runs.validate(form[0])
        functions = StepFunctions(
            self.name,
            self.step,
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
        job = self._place_request(Request(options, name=self.name, functions=functions))
        program = PlacedProgram(Session(replace(job)), constants, form)
        return program

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


def _recomputes_inside(pipeline: Any) -> bool:
    """Tell whether backward passes compute activations again, by the options of a pipeline."""
    modes = schedules.find(pipeline.schedule).recomputation_modes
    mode = modes[0] if pipeline.recomputation_mode == "Auto" and modes else pipeline.recomputation_mode
    return bool(pipeline.allow_recompute and mode == rules.INTERLEAVED)
