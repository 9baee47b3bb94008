"""A pipeline's stages and optimizer, traced into one node of the computation around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from ipusim.api import analysis, models, pipelines
from ipusim.ipu.graph.cut import cut
from ipusim.ipu.graph.executable import Invocation
from ipusim.ipu.graph.node import Output
from ipusim.ipu.graph.own_nodes import add_node
from ipusim.ipu.graph.registry import Entry
from ipusim.ipu.graph.stage_passes import StagePasses
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.graph.traced_step import TracedStep
from ipusim.ipu.graph.tracing import StepTracer
from ipusim.ipu.traced import python_functions as _python_functions  # noqa: F401 - registers their kernel
from ipusim.ipu.traced.device_program import DeviceProgram
from ipusim.ipu.traced.queues import Infeed, Outfeed
from ipusim.ipu.traced.sessions import EagerHost, RunningSession

tf = load()

#: Names of the nodes of programs by graph. The computation around a program does not run them.
CLAIMED: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()


class ProgramNode:
    """The program behind a node.

    Attributes:
        program: the program.
    """

    def __init__(self, program: DeviceProgram) -> None:
        """Take the program."""
        self.program = program

    def kernel(self, _: Any) -> Callable[..., Any]:
        """Return the node's kernel, which runs the program in the session of the invocation."""

        def run(invocation: Invocation, *values: Any) -> Any:
            assert isinstance(invocation.session, RunningSession | EagerHost)
            results = self.program.run(invocation, invocation.session, values)
            return results[0] if len(results) == 1 else tuple(results) or None

        return run


def add_pipeline(
    stages: Sequence[Callable[..., Any]],
    options: Callable[[], Mapping[str, Any]],
    *,
    name: str = "pipeline",
    inputs: Sequence[Any] = (),
    infeed: Infeed | None = None,
    outfeed: Outfeed | None = None,
    optimizer_function: Callable[..., tuple[Any, Any]] | None = None,
    outfeed_loss: bool = False,
    reduction: models.Reduction = "SUM",
) -> Any:
    """Trace a pipeline into the graph that is being built, and write its node.

    Args:
        stages: functions of the stages; a stage takes the results of the stage before.
        options: returns the options of the request by the keys of a scenario.
        name: name of the program.
        inputs: tensors that the first stage takes, the same for every micro-batch.
        infeed: queue of elements for the first stage, behind the inputs. A dictionary is passed by name.
        outfeed: queue that results of the last stage are sent to.
        optimizer_function: takes the results of the last stage, returns the optimizer and the loss; None for inference.
        outfeed_loss: whether the loss is sent, else the results of the last stage.
        reduction: how gradients are accumulated.

    Returns:
        The node's operation.
    """
    graph = tf.compat.v1.get_default_graph()
    start = len(graph.get_operations())
    step, results = _traced(stages, inputs, infeed, optimizer_function, outfeed_loss=outfeed_loss)
    CLAIMED.setdefault(graph, set()).update(node.name for node in graph.get_operations()[start:])
    if outfeed is not None:
        outfeed.describe(results[0] if outfeed_loss else results)
    names = (analysis.LOSS,) if outfeed_loss else tuple(f"output {place}" for place in range(len(results)))
    sent = pipelines.Outfeed(
        names=names,
        mask=(outfeed is None,) * len(names),
        element_bytes=0 if outfeed is None else outfeed.element_bytes,
    )
    outside = outside_of(step)
    program = DeviceProgram(
        name, step, options, infeed=infeed, outfeed=outfeed, sent=sent, reduction=reduction, outside=outside
    )
    entry = Entry(ProgramNode(program).kernel, effect=True, invoked=True, value=program)
    read = [graph.get_tensor_by_name(f"{tensor.node}:{tensor.number}") for tensor in outside]
    return add_node(entry, read, [], name)[0]


def _traced(
    stages: Sequence[Callable[..., Any]],
    inputs: Sequence[Any],
    infeed: Infeed | None,
    optimizer_function: Callable[..., tuple[Any, Any]] | None,
    *,
    outfeed_loss: bool,
) -> tuple[TracedStep, list[Any]]:
    """Trace stages, gradients and weight update; return the step and the tensors to send."""
    tracer = StepTracer()
    values, named = list(inputs), {}
    if infeed is not None:
        with tracer.feed():
            element = infeed.dequeue()
        named = dict(element) if isinstance(element, Mapping) else {}
        values += [] if named else tf.nest.flatten(element)
    for function in stages:
        values, named = listed(tracer.stage(function, values, named)), {}
    if optimizer_function is None:
        return tracer.step(values), values
    with tracer.of_stage(len(stages) - 1):
        optimizer, loss = optimizer_function(*values)
    pairs = tracer.gradients(lambda: _gradients(optimizer, loss))
    tracer.update(optimizer.apply_gradients, pairs)
    results = [loss] if outfeed_loss else values
    return tracer.step(results), results


def _gradients(optimizer: Any, loss: Any) -> list[tuple[Any, Any]]:
    """Return pairs of gradient and variable; Keras' optimizers leave the gradients of a tensor to TensorFlow."""
    graph = tf.compat.v1.get_default_graph()
    if hasattr(optimizer, "compute_gradients"):
        known = {} if not hasattr(graph, "captures") else {"var_list": _captured_trainable(graph)}
        pairs: list[tuple[Any, Any]] = optimizer.compute_gradients(loss, **known)
        return pairs
    variables = _captured_trainable(graph)
    return list(zip(tf.gradients(loss, variables), variables, strict=True))


def _captured_trainable(graph: Any) -> list[Any]:
    """Return the trainable variables that a function of TensorFlow 2 has read so far, by first use."""
    watched = {id(variable.handle): variable for variable in graph._watched_variables if variable.trainable}
    return [watched[id(outside)] for outside, _ in graph.captures if id(outside) in watched]


def listed(values: Any) -> list[Any]:
    """Return the result of a function as a list; None as an empty list."""
    return list(values) if isinstance(values, tuple | list) else [] if values is None else [values]


def outside_of(step: TracedStep) -> tuple[Output, ...]:
    """Return the external tensors of the passes and the weight update of a step."""
    found = [StagePasses(step.graph, one).constants for one in cut(step.trace)]
    if step.update_nodes:
        found.append(step.weight_update().external)
    return tuple(dict.fromkeys(tensor for tensors in found for tensor in tensors))
