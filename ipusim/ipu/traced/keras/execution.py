"""The functions that fit, evaluate and predict of a model call: executions of programs on simulated IPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Protocol

import numpy as np

from ipusim.api import Array, Timeline, analysis, models, pipelines
from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.graph.executable import Invocation
from ipusim.ipu.graph.tape import note_origins
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.traced.device_program import DeviceProgram
from ipusim.ipu.traced.keras import callbacks
from ipusim.ipu.traced.keras.captures import Captures
from ipusim.ipu.traced.keras.steps import ModelStep, StageOf, StepKind, StepResults, trace_step
from ipusim.ipu.traced.pipelines import outside_of
from ipusim.ipu.traced.sessions import LOCK, EagerHost

tf = load()

#: The kinds of steps that tf_keras has functions of.
KINDS: Final = tuple(map(StepKind, ("train", "test", "predict")))


class Placement(Protocol):
    """How a model runs on simulated IPUs.

    Attributes:
        stage_of: returns the stage of each call of the model; None for a model that is not pipelined.
        accumulation: number of batches of a weight update.
        reduction: how gradients are accumulated.
        version: another number after each change, behind which programs are placed anew.
        buffer_depth: number of results that the host's buffer holds.
        replicas: number of replicas, each of which takes a batch of its own in a step.
        sums_results: whether results are summed up on the IPUs.
        tells_steps: whether callbacks are called for each step of an execution.
    """

    @property
    def stage_of(self) -> StageOf | None:
        """Function that returns the stage of each call."""

    @property
    def accumulation(self) -> int:
        """Number of batches of a weight update."""

    @property
    def reduction(self) -> models.Reduction:
        """How gradients are accumulated."""

    @property
    def version(self) -> int:
        """Number of the last change."""

    @property
    def buffer_depth(self) -> int:
        """Number of results that the host's buffer holds."""

    @property
    def replicas(self) -> int:
        """Number of replicas."""

    @property
    def sums_results(self) -> bool:
        """Whether the IPUs sum results up: the host then reads metrics from their variables."""

    @property
    def tells_steps(self) -> bool:
        """Whether callbacks are called for each step of an execution, or for its last one alone."""

    def accumulator_dtype(self, variable: Any) -> np.dtype[Any] | None:
        """Return the dtype in which a variable's gradients are accumulated; None for the variable's own."""

    def check(self, batch: Any, kind: str, steps: int) -> None:
        """Refuse executions that the placement does not allow.

        Args:
            batch: the first batch, by which a model is built that is not.
            kind: ``train``, ``test`` or ``predict``.
            steps: number of batches of an execution.
        """

    def options(self, stages: int, count: int, repeats: int, *, kind: str) -> Mapping[str, Any]:
        """Return the options of a request by the keys of a scenario.

        Args:
            stages: number of stages.
            count: number of batches of an item: of a weight update, or of a whole inference.
            repeats: number of items.
            kind: ``train``, ``test`` or ``predict``.
        """


#: Name among a model's attributes of its placement, which tf_keras does not track.
_PLACEMENT: Final = "_ipu_placement"
#: Functions of tf_keras' own, by the name of the method that makes them.
_ORIGINAL: Final[dict[str, Callable[..., Any]]] = {}


def place(model: Any, placement: Placement) -> None:
    """Put a model on simulated IPUs."""
    model.__dict__[_PLACEMENT] = placement


def placement_of(model: Any) -> Placement | None:
    """Return the placement of a model; None for a model of the host."""
    found: Placement | None = model.__dict__.get(_PLACEMENT)
    return found


def install() -> None:
    """Let models that are placed on simulated IPUs train, evaluate and predict there."""
    note_origins()
    for kind in KINDS:
        name = f"make_{kind.name}_function"
        if not _ORIGINAL:
            callbacks.install()
        if name not in _ORIGINAL:
            _ORIGINAL[name] = getattr(tf.keras.Model, name)
            setattr(tf.keras.Model, name, _maker(kind, _ORIGINAL[name]))


def _maker(kind: StepKind, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method that makes the function of a kind of steps."""
    attribute = f"{kind.name}_function"

    def make(self: Any, force: bool = False) -> Any:
        if placement_of(self) is None:
            return original(self, force)
        known = getattr(self, attribute)
        if known is None or force:
            known = Execution(self, kind)
            setattr(self, attribute, known)
        return known

    return make


@dataclass(frozen=True, eq=False)
class _Program:
    """A program of so many steps on the machine."""

    traced: ModelStep
    device: DeviceProgram
    host: EagerHost
    results: StepResults


class Execution:
    """Executes the steps of one kind; what ``make_*_function`` returns.

    Attributes:
        timelines: Timeline of each program of the last call.
        each_step: results of each step of the last call, for callbacks; empty if they are called for the last step.
    """

    def __init__(self, model: Any, kind: StepKind) -> None:
        """Begin without programs."""
        self._model, self._kind = model, kind
        self._captures = Captures()
        self._traced: dict[Any, ModelStep] = {}
        self._programs: dict[Any, _Program] = {}
        self._version = -1
        self.timelines: list[Timeline] = []
        self.each_step: list[Any] = []

    def __call__(self, iterator: Iterator[Any]) -> Any:
        """Execute as many steps as the model executes at once.

        Args:
            iterator: yields batches.

        Returns:
            The results of the last step; for a prediction the joined results of all steps.
        """
        model, placement = self._model, placement_of(self._model)
        assert placement is not None
        configured = model._steps_per_execution
        steps = 1 if configured is None else int(configured.numpy())
        first, _ = self._pulled(iterator, 1)
        if first:
            placement.check(first[0], self._kind.name, steps)
        replicas = placement.replicas  # known when the check has built the model
        more, ended = self._pulled(iterator, steps * replicas - len(first))
        batches = [*first, *more]
        batches = batches[: len(batches) // replicas * replicas]
        if placement.version != self._version:
            self._traced, self._programs, self._version = {}, {}, placement.version
        self.timelines = []
        results: list[Any] = []
        for form, group in groupby(batches, _form):
            results += self._run(form, list(group), placement)
        getattr(model, f"_{self._kind.name}_counter").assign_add(len(batches) // replicas)
        if ended is not None:
            raise ended
        sums = placement.sums_results and self._kind.name != "predict"
        self.each_step = results if placement.tells_steps and not sums else []
        if sums or (replicas > 1 and self._kind.is_keras_own(model)):
            return model.get_metrics_result()
        if self._kind.name == "predict":
            return tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), *results)
        return results[-1]

    @staticmethod
    def _pulled(iterator: Iterator[Any], steps: int) -> tuple[list[Any], Exception | None]:
        """Return the next batches, and what the iterator raised before there were enough."""
        batches: list[Any] = []
        try:
            for _ in range(steps):
                batches.append(next(iterator))
        except (StopIteration, tf.errors.OutOfRangeError) as error:
            return batches, error
        return batches, None

    def _run(self, form: Any, batches: Sequence[Any], placement: Placement) -> list[Any]:
        """Execute steps of batches of one form; return the results of each."""
        key = form, len(batches)
        replicas = placement.replicas
        if len(batches) % replicas:
            raise UnsupportedProgramError(
                f"model {self._model.name!r}: expected batches of one size on {replicas} replicas, got {len(batches)} "
                f"of the size {form[0][0][0][0]}: make the dataset with drop_remainder=True"
            )
        with LOCK, np.errstate(all="ignore"):
            if key not in self._programs:
                self._programs[key] = self._place(form, batches, placement)
            program = self._programs[key]
            for batch in batches:
                program.traced.feed.elements.append([tensor.numpy() for tensor in tf.nest.flatten(batch)])
            program.results.elements.clear()
            variables = self._captures.variables()
            program.device.run(Invocation(variables), program.host, (), None, self._updates())
            self._captures.assign(variables.values())
            self.timelines.append(program.device.timelines[program.host])
            return [each for element in program.results.elements for each in self._of_step(program, element, replicas)]

    def _accumulators(self, placement: Placement) -> Iterator[tuple[Any, np.dtype[Any]]]:
        """Return the variables whose gradients are accumulated in another dtype, each with that."""
        for variable in self._model.trainable_variables if self._kind.training else ():
            dtype = placement.accumulator_dtype(variable)
            if dtype is not None:
                yield variable, dtype

    def _updates(self) -> int | None:
        """Return the weight updates before this execution, on which random draws go on; None if nothing is trained."""
        if not self._kind.training:
            return None
        model = self._model
        return int(getattr(model.optimizer, "iterations", model._train_counter))

    def _of_step(self, program: _Program, element: Sequence[Array], replicas: int) -> list[Any]:
        """Return the results of a step: of a prediction those of each replica, else their means over the replicas."""
        specs = program.traced.results
        if replicas == 1:
            return [_packed(specs, element)]
        if self._kind.name == "predict":
            return [_packed(specs, [value[replica] for value in element]) for replica in range(replicas)]
        return [_packed(specs, [value.mean(axis=0, dtype=value.dtype) for value in element])]

    def _place(self, form: Any, batches: Sequence[Any], placement: Placement) -> _Program:
        """Return the program of so many batches of one form."""
        training = self._kind.training
        if form not in self._traced:
            self._traced[form] = trace_step(
                self._model, self._kind, batches[0], self._captures, placement.stage_of, placement.accumulation
            )
        traced, steps = self._traced[form], len(batches) // placement.replicas
        inference = 1 if placement.stage_of is None else steps
        count = placement.accumulation if training else inference
        specs = tf.nest.flatten(traced.results)
        names = tuple(_names(traced.results))
        sent = pipelines.Outfeed(
            names=names,
            mask=(False,) * len(names),
            buffer_depth=placement.buffer_depth,
            accumulate=placement.sums_results and self._kind.name != "predict",
            element_bytes=sum((spec.shape.num_elements() or 0) * spec.dtype.size for spec in specs),
        )
        results = StepResults()
        device = DeviceProgram(
            f"{self._model.name}_{self._kind.name}",
            traced.step,
            lambda: placement.options(traced.stages, count, steps // count, kind=self._kind.name),
            infeed=traced.feed,
            outfeed=results,
            sent=sent,
            reduction=placement.reduction,
            outside=outside_of(traced.step),
            accumulators={self._captures.name_of(each.handle): dtype for each, dtype in self._accumulators(placement)},
            summed=[self._captures.name_of(each.handle) for metric in self._model.metrics for each in metric.variables],
        )
        return _Program(traced, device, EagerHost(), results)


def _form(batch: Any) -> Any:
    """Return the key of a batch's form."""
    tensors = tf.nest.flatten(batch)
    shapes = tuple((tuple(tensor.shape), tensor.dtype.name) for tensor in tensors)
    return shapes, repr(tf.nest.map_structure(lambda _: 0, batch))


def _names(results: Any) -> list[str]:
    """Return a name for each result: its key in a dictionary, else its number."""
    if isinstance(results, Mapping):
        return [str(key) for key in sorted(results)]
    count = len(tf.nest.flatten(results))
    return [analysis.LOSS] if count == 1 else [f"output {place}" for place in range(count)]


def _packed(specs: Any, element: Sequence[Array]) -> Any:
    """Return what a step has sent in the structure of its results."""
    flat = [tf.constant(value, spec.dtype) for spec, value in zip(tf.nest.flatten(specs), element, strict=True)]
    return tf.nest.pack_sequence_as(specs, flat)
