"""A pipeline that has run, and can run on from where it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from ipusim.analysis.run_times import RunTimes, run_times
from ipusim.errors import ProgramStateError, UnsupportedProgramError
from ipusim.hardware.system import System
from ipusim.ipu.arguments import Arguments
from ipusim.ipu.distribution import Distribution
from ipusim.ipu.feed import Feed
from ipusim.ipu.functions import sent_dtype
from ipusim.ipu.host import Fetch, Running
from ipusim.ipu.host_program import HostProgram
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue, sending_to
from ipusim.ipu.one_at_a_time import device
from ipusim.ipu.recording import note, recorder
from ipusim.ipu.stage_outfeeds import StageOutfeed
from ipusim.ipu.traced import Traced
from ipusim.ipu.variable import NamedVariable
from ipusim.model.layers.layer import Array
from ipusim.model.stages.function_stage import as_results
from ipusim.runs.checkpoint import (
    OPTIMIZER,
    Arrays,
    Wanted,
    arrays_of,
    check_arrays_of,
    everything,
    set_arrays_of,
    slots_of,
)
from ipusim.runs.job import Job
from ipusim.runs.session import Session
from ipusim.timeline.timeline import Timeline

#: Name of the elements of the infeed that have been read, among what a program goes on from.
_INFEED: Final = "ipusim/infeed"


class Placed(NamedTuple):
    """A program on its device.

    Attributes:
        job: what runs.
        distribution: on which of several hosts it trains, None alone.
    """

    job: Job
    distribution: Distribution | None


class Pipeline(Fetch):
    """What ``pipelining_ops.pipeline`` returns; in a compiled computation it runs when a session runs it.

    Attributes:
        program, plan, system, memory, notes: what ran, in which order, where, what its IPUs hold, and warnings.
        pipelined: whether it is a pipeline, and no loop.
    """

    is_operation: ClassVar[bool] = True

    def __init__(
        self,
        arguments: Arguments,
        traced: Traced,
        feed: Feed,
        placed: Placed,
        symbols: Sequence[Any] | None = None,
        variables: Mapping[str, NamedVariable] | None = None,
        latest: Callable[[], Placed | None] | None = None,
    ) -> None:
        """Place the variables on their IPUs and connect the queues.

        ``symbols`` are the pipeline's inputs as a session evaluates them, where one runs it; ``variables`` those that
        the program may share with others; ``latest`` lays it out again where another device has been configured since,
        which counts until the first run. Raises ProgramError when the outfeed has a pipeline already, or the infeed
        other replicas.
        """
        self._traced, self._feed, self._infeed, self._outfeed = traced, feed, arguments.infeed, arguments.outfeed
        self._captures = arguments.captures
        self._gradients, self._latest = arguments.host_gradients, latest
        self._hosts, self._symbols = HostProgram(), symbols
        self._place(placed)
        self._timeline: Timeline | None = None
        self._recorder = recorder()
        if self._recorder is not None:
            self._recorder.laid_out += 1
        self._initial = True
        self._named = dict(variables or {})
        #: The version of each variable that the session has; at first all have their initial values.
        self._versions = dict.fromkeys(self._named, 0)
        changes = {name for each in traced.stages for name in each.stage.changes}
        #: The variables that a run changes.
        self._changes = [name for name in self._named if name in changes or self.plan.shape.training]

    def _place(self, placed: Placed, before: System | None = None) -> None:
        """Take the program as it is ``placed``, where it has been laid out for the system ``before``, if for any."""
        job = placed.job
        replicas, outputs, outfeed = job.system.replicas, self._traced.stages[-1].outputs, job.program.outfeed
        if self._gradients is not None and replicas > 1:
            raise UnsupportedProgramError(f"variables_on_host: expected one replica of a device, got {replicas}")
        if self._infeed is not None:
            self._infeed.connect(replicas, instead_of=None if before is None else before.replicas)
        if self._outfeed is not None:
            axis = (replicas,) if replicas > 1 else ()
            forms = [((*axis, *outputs[at].shape), sent_dtype(outfeed, outputs[at])) for at in outfeed.kept]
            packing = self._traced.packing(outfeed.kept)
            if self._gradients is not None:
                forms, packing = self._gradients.element(forms, packing)
            self._connect(self._outfeed, forms, packing, again=before is not None)
        for each in self._sent_beside():
            axis = (replicas,) if replicas > 1 else ()
            forms = [((*axis, *shape), dtype) for shape, dtype in each.forms]
            self._connect(each.queue, forms, each.packing, again=before is not None)
        self.program, self.plan, self.system = job.program, job.plan, job.system
        self.memory, self.notes, self.pipelined = job.memory, job.notes, job.schedule.pipelined
        self._traced.inputs.replicas = replicas
        self._hosts.distribution = placed.distribution
        self._session = self._hosts.session(job)

    def _sent_beside(self) -> list[StageOutfeed]:
        """Return the queues that stages and the optimizer send to by themselves."""
        return [outfeed for outfeeds in self._traced.outfeeds for outfeed in outfeeds.queues]

    def dequeue_at_once(self) -> None:
        """Let what stages and the optimizer send be dequeued at once, as of a program that no session runs."""
        for each in self._sent_beside():
            each.queue.in_session = False

    def _connect(self, queue: IPUOutfeedQueue, forms: Any, packing: Any, *, again: bool) -> None:
        queue.connect(forms, packing, in_session=self._symbols is not None, again=again)

    def _place_as_configured(self) -> None:
        """Lay the program out again before it runs first, where another device has been configured since."""
        if self._latest is not None and self._initial and self._timeline is None and (placed := self._latest()):
            self._place(placed, self.system)

    @property
    def timeline(self) -> Timeline:
        """The Timeline of the last run. Raises ProgramStateError before the first."""
        if self._timeline is None:
            raise ProgramStateError("the pipeline has not run")
        return self._timeline

    @property
    def sends(self) -> bool:
        """Whether it sends results to an outfeed queue."""
        return self._outfeed is not None

    @property
    def summary(self) -> RunTimes:
        """The times of the last run."""
        return run_times(self.timeline)

    @property
    def variables(self) -> dict[str, Array]:
        """Copies of all variables as they are now, by name; of untrained ones those of the first replica."""
        return self._session.variables() | self._changed_elsewhere()

    @property
    def session(self) -> Session:
        """All that runs go on from, with the values that other programs have given variables meanwhile."""
        if changed := self._changed_elsewhere():
            self._session.set_variables(changed)
            self._versions = {name: each.version for name, each in self._named.items()}
        return self._session

    def value_of(self, name: str) -> Array:
        """Return a copy of the value that one variable has now."""
        return self._session.variables((name,))[name]

    def _changed_elsewhere(self) -> dict[str, Array]:
        return {name: each.value_now() for name, each in self._named.items() if each.version != self._versions[name]}

    def evaluate(self, running: Running) -> None:
        """Run with the inputs that this run of a session says; threads wait for each other, as for a device."""
        if self._infeed is not None:
            self._infeed.check_started()
        if self._captures is not None:
            self._captures.take(running.value)
        self.run([running.value(symbol) for symbol in self._symbols or ()])

    def initialize(self) -> None:
        """Set all variables, and the optimizer's state, to what they were at first."""
        self._place_as_configured()
        if not self._initial or any(self._versions.values()):
            self._session, self._initial = self._hosts.session(self._session.job), True
        for variable in self._named.values():
            variable.initialize()
        self._versions = {name: each.version for name, each in self._named.items()}

    def run(self, inputs: Any = None) -> Timeline:
        """Run ``repeat_count`` executions, on from the variables and the infeed as they are; return the Timeline.

        ``inputs`` are new values for those of the pipeline, such as another learning rate, from this run on. The
        results go to the outfeed queue, each as soon as it is with the host. Raises ProgramError and ProgramTypeError
        for inputs of another form.
        """
        with device(), sending_to(self._outfeed):
            self._place_as_configured()
            if inputs is not None:
                self._feed.replace_inputs(as_results(inputs))
            session, self._initial = self.session, False
            self._feed.go_on(session.elements)
            for stage in self._traced.outfeeds:
                stage.begin(self.system.replicas)
            try:
                with self._hosts.running(session):
                    self._timeline = session.run(sink=self._sink(), before=self._hosts.owed())
            finally:
                self._versions |= {name: self._named[name].changed_by(self) for name in self._changes}
            # A session may run it in another thread than the one that laid it out.
            note((recorder(), self._recorder), session, self._timeline)
        if self.plan.shape.training:
            self._note_not_finite()
        return self._timeline

    def _sink(self) -> Callable[[tuple[Array, ...]], object] | None:
        """Return what takes each element that is with the host; None where none comes."""
        if self._outfeed is None:
            return None
        receive = self._outfeed.receive
        return receive if self._gradients is None else self._gradients.receiving(receive)

    def arrays(self) -> dict[str, Array]:
        """Return copies of all that runs go on from, by name: variables, optimizer, draws, and place in the infeed."""
        slots = {name: array.copy() for each in self._named.values() for name, array in each.slots.items()}
        return arrays_of(self.session) | slots | {_INFEED: np.array(self._feed.consumed)}

    def check_arrays(self, arrays: Arrays, wanted: Wanted = everything) -> None:
        """Refuse arrays that :meth:`set_arrays` does; raises FileError."""
        check_arrays_of(self.session, arrays, wanted)

    def set_arrays(self, arrays: Arrays, wanted: Wanted = everything) -> None:
        """Go on from ``arrays`` that a program of the same network had, or from those whose names are ``wanted``.

        Programs without an optimizer keep their place in the infeed. Raises FileError for arrays of another network,
        ProgramError for an infeed that cannot go back; nothing is set then.
        """
        self._place_as_configured()
        self.check_arrays(arrays, wanted)
        if _INFEED in arrays and wanted(_INFEED) and self.plan.shape.training:
            self._feed.go_to(int(arrays[_INFEED]))
        if self._gradients is not None:  # the optimizer is on the host
            for variable in self._named.values():
                variable.slots = slots_of(variable.name, arrays, wanted)
            arrays = {name: array for name, array in arrays.items() if not name.startswith(OPTIMIZER)}
        set_arrays_of(self.session, arrays, wanted)
        self._versions |= {name: each.changed_by(self) for name, each in self._named.items() if wanted(name)}
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
            self.notes = tuple(dict.fromkeys((*self.notes, note)))
