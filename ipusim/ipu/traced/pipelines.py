"""Trace a pipeline's stages and optimizer into one node of the enclosing computation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ipusim.api import analysis, models, pipelines, rules
from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.graph.cut import Kind, cut_stages
from ipusim.ipu.graph.executable import Invocation
from ipusim.ipu.graph.needed import SHARED_TYPES
from ipusim.ipu.graph.node import Output
from ipusim.ipu.graph.own_nodes import add_node
from ipusim.ipu.graph.registry import Entry
from ipusim.ipu.graph.stage_passes import StagePasses
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.graph.traced_step import TracedStep
from ipusim.ipu.graph.tracing import StepTracer, variable_name
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.call_checks import check_takes
from ipusim.ipu.runtime.devices import exclusive_program
from ipusim.ipu.traced import python_functions as _python_functions  # noqa: F401 - registers their kernel
from ipusim.ipu.traced.device_program import DeviceProgram
from ipusim.ipu.traced.queues import Infeed, Outfeed
from ipusim.ipu.traced.sessions import EagerHost, RunningSession

tf = load()

#: Names of nodes that belong to programs, by graph; the enclosing computation does not run these nodes.
CLAIMED: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()


def add_program(
    program: DeviceProgram,
    carried: Sequence[Any] = (),
    executions: Callable[[Sequence[Any]], int | None] = lambda _: None,
) -> list[Any]:
    """Add the node that runs a program in TensorFlow's running session.

    Args:
        program: the program.
        carried: initial values of variables that the program changes and returns, such as those of a loop.
        executions: returns the executions of a run, given the carried values; None takes the number from the program's
            options.

    Returns:
        Carried values after the run, or only the operation in a list without carried values.
    """

    def run(invocation: Invocation, *values: Any) -> Any:
        assert isinstance(invocation.session, RunningSession | EagerHost)
        results = list(values[len(program.outside) :])
        count = executions(results)
        if count != 0:
            results = program.run(invocation, invocation.session, values, count)
        return tuple(results)

    graph = tf.compat.v1.get_default_graph()
    read = [graph.get_tensor_by_name(f"{tensor.node}:{tensor.number}") for tensor in program.outside]
    entry = Entry(lambda _: run, effect=True, invoked=True, value=program)
    return add_node(
        entry, [*read, *carried], [(loop_value.dtype, loop_value.shape) for loop_value in carried], program.name
    )


@dataclass(frozen=True)
class Training:
    """Result of an optimizer function.

    Attributes:
        optimizer: an optimizer of TensorFlow 1 or Keras.
        loss: the loss.
        compute: returns pairs (gradient, variable); None selects all trainable variables.
        arguments: other positional arguments of ``apply_gradients``.
        keywords: other keyword arguments of ``apply_gradients``.
    """

    optimizer: Any
    loss: Any
    compute: Callable[[], Any] | None = None
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Sending:
    """Selection of the last stage's results for the outfeed.

    Attributes:
        loss: whether to send the loss instead of the results.
        mask: per result, whether the outfeed leaves out the result; empty if the outfeed takes all results.
        accumulate: whether an execution sends the sum of results.
        dtype: dtype of the sum; None for the results' dtypes.
    """

    loss: bool = False
    mask: Sequence[bool] = ()
    accumulate: bool = False
    dtype: Any = None


def add_pipeline(
    stages: Sequence[Sequence[Callable[..., Any]]],
    options: Callable[[], Mapping[str, Any]],
    *,
    name: str,
    inputs: Sequence[Any],
    infeed: Infeed | None,
    outfeed: Outfeed | None,
    optimizer_function: Callable[..., Training] | None,
    sending: Sending,
    reduction: models.Reduction,
    accumulators: Callable[[Any], Any],
    mapping: Sequence[int],
    config: IPUConfig | None,
) -> Any:
    """Trace a pipeline into TensorFlow's current graph, and add the pipeline's node.

    Args:
        stages: functions per position of the pipeline, several for concurrent stages; a stage takes the results of
            all stages at the previous position.
        options: returns the request options, keyed like a scenario.
        name: name of the program.
        inputs: tensors for the first stage, equal for all micro-batches.
        infeed: queue of elements for the first stage, passed after the inputs. A dictionary is passed by name.
        outfeed: queue for results of the last stage.
        optimizer_function: takes the results of the last stage; None for inference.
        sending: selection of results to send.
        reduction: accumulation rule for gradients.
        accumulators: returns a variable's accumulator dtype; None for the variable's dtype.
        mapping: IPU per stage, to refuse variables shared by different IPUs; empty without this check.
        config: configuration of the pipeline; None for the active configuration.

    Returns:
        Operation of the node.

    Raises:
        ProgramError: if results have no queue, the mask has the wrong length, training has no variables, or a stage
            uses a host tensor.
        UnsupportedProgramError: if stages on several IPUs use a variable.
        ProgramTypeError: if a stage does not take the results of the previous stage.
    """
    with _claiming() as names:
        traces = _StageTraces(stages, inputs, infeed, optimizer_function, sending, outfeed, accumulators)
    _check_captures(traces.step, inputs, names)
    _check_shared_variables(traces.step, mapping)
    program = DeviceProgram(
        name,
        traces.step,
        options,
        infeed=infeed,
        outfeed=outfeed,
        outfeed_settings=traces.outfeed_settings,
        reduction=reduction,
        outside=outside_of(traces.step),
        accumulators=traces.accumulators,
        picture_names=[stage_name(function) for functions in stages for function in functions],
        config=config,
    )
    return add_program(program)[0]


@contextmanager
def _claiming() -> Iterator[set[str]]:
    """Claim the block's operations for a pipeline; yield a set, which gets the operations' names at the end."""
    graph, names = tf.compat.v1.get_default_graph(), set[str]()
    start = len(graph.get_operations())
    with exclusive_program("pipeline"):
        yield names
    names.update(node.name for node in graph.get_operations()[start:])
    CLAIMED.setdefault(graph, set()).update(names)


class _StageTraces:
    """Traced stages, gradients and weight update.

    Attributes:
        step: the step.
        outfeed_settings: outfeed settings of the last stage.
        accumulators: dtype of the gradient accumulator by shared name, for accumulators whose dtype differs from the
            variable's dtype.
    """

    def __init__(
        self,
        stages: Sequence[Sequence[Callable[..., Any]]],
        inputs: Sequence[Any],
        infeed: Infeed | None,
        optimizer_function: Callable[..., Training] | None,
        sending: Sending,
        outfeed: Outfeed | None,
        accumulators: Callable[[Any], Any],
    ) -> None:
        """Trace stages and update; raises the errors of :func:`add_pipeline`."""
        tracer = StepTracer()
        tracer.concurrent([len(functions) for functions in stages])
        values, keywords = list(inputs), {}
        if infeed is not None:
            with tracer.feed():
                element = infeed.dequeue()
            keywords = dict(element) if isinstance(element, Mapping) else {}
            values += [] if keywords else checks.as_list(element)
        result: Any = None
        for functions in stages:
            outputs: list[Any] = []
            for function in functions:
                check_takes("computational_stages", function, values, keywords)
                result = tracer.stage(function, values, keywords)
                outputs += _tensors(result)
            values, keywords = outputs, {}
        self.accumulators: dict[str, np.dtype[Any]] = {}
        self._sending = sending
        if optimizer_function is None:
            is_single_mapping = isinstance(result, Mapping) and not sending.accumulate
            self._send(tracer, outfeed, values[0] if is_single_mapping else values, None)
            return
        with tracer.of_stage(sum(map(len, stages)) - 1):
            training = optimizer_function(*values)
        compute = training.compute or (lambda: _gradients(training.optimizer, training.loss))
        pairs = tracer.gradients(lambda: _check_pairs(compute()))
        if not pairs:
            raise ProgramError("No variables to optimize.")
        dtypes = {variable_name(variable): accumulators(variable) for _, variable in pairs}
        self.accumulators = {name: np.dtype(dtype) for name, dtype in dtypes.items() if dtype is not None}
        apply = training.optimizer.apply_gradients
        tracer.update(
            lambda gradients: apply(gradients, *training.arguments, **training.keywords), pairs, self.accumulators
        )
        self._send(tracer, outfeed, training.loss if sending.loss else values, training.loss)

    def _send(self, tracer: StepTracer, outfeed: Outfeed | None, results: Any, loss: Any) -> None:
        """Set outfeed settings from the results to send, and read the graph."""
        sending, is_single = self._sending, not isinstance(results, list)
        mask = list(sending.mask)
        if mask:
            rules.check_outfeed_mask(mask, len(results))
            outputs = [result for result, is_masked in zip(results, mask, strict=True) if not is_masked]
            flat_mask = [
                is_masked for result, is_masked in zip(results, mask, strict=True) for _ in tf.nest.flatten(result)
            ]
        else:
            outputs, flat_mask = results, []
        flat_results = tf.nest.flatten(results)
        if outfeed is None and tf.nest.flatten(outputs) and not sending.loss:
            raise ProgramError(
                f"The last computational stage has tensor outputs: {', '.join(map(str, tf.nest.flatten(outputs)))}, "
                "but no outfeed_queue has been provided."
            )
        if outfeed is not None:
            outfeed.describe(outputs, sending.dtype if sending.accumulate else None)
        names = tuple(
            analysis.LOSS if result is loss or (is_single and loss is not None) else f"output {number}"
            for number, result in enumerate(flat_results)
        )
        self.outfeed_settings = pipelines.Outfeed(names=names, mask=(True,) * len(names))
        if outfeed is not None:
            dtype = np.dtype(sending.dtype).name if sending.accumulate and sending.dtype is not None else ""
            self.outfeed_settings = pipelines.Outfeed(
                element_bytes=outfeed.element_bytes,
                mode="ALL" if outfeed.keeps_all else "LAST",
                buffer_depth=outfeed.buffer_depth,
                accumulate=sending.accumulate,
                names=names,
                mask=tuple(flat_mask),
                accumulate_dtype=dtype,
            )
        self.step = tracer.step(flat_results)


def _check_pairs(pairs: Any) -> Any:
    """Return the result of ``compute_gradients`` after a check of its type."""
    checks.instance("compute_gradients", pairs, list | tuple, "pairs of a gradient and a variable")
    return pairs


def stage_name(function: Callable[..., Any]) -> str:
    """Return the name of a stage's function; empty for nameless functions and functions of ipusim."""
    while isinstance(function, partial):
        function = function.func
    name = str(getattr(function, "__name__", ""))
    is_ipusims = str(getattr(function, "__module__", "")).partition(".")[0] == __name__.partition(".")[0]
    return name if name.isidentifier() and not is_ipusims else ""


def _check_captures(step: TracedStep, inputs: Sequence[Any], names: set[str]) -> None:
    """Raise ProgramError with Graphcore's message if a stage uses tensors from outside the pipeline."""
    input_names = {tensor.op.name for tensor in inputs if isinstance(tensor, tf.Tensor)}
    for name, role in step.trace.owners.items():
        for source in step.graph.nodes[name].inputs if role.kind is Kind.FORWARD else ():
            if source.node in input_names or source.node in names or step.graph.nodes[source.node].type in SHARED_TYPES:
                continue
            tensor = tf.compat.v1.get_default_graph().get_tensor_by_name(f"{source.node}:{source.number}")
            if tensor.dtype != tf.resource:
                raise ProgramError(
                    f"Trying to capture the tensor {tensor} which is not a resource. This tensor needs to be passed as "
                    "either part of the `input` or `infeed_queue` of the pipeline."
                )


def _check_shared_variables(step: TracedStep, mapping: Sequence[int]) -> None:
    """Raise UnsupportedProgramError with Graphcore's message if stages on several IPUs use a variable."""
    stage_of_variable: dict[str, int] = {}
    positions = step.trace.position_of
    for number, stage_cut in enumerate(cut_stages(step.trace) if mapping else ()):
        for name in StagePasses(step.graph, stage_cut).variables:
            first_stage = stage_of_variable.setdefault(name, number)
            if mapping[first_stage] != mapping[number]:
                raise UnsupportedProgramError(
                    f"The PipelineStage with ID {positions[number]} is trying to use an input ({name}) which is "
                    f"already used by the PipelineStage with ID {positions[first_stage]}. This violates the dataflow "
                    "constraints because an input can only be used by pipeline stages on the same IPU.\nIf the model "
                    "requires for multiple pipeline stages to access the same `tf.Variable` then these pipeline "
                    "stages need to placed onto the same IPU using the `device_mapping` argument to "
                    "`tf.python.ipu.pipelining_ops.pipeline`."
                )


def _gradients(optimizer: Any, loss: Any) -> list[tuple[Any, Any]]:
    """Return pairs (gradient, variable); for Keras optimizers TensorFlow computes the gradients."""
    graph = tf.compat.v1.get_default_graph()
    in_function = hasattr(graph, "captures")
    variables = captured_trainable(graph) if in_function else tf.compat.v1.trainable_variables()
    if hasattr(optimizer, "compute_gradients") and variables:
        pairs: list[tuple[Any, Any]] = optimizer.compute_gradients(
            loss, **({"var_list": variables} if in_function else {})
        )
        return pairs
    return list(zip(tf.gradients(loss, variables), variables, strict=True))


def captured_trainable(graph: Any) -> list[Any]:
    """Return trainable variables read so far by a TensorFlow 2 function, ordered by first use."""
    watched = {id(variable.handle): variable for variable in graph._watched_variables if variable.trainable}
    return [watched[id(outside)] for outside, _ in graph.captures if id(outside) in watched]


def _tensors(result: Any) -> list[Any]:
    """Return a stage's results without operations, as tensors or dictionaries of tensors."""
    return [
        tf.nest.map_structure(tf.convert_to_tensor, value)
        for value in checks.as_list(result)
        if value is not None and not isinstance(value, tf.Operation)
    ]


def outside_of(step: TracedStep) -> tuple[Output, ...]:
    """Return the tensors that a step's passes and weight update read but do not compute."""
    constants_of_stages = [StagePasses(step.graph, stage_cut).constants for stage_cut in cut_stages(step.trace)]
    if step.update_nodes:
        constants_of_stages.append(step.weight_update().external)
    constants = dict.fromkeys(tensor for tensors in constants_of_stages for tensor in tensors)
    return tuple(tensor for tensor in constants if tensor not in step.trace.update_inputs)
