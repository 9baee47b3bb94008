"""The steps of training, evaluation and prediction, traced for one form of a batch."""

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

#: Returns the stage of each call of a model.
StageOf = Callable[[Sequence[Any]], Sequence[int]]


class BatchFeed(Infeed):
    """The batches of an execution, as a queue that a step takes elements of."""

    def __init__(self, batch: Any) -> None:
        """Take the form of a batch."""
        self.structure = tf.nest.map_structure(
            lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), batch, expand_composites=False
        )
        self.elements: deque[list[Array]] = deque()

    def connect(self, session: RunningSession | EagerHost) -> None:
        """Do nothing: batches are put into the queue before an execution."""

    def replicate(self, program: Any, replicas: int) -> None:
        """Do nothing: an execution has a queue of its own."""

    def pull(self) -> list[Array]:
        """Return the next batch."""
        return self.elements.popleft()


class StepResults(Outfeed):
    """What the micro-batches of an execution send.

    Attributes:
        elements: what has come.
    """

    def __init__(self) -> None:
        """Begin without elements."""
        super().__init__()
        self.elements: list[list[Array]] = []

    def add(self, session: Any, element: Sequence[Array]) -> None:
        """Add an element that has come to the host."""
        self.elements.append([np.asarray(value) for value in element])


@dataclass(frozen=True, eq=False)
class ModelStep:
    """A traced step of a model.

    Attributes:
        step: the step.
        feed: queue of its batches.
        results: structure of its results, with a ``tf.TensorSpec`` at each place.
        stages: number of its stages.
        function: TensorFlow's function; its graph lives as long as the step.
    """

    step: TracedStep
    feed: BatchFeed
    results: Any
    stages: int
    function: Any


class StepKind:
    """A kind of steps.

    Attributes:
        name: ``train``, ``test`` or ``predict``: of the methods ``<name>_step`` and ``make_<name>_function``.
        training: whether it trains.
    """

    def __init__(self, name: str) -> None:
        """Take the name."""
        self.name, self.training = name, name == "train"

    def is_keras_own(self, model: Any) -> bool:
        """Tell whether a model's step is tf_keras' own, whose results are those of the model's metrics."""
        method = f"{self.name}_step"
        return self.name != "predict" and getattr(type(model), method) is getattr(tf.keras.Model, method)


def trace_step(
    model: Any, kind: StepKind, batch: Any, captures: Captures, stage_of: StageOf | None, accumulation: int
) -> ModelStep:
    """Trace a step.

    Args:
        model: the model.
        kind: what the step is for.
        batch: a batch of the form that it is traced for.
        captures: names of variables.
        stage_of: returns the stage of each call of the model; None for a model that is not pipelined.
        accumulation: number of batches of a weight update.

    Raises:
        UnsupportedProgramError: for a training whose gradients cannot be accumulated.
    """
    trace = _Tracing(model, kind, batch, captures)
    body = trace.whole if stage_of is None else trace.pipelined(stage_of)
    with LOCK:
        found = trace.run(body, apart=kind.training)
        if found is None and stage_of is None and accumulation == 1:
            found = trace.run(body, apart=False)
    if found is None:
        raise UnsupportedProgramError(
            f"{type(model).__name__}.train_step: expected one apply_gradients of the model's optimizer, and results "
            "that do not depend on gradients, where gradients are accumulated"
        )
    return found


class _Tracing:
    """Traces the body of a step."""

    def __init__(self, model: Any, kind: StepKind, batch: Any, captures: Captures) -> None:
        self._model, self._kind, self._captures = model, kind, captures
        self._feed = BatchFeed(batch)

    def run(self, body: Callable[[ModelTracer], Any], *, apart: bool) -> ModelStep | None:
        """Trace a body, with its weight update apart or not; return None where the update cannot be apart."""
        traced: list[tuple[ModelTracer, Any]] = []

        def step() -> None:
            tracer = ModelTracer(self._captures)
            with ExitStack() as stack:
                if self._kind.training:
                    stack.enter_context(tracer.taking_gradients())
                if apart:
                    stack.enter_context(tracer.updating(self._model.optimizer))
                traced.append((tracer, body(tracer)))

        function = tf.function(step, autograph=False).get_concrete_function()
        tracer, results = traced[-1]
        tensors = tf.nest.flatten(results)
        if self._kind.training:  # the names of slots tell whose they are
            for variable in getattr(self._model.optimizer, "variables", tuple)():
                self._captures.name_of(variable.handle, variable.name)
        found: TracedStep | None
        if apart:
            found = tracer.training_step(tensors)
            found = found and replace(found, rule=rule_of_optimizer(self._model.optimizer), averages=True)
        else:
            found = tracer.step(tensors)
            if self._kind.training:
                trace = found.trace
                feeds = [name for name, role in trace.owners.items() if role == FEED]
                names = {*trace.owners, *trace.gradient_nodes}
                found = as_one_pass(trace.graph, names, feeds, trace.results, shards_of(trace.graph, names))
        if found is None:
            return None
        found = replace(found, trace=replace(found.trace, uncounted=self._sums_of_metrics(found)))
        forms = tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), results)
        return ModelStep(found, self._feed, forms, found.trace.stages, function)

    def _sums_of_metrics(self, step: TracedStep) -> list[str]:
        """Return the nodes that add numbers up for metrics alone: the host keeps means over batches."""
        trace, nodes = step.trace, step.graph.nodes
        kept = {self._captures.name_of(variable.handle) for each in self._model.metrics for variable in each.variables}
        effects = [
            name
            for name in trace.owners
            if runs_for_effect(nodes[name])
            and not any(shared_name(nodes[tensor.node]) in kept for tensor in nodes[name].inputs)
        ]
        needed = NeededNodes(step.graph, (), list(trace.gradients.values()), effects).names
        constant: dict[str, bool] = {}
        return [name for name in trace.owners if name not in needed and _takes_numbers(nodes, nodes[name], constant)]

    def whole(self, tracer: ModelTracer) -> Any:
        """Trace the model's own step as one stage."""
        with tracer.feed():
            batch = self._feed.dequeue()
        with tracer.of_stage(0), _converting() as converted:
            step = getattr(self._model, f"{self._kind.name}_step")
            return tf.nest.map_structure(tf.identity, converted(step)(batch))

    def pipelined(self, stage_of: StageOf) -> Callable[[ModelTracer], Any]:
        """Return the body that calls the model's layers stage by stage."""
        model, training = self._model, self._kind.training
        x, _, _ = _unpacked(self._feed.structure)
        calls = symbolic_calls(model, x)

        def body(tracer: ModelTracer) -> Any:
            with tracer.feed():
                batch = self._feed.dequeue()
            stages = StageFunctions(calls, stage_of(calls.nodes), training, self._begin, self._finish).functions()
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

    def _begin(self, flat: list[Any]) -> list[Any]:
        """Return the inputs of a batch as the model takes them."""
        return model_inputs(self._model, self._batch(flat)[0])

    def _batch(self, flat: list[Any]) -> tuple[Any, Any, Any]:
        return _unpacked(tf.nest.pack_sequence_as(self._feed.structure, flat))

    def _finish(self, outputs: Any, losses: list[Any], flat: list[Any]) -> tuple[Any, Any]:
        """Return the loss of a batch, and what the step sends."""
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


def _takes_numbers(nodes: Mapping[str, Node], node: Node, constant: dict[str, bool]) -> bool:
    """Tell whether a node takes single numbers, constants and variables alone."""
    return all(
        maker.type == "VarHandleOp" or maker.output_shapes[number] == () or is_constant(nodes, maker, constant)
        for maker, number in ((nodes[tensor.node], tensor.number) for tensor in node.inputs)
    )


def _unpacked(batch: Any) -> tuple[Any, Any, Any]:
    """Return inputs, labels and sample weights of a batch."""
    parts: tuple[Any, Any, Any] = tf.keras.utils.unpack_x_y_sample_weight(batch)
    return parts


@contextmanager
def _converting() -> Iterator[Callable[[Any], Any]]:
    """Let Python's branches and loops in a model's own code become TensorFlow's, as in a function of tf_keras'."""
    outside = tf.__internal__.autograph.control_status_ctx()
    inside = type(outside)(type(outside.status).ENABLED)
    with inside:
        yield lambda function: tf.__internal__.autograph.tf_convert(function, inside)
