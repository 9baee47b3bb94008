"""A pipeline that has run, and can run on from where it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ipusim.analysis.run_times import RunTimes, run_times
from ipusim.errors import ProgramError, ProgramStateError
from ipusim.ipu import checks
from ipusim.ipu.arguments import Arguments
from ipusim.ipu.program import Built, accumulator_dtype, sent_dtype
from ipusim.ipu.traced import Traced, as_tensor
from ipusim.machine.cross_replica import replicas_of
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.machine.simulate import simulate
from ipusim.model.layers.layer import Array
from ipusim.model.stages.function_stage import as_results
from ipusim.model.workload import Workload
from ipusim.timeline.timeline import Timeline


class _Feed:
    """Micro-batches of the pipeline's inputs and the infeed's elements, which go on from run to run.

    Attributes:
        start: elements of the infeed that earlier runs have taken.
    """

    def __init__(self, arguments: Arguments) -> None:
        self._inputs = tuple(map(as_tensor, arguments.inputs))
        self._queue = arguments.infeed
        self.start = 0

    def element(self, index: int) -> tuple[tuple[Array, ...], None]:
        """Return the first stage's inputs of micro-batch ``index`` of this run."""
        if self._queue is None:
            return self._inputs, None
        return (*self._inputs, *self._queue.take(self.start + index)), None

    def replace_inputs(self, inputs: Sequence[Any]) -> None:
        """Take other values for the inputs.

        Raises ProgramError for another number or shape of them, ProgramTypeError where a value would have to be
        rounded to the input's dtype.
        """
        if len(inputs) != len(self._inputs):
            raise ProgramError(
                f"inputs: expected {len(self._inputs)} values as in the pipeline's own, got {len(inputs)}"
            )
        found = []
        for place, (value, held) in enumerate(zip(inputs, self._inputs, strict=True)):
            checks.numbers(f"inputs[{place}]", value)
            array = as_tensor(value)
            if array.shape != held.shape:
                raise ProgramError(
                    f"inputs[{place}]: expected shape {held.shape} as in the pipeline's own, got {array.shape}"
                )
            if not np.can_cast(array.dtype, held.dtype, "same_kind"):
                checks.wrong_type(f"inputs[{place}]", f"{held.dtype} as in the pipeline's own", value)
            found.append(array.astype(held.dtype))
        self._inputs = tuple(found)

    def go_on(self) -> None:
        """Begin a run where the queue is."""
        self.start = 0 if self._queue is None else self._queue.consumed


class Pipeline:
    """What ``pipelining_ops.pipeline`` returns.

    Attributes:
        program, plan, system, memory, notes: what ran, in which order, where, what its IPUs hold, and warnings.
    """

    def __init__(self, arguments: Arguments, traced: Traced, built: Built) -> None:
        """Place the variables on their IPUs and connect the queues.

        Raises ProgramError when the outfeed has a pipeline already, or the infeed other replicas.
        """
        self.program, self.plan, self.system = built.program, built.plan, built.system
        self._costs = built.costs
        self.memory, self.notes = built.memory, built.notes
        replicas, outputs, outfeed = self.system.replicas, traced.stages[-1].outputs, self.program.outfeed
        self._outfeed = arguments.outfeed
        if arguments.infeed is not None:
            arguments.infeed.connect(replicas)
        if self._outfeed is not None:
            axis = (replicas,) if replicas > 1 else ()
            forms = [((*axis, *outputs[at].shape), sent_dtype(outfeed, outputs[at])) for at in outfeed.kept]
            self._outfeed.connect(forms, traced.sends_alone)
        self._feed = _Feed(arguments)
        variables = traced.variables

        def dtype_of(name: str) -> np.dtype[Any]:
            return accumulator_dtype(arguments, name, variables[name])

        self._executors = []
        for replica in range(replicas):
            stages, optimizer = traced.replica()
            workload = Workload(
                stages=stages,
                feed=self._feed,
                optimizer=optimizer,
                reduction=arguments.reduction_method.reduction,
                accumulation_dtype=dtype_of,
            )
            self._executors.append(NumpyExecutor(self.program.shape, workload, replica, replicas, outfeed))
        self._together = replicas_of(self._executors, self.plan, self.program, self.system, self._costs)
        self._timeline: Timeline | None = None

    @property
    def timeline(self) -> Timeline:
        """The Timeline of the last run. Raises ProgramStateError before the first."""
        if self._timeline is None:
            raise ProgramStateError("the pipeline has not run")
        return self._timeline

    @property
    def summary(self) -> RunTimes:
        """The times of the last run."""
        return run_times(self.timeline)

    @property
    def variables(self) -> dict[str, Array]:
        """Copies of all variables as they are now, by name."""
        self._together.gather_all()
        found = {name: array.copy() for name, array in self._executors[0].weights().items()}
        self._together.let_go_of_all()
        return found

    def run(self, inputs: Any = None) -> Timeline:
        """Run ``repeat_count`` executions, on from the variables and the infeed as they are; return the Timeline.

        ``inputs`` are new values for those of the pipeline, such as another learning rate, from this run on. The
        results go to the outfeed queue. Raises ProgramError and ProgramTypeError for inputs of another form.
        """
        if inputs is not None:
            self._feed.replace_inputs(as_results(inputs))
        self._feed.go_on()
        for executor in self._executors:
            executor.results.clear()
        # As for scenarios: the same bits on any number of cores, and a training that diverges is a result.
        with threadpool_limits(limits=1, user_api="blas"), np.errstate(all="ignore"):
            self._timeline = simulate(self.plan, self.program, self.system, costs=self._costs, executor=self._together)
        sent = self._sent()
        if self.plan.shape.training:
            self._note_not_finite(sent)
        if self._outfeed is not None:
            self._outfeed.receive(sent)
        return self._timeline

    def _note_not_finite(self, sent: list[tuple[Any, ...]]) -> None:
        """Note where no result of a training was ever a finite number what made the first value that is none."""
        origin = next((each.not_finite for each in self._executors if each.not_finite), "")
        numbers = [np.asarray(result) for element in sent for result in element]
        floats = [array for array in numbers if array.dtype.kind == "f"]
        if origin and not any(np.isfinite(array).any() for array in floats):
            note = f"No result is finite, from the first micro-batch on: the first value that is not is from {origin}."
            self.notes = tuple(dict.fromkeys((*self.notes, note)))

    def _sent(self) -> list[tuple[Any, ...]]:
        """Return what reached the host, element by element; with an axis of replicas where there are several."""
        if len(self._executors) == 1:
            return list(self._executors[0].results)
        every = [executor.results for executor in self._executors]
        return [tuple(map(np.stack, zip(*elements, strict=True))) for elements in zip(*every, strict=True)]
