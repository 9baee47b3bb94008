"""Trace training, evaluation and prediction steps for one batch shape."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ipusim.api import Array
from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.graph.cut import FEED
from ipusim.ipu.graph.executable import shared_name
from ipusim.ipu.graph.needed import NeededNodes, runs_for_effect
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.prices.view import is_constant
from ipusim.ipu.graph.split import as_one_pass, shards_of
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.graph.traced_step import TracedStep
from ipusim.ipu.traced.keras.captures import Captures
from ipusim.ipu.traced.keras.rules import rule_of_optimizer
from ipusim.ipu.traced.keras.stages import StageFunctions, model_inputs, symbolic_calls
from ipusim.ipu.traced.keras.step_tracer import ModelTracer
from ipusim.ipu.traced.queues import Infeed, Outfeed
from ipusim.ipu.traced.sessions import LOCK, EagerHost, RunningSession

tf = load()

#: Returns the stage per layer call of a model.
StageOf = Callable[[Sequence[Any]], Sequence[int]]


class BatchFeed(Infeed):
    """Queue of an execution's batches."""

    def __init__(self, batch: Any) -> None:
        """Take the structure of a batch."""
        self.structure = tf.nest.map_structure(
            lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), batch, expand_composites=False
        )
        self.elements: deque[list[Array]] = deque()

    def connect(self, session: RunningSession | EagerHost) -> None:
        """Ignore sessions: batches enter the queue before an execution."""

    def replicate(self, program: Any, replicas: int) -> None:
        """Ignore replicas: executions have separate queues."""

    def pull(self) -> list[Array]:
        """Return the next batch."""
        return self.elements.popleft()


class StepResults(Outfeed):
    """Queue of results sent by an execution's micro-batches.

    Attributes:
        elements: received elements.
    """

    def __init__(self) -> None:
        """Begin without elements."""
        super().__init__()
        self.elements: list[list[Array]] = []

    def add(self, session: Any, element: Sequence[Array]) -> None:
        """Add an element that arrived on the host."""
        self.elements.append([np.asarray(value) for value in element])


@dataclass(frozen=True, eq=False)
class ModelStep:
    """A traced step of a model.

    Attributes:
        step: the step.
        feed: queue of batches.
        results: structure of the results, with ``tf.TensorSpec`` leaves.
        stage_count: number of stages.
        function: TensorFlow function, which keeps the graph alive.
    """

    step: TracedStep
    feed: BatchFeed
    results: Any
    stage_count: int
    function: Any


class StepKind:
    """A kind of step: training, evaluation or prediction.

    Attributes:
        name: ``train``, ``test`` or ``predict``, as in ``<name>_step`` and ``make_<name>_function``.
        training: whether the step trains.
    """

    def __init__(self, name: str) -> None:
        """Take the name."""
        self.name, self.training = name, name == "train"

    def is_keras_own(self, model: Any) -> bool:
        """Tell whether a model inherits tf_keras' step, which returns the results of the model's metrics."""
        method = f"{self.name}_step"
        return self.name != "predict" and getattr(type(model), method) is getattr(tf.keras.Model, method)


def trace_step(
    model: Any, kind: StepKind, batch: Any, captures: Captures, stage_of: StageOf | None, accumulation: int
) -> ModelStep:
    """Trace a step of a model.

    Args:
        model: the model.
        kind: kind of step.
        batch: a batch with the traced shapes.
        captures: names of variables.
        stage_of: returns the stage per layer call; None for a model without pipelining.
        accumulation: number of batches per weight update.

    Raises:
        UnsupportedProgramError: if the training's gradients cannot be accumulated.
    """
    trace = _Tracing(model, kind, batch, captures)
    body = trace.as_one_stage if stage_of is None else trace.in_stages(stage_of)
    with LOCK:
        step = trace.run(body, separate_update=kind.training)
        if step is None and stage_of is None and accumulation == 1:
            step = trace.run(body, separate_update=False)
    if step is None:
        raise UnsupportedProgramError(
            f"{type(model).__name__}.train_step: expected one apply_gradients of the model's optimizer, and results "
            "that do not depend on gradients, where gradients are accumulated"
        )
    return step


class _Tracing:
    """Traces the body of a step."""

    def __init__(self, model: Any, kind: StepKind, batch: Any, captures: Captures) -> None:
        self._model, self._kind, self._captures = model, kind, captures
        self._feed = BatchFeed(batch)

    def run(self, body: Callable[[ModelTracer], Any], *, separate_update: bool) -> ModelStep | None:
        """Trace a body; return None if ``separate_update`` is impossible."""
        traces: list[tuple[ModelTracer, Any]] = []

        def step() -> None:
            tracer = ModelTracer(self._captures)
            with ExitStack() as stack:
                if self._kind.training:
                    stack.enter_context(tracer.taking_gradients())
                if separate_update:
                    stack.enter_context(tracer.updating(self._model.optimizer))
                traces.append((tracer, body(tracer)))

        function = tf.function(step, autograph=False).get_concrete_function()
        tracer, results = traces[-1]
        tensors = tf.nest.flatten(results)
        if self._kind.training:  # a slot's name then contains the variable's name
            for variable in getattr(self._model.optimizer, "variables", tuple)():
                self._captures.name_of(variable.handle, variable.name)
        result: TracedStep | None
        if separate_update:
            result = tracer.training_step(tensors)
            result = result and replace(result, rule=rule_of_optimizer(self._model.optimizer), averages=True)
        else:
            result = tracer.step(tensors)
            if self._kind.training:
                trace = result.trace
                feeds = [name for name, role in trace.owners.items() if role == FEED]
                names = {*trace.owners, *trace.gradient_nodes}
                result = as_one_pass(trace.graph, names, feeds, trace.results, shards_of(trace.graph, names))
        if result is None:
            return None
        result = replace(result, trace=replace(result.trace, uncounted=self._metric_sums(result)))
        result_specs = tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), results)
        return ModelStep(result, self._feed, result_specs, result.trace.stage_count, function)

    def _metric_sums(self, step: TracedStep) -> list[str]:
        """Return the names of nodes in metrics' sums, which the host computes."""
        trace, nodes = step.trace, step.graph.nodes
        metric_names = {
            self._captures.name_of(variable.handle) for metric in self._model.metrics for variable in metric.variables
        }
        effects = [
            name
            for name in trace.owners
            if runs_for_effect(nodes[name])
            and not any(shared_name(nodes[tensor.node]) in metric_names for tensor in nodes[name].inputs)
        ]
        names_of_effects = NeededNodes(step.graph, (), list(trace.gradients.values()), effects).names
        constancy: dict[str, bool] = {}
        return [
            name
            for name in trace.owners
            if name not in names_of_effects and _takes_numbers(nodes, nodes[name], constancy)
        ]

    def as_one_stage(self, tracer: ModelTracer) -> Any:
        """Trace the model's step as one stage."""
        with tracer.feed():
            batch = self._feed.dequeue()
        with tracer.of_stage(0), _converting() as converted:
            step = getattr(self._model, f"{self._kind.name}_step")
            return tf.nest.map_structure(tf.identity, converted(step)(batch))

    def in_stages(self, stage_of: StageOf) -> Callable[[ModelTracer], Any]:
        """Return a body that calls the model's layers stage by stage."""
        model, training = self._model, self._kind.training
        x, _, _ = _unpack(self._feed.structure)
        calls = symbolic_calls(model, x)

        def body(tracer: ModelTracer) -> Any:
            with tracer.feed():
                batch = self._feed.dequeue()
            stages = StageFunctions(
                calls,
                stage_of(calls.nodes),
                training,
                lambda flat: model_inputs(model, self._batch(flat)[0]),
                self._finish,
            ).functions()
            values: Any = tf.nest.flatten(batch)
            tape = tf.GradientTape()
            with _converting(), tape if training else nullcontext():
                for function in stages:
                    values = tracer.stage(function, values)
            loss, results = values
            if training:
                with tracer.of_stage(len(stages) - 1):
                    model.optimizer.minimize(loss, model.trainable_variables, tape=tape)
            return results

        return body

    def _batch(self, flat: list[Any]) -> tuple[Any, Any, Any]:
        """Return inputs, labels and sample weights from the tensors of a batch."""
        return _unpack(tf.nest.pack_sequence_as(self._feed.structure, flat))

    def _finish(self, outputs: Any, losses: list[Any], flat: list[Any]) -> tuple[Any, Any]:
        """Return a batch's loss, and results to send."""
        model = self._model
        x, y, weights = self._batch(flat)
        if self._kind.name == "predict":
            return None, tf.nest.map_structure(tf.identity, outputs)
        if type(model).compute_loss is tf.keras.Model.compute_loss:
            loss = model.compiled_loss(y, outputs, weights, regularization_losses=losses)
        else:
            loss = model.compute_loss(x, y, outputs, weights)
        if self._kind.training:
            model._validate_target_and_loss(y, loss)
        return loss, tf.nest.map_structure(tf.identity, model.compute_metrics(x, y, outputs, weights))


def _takes_numbers(nodes: Mapping[str, Node], node: Node, constancy: dict[str, bool]) -> bool:
    """Tell whether a node takes only single numbers, constants and variables."""
    return all(
        maker.type == "VarHandleOp" or maker.output_shapes[number] == () or is_constant(nodes, maker, constancy)
        for maker, number in ((nodes[tensor.node], tensor.number) for tensor in node.inputs)
    )


def _unpack(batch: Any) -> tuple[Any, Any, Any]:
    """Return inputs, labels and sample weights of a batch."""
    parts: tuple[Any, Any, Any] = tf.keras.utils.unpack_x_y_sample_weight(batch)
    return parts


@contextmanager
def _converting() -> Iterator[Callable[[Any], Any]]:
    """Let AutoGraph convert branches and loops in the model's code, as in tf_keras; yield the converter."""
    outside = tf.__internal__.autograph.control_status_ctx()
    inside = type(outside)(type(outside.status).ENABLED)
    with inside:
        yield lambda function: tf.__internal__.autograph.tf_convert(function, inside)
