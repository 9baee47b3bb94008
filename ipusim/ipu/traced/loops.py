"""A loop around a body, traced into one node: the body runs once for each iteration, on one IPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ipusim.api import analysis, pipelines
from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.graph.needed import runs_for_effect
from ipusim.ipu.graph.node import Graph, Node
from ipusim.ipu.graph.own_nodes import add_node
from ipusim.ipu.graph.reading import read_graph
from ipusim.ipu.graph.registry import Entry, entry_of
from ipusim.ipu.graph.split import as_one_pass, as_training, split
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.traced.device_program import DeviceProgram
from ipusim.ipu.traced.pipelines import CLAIMED, ProgramNode, listed, outside_of
from ipusim.ipu.traced.queues import EnqueueItem, Infeed

tf = load()


def add_loop(
    iterations: int,
    body: Callable[..., Any],
    options: Callable[[], Mapping[str, Any]],
    *,
    name: str = "loop",
    inputs: Sequence[Any] = (),
    infeed: Infeed | None = None,
) -> list[Any]:
    """Trace a loop into the graph that is being built, and write its node.

    Args:
        iterations: how often the body runs.
        body: takes the loop's values, and behind them an element of the infeed; returns the values of the next
            iteration, and operations to run.
        options: returns the options of the request's system by the keys of a scenario.
        name: name of the program.
        inputs: the loop's values before the first iteration.
        infeed: queue that each iteration takes an element of.

    Returns:
        The loop's values behind the last iteration; the node's operation, in a list, if it has none.

    Raises:
        UnsupportedProgramError: for a body that sends to several outfeeds.
    """
    graph = tf.compat.v1.get_default_graph()
    start = len(graph.get_operations())
    carried = [
        _LoopValue(tensor, f"{name}/value{place}") for place, tensor in enumerate(map(tf.convert_to_tensor, inputs))
    ]
    values, named = [each.read for each in carried], {}
    if infeed is not None:
        element = infeed.dequeue()
        named = dict(element) if isinstance(element, Mapping) else {}
        values += [] if named else tf.nest.flatten(element)
    returned = [each for each in listed(body(*values, **named)) if each is not None]
    tensors = [tf.convert_to_tensor(each) for each in returned if not isinstance(each, tf.Operation)]
    for each, tensor in zip(carried, tensors, strict=bool(carried)):
        each.assign(tensor)
    written = [node.name for node in graph.get_operations()[start:]]
    initial = {variable.initializer.name for variable in tf.compat.v1.global_variables()}
    CLAIMED.setdefault(graph, set()).update(written)
    nodes = read_graph(graph)
    program = _program(name, nodes, set(written) - initial, iterations, options, infeed, carried)
    entry = Entry(ProgramNode(program).kernel, effect=True, invoked=True, value=program)
    read = [graph.get_tensor_by_name(f"{tensor.node}:{tensor.number}") for tensor in program.outside]
    forms = [(each.tensor.dtype, each.tensor.shape) for each in carried]
    return add_node(entry, [*read, *(each.tensor for each in carried)], forms, name)


class _LoopValue:
    """A value of a loop, which lies in a variable of the IPU from iteration to iteration.

    Attributes:
        tensor: value before the first iteration.
        name: shared name of the variable.
        read: value at the beginning of an iteration.
    """

    def __init__(self, tensor: Any, name: str) -> None:
        """Write a handle, and a read of it."""
        self.tensor = tensor
        self.name = tf.compat.v1.get_default_graph().unique_name(name)
        self._handle = tf.raw_ops.VarHandleOp(dtype=tensor.dtype, shape=tensor.shape, shared_name=self.name)
        self.read = tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=tensor.dtype)
        self.read.set_shape(tensor.shape)

    def assign(self, tensor: Any) -> None:
        """Write the assignment of the next iteration's value."""
        tf.raw_ops.AssignVariableOp(resource=self._handle, value=tf.cast(tensor, self.tensor.dtype))


def _program(
    name: str,
    graph: Graph,
    body: set[str],
    iterations: int,
    options: Callable[[], Mapping[str, Any]],
    infeed: Infeed | None,
    carried: Sequence[_LoopValue],
) -> DeviceProgram:
    """Return the program of a body: a training of one stage, else a forward pass that changes variables."""
    items = {node.name: entry.value for node in graph.nodes.values() if (entry := entry_of(node)) is not None}
    sending = [graph.nodes[each] for each in sorted(body) if isinstance(items.get(each), EnqueueItem)]
    queue, results = _sent(sending, items)
    feeds = {each for each in body if isinstance(items.get(each), Infeed)}
    nodes = body - {node.name for node in sending}
    effects = {each for each in nodes if runs_for_effect(graph.nodes[each])}
    step = as_training(graph, split(graph, nodes - feeds), feeds, results, effects)
    if step is None:
        step = as_one_pass(graph, nodes, feeds, results)
    names = (analysis.LOSS,) if len(results) == 1 else tuple(f"output {place}" for place in range(len(results)))
    sent = pipelines.Outfeed(
        names=names, mask=(False,) * len(names), element_bytes=0 if queue is None else queue.element_bytes
    )

    def request() -> dict[str, Any]:
        chosen = dict(options())
        own = {
            "schedule": "single",
            "gradient_accumulation_count": 1,
            "repeat_count": iterations,
            "device_mapping": [0],
        }
        return {**chosen, "pipeline": {**chosen.get("pipeline", {}), **own}}

    return DeviceProgram(
        name,
        step,
        request,
        infeed=infeed,
        outfeed=queue,
        sent=sent,
        outside=outside_of(step),
        carried=[each.name for each in carried],
    )


def _sent(sending: Sequence[Node], items: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """Return the queue that a body sends to, and the tensors that it sends."""
    queues = {id(items[node.name].queue): items[node.name].queue for node in sending}
    if len(sending) > 1:
        raise UnsupportedProgramError(f"body: expected one enqueue to an outfeed in a loop, got {len(sending)}")
    queue = next(iter(queues.values()), None)
    return queue, list(sending[0].inputs) if sending else []
