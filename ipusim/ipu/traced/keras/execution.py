"""Execute programs on simulated IPUs for a model's fit, evaluate and predict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Protocol

import numpy as np

from ipusim.api import Array, Timeline, analysis, pipelines
from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.graph.executable import Invocation
from ipusim.ipu.graph.tape import note_origins
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.traced.device_program import DeviceProgram
from ipusim.ipu.traced.keras import callbacks
from ipusim.ipu.traced.keras.captures import Captures
from ipusim.ipu.traced.keras.steps import ModelStep, StepKind, StepResults, trace_step
from ipusim.ipu.traced.pipelines import outside_of
from ipusim.ipu.traced.sessions import LOCK, EagerHost

tf = load()

#: Kinds of steps with a function in tf_keras.
KINDS: Final = tuple(map(StepKind, ("train", "test", "predict")))


class Placement(Protocol):
    """Placement of a model on simulated IPUs."""

    @property
    def settings(self) -> Any:
        """Settings that a user may change.

        ``stage_of`` is the function from layer calls to stages, or None for models without stages. ``accumulation`` is
        the number of batches per weight update, ``reduction`` the rule for their gradients, and ``buffer_depth`` the
        capacity of the host's buffer. ``sums_results`` tells whether the IPUs sum results, and ``asynchronous`` whether
        callbacks run for every step. ``version`` changes with every change of a setting.
        """

    @property
    def replicas(self) -> int:
        """Number of replicas; every replica takes a separate batch per step."""

    def accumulator_dtype(self, variable: Any) -> np.dtype[Any] | None:
        """Return the dtype of a variable's gradient accumulator; None for the variable's dtype."""

    def check(self, batch: Any, kind: str, steps: int) -> None:
        """Refuse executions forbidden by the placement.

        Args:
            batch: first batch, which builds an unbuilt model.
            kind: ``train``, ``test`` or ``predict``.
            steps: number of batches per execution.
        """

    def request(self, stages: int, count: int, repeats: int, *, kind: str) -> Mapping[str, Any]:
        """Return the request options, keyed like a scenario.

        Args:
            stages: number of stages.
            count: number of batches per item; an item is a weight update or a whole inference.
            repeats: number of items.
            kind: ``train``, ``test`` or ``predict``.
        """


#: Attribute of a model for its placement; set in ``__dict__``, so tf_keras does not track the placement.
_PLACEMENT: Final = "_ipu_placement"
#: Original tf_keras functions, by name of the method that makes them.
_ORIGINAL: Final[dict[str, Callable[..., Any]]] = {}


def place(model: Any, placement: Placement) -> None:
    """Place a model on simulated IPUs."""
    model.__dict__[_PLACEMENT] = placement


def placement_of(model: Any) -> Placement | None:
    """Return a model's placement; None for a host model."""
    placement: Placement | None = model.__dict__.get(_PLACEMENT)
    return placement


def install() -> None:
    """Let placed models train, evaluate and predict on simulated IPUs."""
    note_origins()
    for kind in KINDS:
        name = f"make_{kind.name}_function"
        if not _ORIGINAL:
            callbacks.install()
        if name not in _ORIGINAL:
            _ORIGINAL[name] = getattr(tf.keras.Model, name)
            setattr(tf.keras.Model, name, _function_maker(kind, _ORIGINAL[name]))


def _function_maker(kind: StepKind, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method that makes the function for a kind of step."""
    attribute = f"{kind.name}_function"

    def make(self: Any, force: bool = False) -> Any:
        if placement_of(self) is None:
            return original(self, force)
        execution = getattr(self, attribute)
        if execution is None or force:
            execution = Execution(self, kind)
            setattr(self, attribute, execution)
        return execution

    return make


@dataclass(frozen=True, eq=False)
class _Program:
    """A program for a fixed number of steps on the machine."""

    model_step: ModelStep
    device: DeviceProgram
    host: EagerHost
    results: StepResults


class Execution:
    """Executes steps of one kind; returned by ``make_*_function``.

    Attributes:
        timelines: Timeline per program of the last call.
        each_step: results per step of the last call, for callbacks; empty if callbacks run only for the last step.
    """

    def __init__(self, model: Any, kind: StepKind) -> None:
        """Begin without programs."""
        self._model, self._kind = model, kind
        self._captures = Captures()
        self._steps: dict[Any, ModelStep] = {}
        self._programs: dict[Any, _Program] = {}
        self._version = -1
        self.timelines: list[Timeline] = []
        self.each_step: list[Any] = []

    def __call__(self, iterator: Iterator[Any]) -> Any:
        """Execute the model's number of steps per execution.

        Args:
            iterator: yields batches.

        Returns:
            Results of the last step; a prediction returns the joined results of all steps.
        """
        model, placement = self._model, placement_of(self._model)
        assert placement is not None
        configured_steps = model._steps_per_execution
        steps = 1 if configured_steps is None else int(configured_steps.numpy())
        first_batch, _ = self._pull(iterator, 1)
        if first_batch:
            placement.check(first_batch[0], self._kind.name, steps)
        replicas = placement.replicas  # read after the check, which may build the model
        further_batches, error = self._pull(iterator, steps * replicas - len(first_batch))
        batches = [*first_batch, *further_batches]
        batches = batches[: len(batches) // replicas * replicas]
        if placement.settings.version != self._version:
            self._steps, self._programs, self._version = {}, {}, placement.settings.version
        self.timelines = []
        results: list[Any] = []
        for form, group in groupby(batches, _batch_form):
            results += self._run(form, list(group), placement)
        getattr(model, f"_{self._kind.name}_counter").assign_add(len(batches) // replicas)
        if error is not None:
            raise error
        sums = placement.settings.sums_results and self._kind.name != "predict"
        self.each_step = results if placement.settings.asynchronous and not sums else []
        if sums or (replicas > 1 and self._kind.is_keras_own(model)):
            return model.get_metrics_result()
        if self._kind.name == "predict":
            return tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), *results)
        return results[-1]

    @staticmethod
    def _pull(iterator: Iterator[Any], steps: int) -> tuple[list[Any], Exception | None]:
        """Return the next batches, and the exception that ended the iterator early."""
        batches: list[Any] = []
        try:
            for _ in range(steps):
                batches.append(next(iterator))
        except (StopIteration, tf.errors.OutOfRangeError) as error:
            return batches, error
        return batches, None

    def _run(self, form: Any, batches: Sequence[Any], placement: Placement) -> list[Any]:
        """Execute steps on batches of one shape; return the results per step."""
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
                program.model_step.feed.elements.append([tensor.numpy() for tensor in tf.nest.flatten(batch)])
            program.results.elements.clear()
            variables = self._captures.variables()
            program.device.run(Invocation(variables), program.host, (), None, self._update_count())
            self._captures.assign(variables.values())
            self.timelines.append(program.device.timelines[program.host])
            return [
                result
                for element in program.results.elements
                for result in self._results_of_element(program, element, replicas)
            ]

    def _update_count(self) -> int | None:
        """Return the number of earlier weight updates, the seed of random draws; None without training."""
        if not self._kind.training:
            return None
        model = self._model
        return int(getattr(model.optimizer, "iterations", model._train_counter))

    def _results_of_element(self, program: _Program, element: Sequence[Array], replicas: int) -> list[Any]:
        """Return an element's results: one per replica in a prediction, else the mean over replicas."""
        specs = program.model_step.results
        if replicas == 1:
            return [_pack(specs, element)]
        if self._kind.name == "predict":
            return [_pack(specs, [value[replica] for value in element]) for replica in range(replicas)]
        return [_pack(specs, [value.mean(axis=0, dtype=value.dtype) for value in element])]

    def _place(self, form: Any, batches: Sequence[Any], placement: Placement) -> _Program:
        """Return a new program for a number of batches of one shape."""
        training, settings = self._kind.training, placement.settings
        if form not in self._steps:
            self._steps[form] = trace_step(
                self._model,
                self._kind,
                batches[0],
                self._captures,
                settings.stage_of,
                settings.accumulation,
            )
        step, steps = self._steps[form], len(batches) // placement.replicas
        inference = 1 if settings.stage_of is None else steps
        count = settings.accumulation if training else inference
        specs = tf.nest.flatten(step.results)
        names = tuple(_result_names(step.results))
        outfeed = pipelines.Outfeed(
            names=names,
            mask=(False,) * len(names),
            buffer_depth=settings.buffer_depth,
            accumulate=settings.sums_results and self._kind.name != "predict",
            element_bytes=sum((spec.shape.num_elements() or 0) * spec.dtype.size for spec in specs),
        )
        results = StepResults()
        device = DeviceProgram(
            f"{self._model.name}_{self._kind.name}",
            step.step,
            lambda: placement.request(step.stage_count, count, steps // count, kind=self._kind.name),
            infeed=step.feed,
            outfeed=results,
            outfeed_settings=outfeed,
            reduction=settings.reduction,
            outside=outside_of(step.step),
            accumulators={
                self._captures.name_of(variable.handle): dtype
                for variable in (self._model.trainable_variables if training else ())
                if (dtype := placement.accumulator_dtype(variable)) is not None
            },
            summed_names=[
                self._captures.name_of(variable.handle)
                for metric in self._model.metrics
                for variable in metric.variables
            ],
        )
        return _Program(step, device, EagerHost(), results)


def _batch_form(batch: Any) -> Any:
    """Return the key of a batch's shapes, dtypes and structure."""
    tensors = tf.nest.flatten(batch)
    shapes = tuple((tuple(tensor.shape), tensor.dtype.name) for tensor in tensors)
    return shapes, repr(tf.nest.map_structure(lambda _: 0, batch))


def _result_names(results: Any) -> list[str]:
    """Return a name per result: the dictionary key, else a number."""
    if isinstance(results, Mapping):
        return [str(key) for key in sorted(results)]
    count = len(tf.nest.flatten(results))
    return [analysis.LOSS] if count == 1 else [f"output {number}" for number in range(count)]


def _pack(specs: Any, element: Sequence[Array]) -> Any:
    """Return an element's values in the step's result structure."""
    flat = [tf.constant(value, spec.dtype) for spec, value in zip(tf.nest.flatten(specs), element, strict=True)]
    return tf.nest.pack_sequence_as(specs, flat)
