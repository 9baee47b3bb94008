"""From checked arguments to a program that has run, and can run on from where it is, or that a session runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ipusim.api import (
    Array,
    Job,
    PipelineProgram,
    Plan,
    Session,
    System,
    Timeline,
    analysis,
    checkpoint,
    models,
    schedules,
)
from ipusim.base.errors import ProgramError, ProgramStateError, UnsupportedProgramError
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue, sending_to
from ipusim.ipu.runtime.arguments import Arguments
from ipusim.ipu.runtime.building import compiling
from ipusim.ipu.runtime.context import Scoped
from ipusim.ipu.runtime.devices import check_queue_on_device, device_ordinal, on_device
from ipusim.ipu.runtime.distribution import HostProgram, variables_on_host
from ipusim.ipu.runtime.function_body import device
from ipusim.ipu.runtime.functions import sent_dtype
from ipusim.ipu.runtime.host import Fetch, Running, Tensor, example
from ipusim.ipu.runtime.layouts import Fed, Layout, Layouts
from ipusim.ipu.runtime.program_state import add
from ipusim.ipu.runtime.recording import recorder
from ipusim.ipu.runtime.stage_call import Inputs, packing
from ipusim.ipu.runtime.stage_outfeeds import StageOutfeed
from ipusim.ipu.runtime.variable import NamedVariable

#: Name of the elements of the infeed that have been read, among what a program goes on from.
_INFEED: Final = "ipusim/infeed"
#: Whether a computation is being tried that may build no pipeline or loop of its own: it then raises ProgramReached.
stopping_at_programs: Final = Scoped("stopping", False)


class ProgramReached(BaseException):
    """Leaves a computation at the first pipeline or loop that it builds."""


class Pipeline(Fetch):
    """What ``pipelining_ops.pipeline`` returns; in a compiled computation it runs when a session runs it.

    Attributes:
        pipelined: whether it is a pipeline, and no loop.
        training: whether it trains.
    """

    def __init__(self, layouts: Layouts, symbols: Sequence[Any] | None = None) -> None:
        """Place the variables on their IPUs and connect the queues.

        ``symbols`` are the pipeline's inputs as a session evaluates them, where one runs it. Raises ProgramError when
        the outfeed has a pipeline already, or the infeed other replicas.
        """
        first = layouts.first
        arguments, stages = first.functions.arguments, first.functions.traced.stages
        self._layouts, self._symbols, self._ordinal = layouts, symbols, device_ordinal()
        self.pipelined, self.training = schedules.find(arguments.schedule.value).pipelined, arguments.training
        self._hosts = HostProgram()
        self._more_notes: tuple[str, ...] = ()
        self._timeline: Timeline | None = None
        self._initial = True
        self._placed_session: Session | None = None
        self._layout = first
        self._take(first, None)
        self._recorder = recorder()
        if self._recorder is not None:
            self._recorder.laid_out += 1
        self._named = layouts.variables
        #: The version of each variable that the session has; at first all have their initial values.
        self._versions = dict.fromkeys(self._named, 0)
        changes = {name for stage in stages for name in stage.stage.changes}
        #: The variables that a run changes.
        self._changes = [name for name in self._named if name in changes or self.training]

    def _take(self, layout: Layout, before: Layout | None) -> None:
        """Go on as another layout says than the one ``before``, if there was one, from where that has come to."""
        self._connect_queues(layout, before)
        state = None if self._placed_session is None else checkpoint.arrays_of(self._placed_session)
        self._layout = layout
        if layout.job is None:
            return
        layout.functions.traced.inputs.replicas = layout.replicas
        self._hosts.distribution = layout.distribution
        self._placed_session = self._hosts.session(layout.job, goes_on=not self._initial)
        if state is not None:
            checkpoint.set_arrays_of(self._placed_session, state)

    def _connect_queues(self, layout: Layout, before: Layout | None) -> None:
        replicas, gradients = layout.replicas, layout.functions.arguments.host_gradients
        axis = (replicas,) if replicas > 1 else ()
        if gradients is not None and axis:
            raise UnsupportedProgramError(f"variables_on_host: expected one replica of a device, got {replicas}")
        if (infeed := layout.functions.arguments.infeed) is not None:
            check_queue_on_device("infeed_queue", infeed.ordinal)
            infeed.connect(replicas, instead_of=None if before is None else before.replicas)
        if (queue := layout.functions.arguments.outfeed) is not None:
            traced, outfeed = layout.functions.traced, layout.functions.outfeed
            outputs = traced.stages[-1].outputs
            forms = [((*axis, *outputs[at].shape), sent_dtype(outfeed, outputs[at])) for at in outfeed.sent]
            element = packing(traced.sends, outfeed.sent, traced.holder)
            if gradients is not None:
                forms, element = gradients.element(forms, element)
            self._connect(queue, forms, element, reconnecting=before is not None)
        for item in _sent_beside(layout):
            forms = [((*axis, *shape), dtype) for shape, dtype in item.forms]
            self._connect(item.queue, forms, item.packing, reconnecting=before is not None)

    def dequeue_at_once(self) -> None:
        """Make what stages and the optimizer enqueue available at once, as in a program without a session."""
        for item in _sent_beside(self._layout):
            item.queue.in_session = False

    def _connect(self, queue: IPUOutfeedQueue, forms: Any, packing: Any, *, reconnecting: bool) -> None:
        check_queue_on_device("outfeed_queue", queue.ordinal)
        queue.connect(forms, packing, in_session=self._symbols is not None, reconnecting=reconnecting)

    def take_fed(self, running: Running, values: Sequence[Any]) -> None:
        """Take the layout of the program for ``values`` that a session feeds, and for what it captures in its run.

        It is laid out again where these have other forms. Raises as :meth:`take_layout` does.
        """
        captures = self._layout.functions.arguments.captures
        self.take_layout(values, {} if captures is None else captures.evaluated(running.value))
        if (captures := self._layout.functions.arguments.captures) is not None:
            captures.take(running.value)

    def take_layout(self, values: Sequence[Any] | None = None, captured: Mapping[Any, Array] | None = None) -> None:
        """Lay the program out again if the configured device or the shapes and types of ``values`` have changed.

        It goes on from where it is. Raises IpusimError where the device does not take it; it stays as it is then.
        """
        with device(), on_device(self._ordinal):
            layout = self._layouts.now(self._layout, values, captured or {})
            if layout is not self._layout:
                self._take(layout, self._layout)

    @property
    def _job(self) -> Job:
        if self._layout.job is None:
            self.take_layout()
        assert self._layout.job is not None
        return self._layout.job

    @property
    def _session(self) -> Session:
        if self._placed_session is None:
            self.take_layout()
        assert self._placed_session is not None
        return self._placed_session

    @property
    def replicas(self) -> int:
        """The replicas that it runs on; one as long as no device has taken it."""
        return self._layout.replicas

    @property
    def inputs(self) -> tuple[Array, ...]:
        """Its inputs, which are a loop's tensors as the last run has left them."""
        return self._layout.functions.traced.inputs.values

    @property
    def infeed(self) -> IPUInfeedQueue | None:
        """The queue that feeds it, None where none does."""
        infeed: IPUInfeedQueue | None = self._layout.functions.arguments.infeed
        return infeed

    @property
    def program(self) -> PipelineProgram:
        """The program that runs."""
        return self._job.program

    @property
    def plan(self) -> Plan:
        """In which order."""
        return self._job.plan

    @property
    def system(self) -> System:
        """Where."""
        return self._job.system

    @property
    def memory(self) -> analysis.Fit:
        """The memory of its IPUs."""
        return self._job.memory

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings."""
        return (*self._job.notes, *self._more_notes)

    @property
    def timeline(self) -> Timeline:
        """The Timeline of the last run. Raises ProgramStateError before the first."""
        if self._timeline is None:
            raise ProgramStateError("the pipeline has not run")
        return self._timeline

    @property
    def sends(self) -> bool:
        """Whether it sends results to an outfeed queue."""
        return self._layout.functions.arguments.outfeed is not None

    @property
    def summary(self) -> analysis.RunTimes:
        """The times of the last run."""
        return analysis.run_times_of(self.timeline)

    @property
    def variables(self) -> dict[str, Array]:
        """Copies of all variables as they are now, by name; of untrained ones those of the first replica."""
        return self._session.variables() | self._changed_elsewhere()

    @property
    def session(self) -> Session:
        """All that runs go on from, with the values that other programs have given variables meanwhile."""
        if changed := self._changed_elsewhere():
            self._session.set_variables(changed)
            self._versions = {name: item.version for name, item in self._named.items()}
        return self._session

    def value_of(self, name: str) -> Array:
        """Return a copy of the value that one variable has now."""
        return self._session.variables((name,))[name]

    def _changed_elsewhere(self) -> dict[str, Array]:
        return {name: item.value_now() for name, item in self._named.items() if item.version != self._versions[name]}

    def evaluate(self, running: Running) -> None:
        """Run with the inputs that this run of a session says; threads wait for each other, as for a device."""
        if self.infeed is not None:
            self.infeed.check_started()
        values = [running.value(symbol) for symbol in self._symbols or ()]
        self.take_fed(running, values)
        self.run(values)

    def initialize(self) -> None:
        """Set all variables, and the optimizer's state, to what they were at first."""
        if self._placed_session is not None and (not self._initial or any(self._versions.values())):
            self._initial = True
            self._placed_session = self._hosts.session(self._session.job)
        for variable in self._named.values():
            variable.initialize()
        self._versions = {name: item.version for name, item in self._named.items()}

    def run(self, inputs: Any = None) -> Timeline:
        """Run ``repeat_count`` executions, on from the variables and the infeed as they are; return the Timeline.

        ``inputs`` are new values for those of the pipeline, such as another learning rate, from this run on. The
        results go to the outfeed queue, each as soon as it is with the host. Raises ProgramError and ProgramTypeError
        for inputs of another form.
        """
        with device(), sending_to(self._layout.functions.arguments.outfeed), on_device(self._ordinal):
            self.take_layout()
            layout = self._layout
            if inputs is not None:
                layout.functions.feed.replace_inputs(models.as_results(inputs))
            session, self._initial = self.session, False
            layout.functions.feed.go_on(session.elements)
            for stage in layout.functions.traced.outfeeds:
                stage.begin(layout.replicas)
            try:
                with self._hosts.running(session):
                    self._timeline = session.run(sink=self._sink(), before=self._hosts.owed())
            finally:
                self._versions |= {name: self._named[name].changed_by(self) for name in self._changes}
            # A session may run it in another thread than the one that laid it out.
            if (active := recorder() or self._recorder) is not None:
                active.note(session, self._timeline)
        if self.training:
            self._note_not_finite()
        return self._timeline

    def _sink(self) -> Callable[[tuple[Array, ...]], object] | None:
        """Return the receiver of each element that reaches the host; None where none comes."""
        outfeed, gradients = self._layout.functions.arguments.outfeed, self._layout.functions.arguments.host_gradients
        if outfeed is None:
            return None
        receive: Callable[[tuple[Array, ...]], object] = outfeed.receive
        sink: Callable[[tuple[Array, ...]], object] = receive if gradients is None else gradients.receiving(receive)
        return sink

    def arrays(self) -> dict[str, Array]:
        """Return copies of all that runs go on from, by name: variables, optimizer, draws, and place in the infeed."""
        slots = {name: array.copy() for item in self._named.values() for name, array in item.slots.items()}
        return checkpoint.arrays_of(self.session) | slots | {_INFEED: np.array(self._layout.functions.feed.consumed)}

    def check_arrays(self, arrays: checkpoint.Arrays, chosen: checkpoint.NameFilter = checkpoint.everything) -> None:
        """Refuse arrays that :meth:`set_arrays` does; raises FileError."""
        checkpoint.check_arrays_of(self.session, arrays, chosen)

    def set_arrays(self, arrays: checkpoint.Arrays, chosen: checkpoint.NameFilter = checkpoint.everything) -> None:
        """Go on from ``arrays`` that a program of the same network had, or from those whose names are ``chosen``.

        Programs without an optimizer keep their place in the infeed. Raises FileError for arrays of another network,
        ProgramError for an infeed that cannot go back; nothing is set then.
        """
        self.take_layout()
        self.check_arrays(arrays, chosen)
        if _INFEED in arrays and chosen(_INFEED) and self.training:
            self._layout.functions.feed.go_to(int(arrays[_INFEED]))
        if self._layout.functions.arguments.host_gradients is not None:  # the optimizer is on the host
            for variable in self._named.values():
                variable.slots = checkpoint.slots_of(variable.name, arrays, chosen)
            arrays = {name: array for name, array in arrays.items() if not name.startswith(checkpoint.OPTIMIZER)}
        checkpoint.set_arrays_of(self.session, arrays, chosen)
        self._versions |= {name: item.changed_by(self) for name, item in self._named.items() if chosen(name)}
        self._initial = False

    def _note_not_finite(self) -> None:
        """Note where no result of a training was ever a finite number what made the first value that is none."""
        origin = self._session.not_finite
        if not origin:
            return
        numbers = [np.asarray(result) for sent in self._session.results for element in sent for result in element]
        floats = [array for array in numbers if array.dtype.kind == "f"]
        if not any(np.isfinite(array).any() for array in floats):
            note = f"No result is finite, from the first micro-batch on: the first value that is not is from {origin}."
            self._more_notes = (note,)


def _sent_beside(layout: Layout) -> list[StageOutfeed]:
    """Return the queues that stages and the optimizer send to by themselves."""
    return [outfeed for outfeeds in layout.functions.traced.outfeeds for outfeed in outfeeds.queues]


def examples(inputs: Any) -> tuple[tuple[Any, ...] | None, Any]:
    """Return a program's inputs as a session evaluates them, None where it runs at once, and values to try it on.

    Raises ProgramError for a tensor of the host where no session will run, and ProgramReached in a computation that may
    build no program.
    """
    if stopping_at_programs():
        raise ProgramReached
    values = models.as_results(inputs)
    if compiling() is not None:
        return values, tuple(map(example, values))
    inputs = tuple(item.value_now() if isinstance(item, NamedVariable) else item for item in values)
    for index, value in enumerate(inputs):
        if isinstance(value, Tensor):
            raise ProgramError(
                f"inputs[{index}]: expected a value, got {value!r}, which has one in a session alone: build the "
                "program in a function that ipu_compiler.compile compiles"
            )
    return None, inputs


def lay_out(
    arguments: Arguments,
    config: IPUConfig | None,
    symbols: Sequence[Any] | None,
    inputs: Inputs | None = None,
    fed: Fed | None = None,
) -> Pipeline:
    """Return the program: run once, or where a computation is being compiled, to be run by a session.

    Without a ``config`` it is the one that has been configured, if any. ``inputs`` hold those of the program as they
    are, by default as the arguments say; ``fed`` says what it becomes where a session feeds it other forms.
    """
    if arguments.training and arguments.host_gradients is None and variables_on_host():
        raise UnsupportedProgramError(
            "variables_on_host: Placing variables on the host is not currently supported in a pipeline, whose weight "
            "update is on its IPUs: expected a loop whose body enqueues its gradients"
        )
    with device(), sending_to(arguments.outfeed):
        programs = compiling()
        layouts = Layouts(arguments, inputs, config, fed, waits=programs is not None)
        result = Pipeline(layouts, symbols)
        if programs is None:
            result.run()
        else:
            for variable in layouts.variables.values():
                add(variable)
            programs.append(result)
    return result
