"""Run loops of TensorFlow 2 functions as programs of the simulated machine.

A place is the index of a value that a loop carries from iteration to iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from ipusim.api import Array
from ipusim.base.errors import EndOfDataError
from ipusim.ipu.graph.enqueued import EnqueueItem
from ipusim.ipu.graph.executable import Executable, Invocation, shared_name
from ipusim.ipu.graph.needed import runs_for_effect
from ipusim.ipu.graph.node import Graph, Node, Output
from ipusim.ipu.graph.registry import Entry, entry_of, register_token, value_of
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.traced.bodies import program_of_body
from ipusim.ipu.traced.device_program import DeviceProgram
from ipusim.ipu.traced.queues import Infeed
from ipusim.ipu.traced.sessions import EagerHost, RunningSession

tf = load()

#: Dtype of handles in nodes.
_HANDLE_DTYPE: Final = np.dtype(object)
#: Maximum number of iterations: ipusim counts iterations before a loop begins.
_MAX_ITERATIONS: Final = 10_000_000


def next_element(iterator: Any, node: Node) -> list[Array]:
    """Return the next element of a host iterator for a node that reads it; raises EndOfDataError at the end."""
    dtypes, shapes = node.attributes["output_types"], node.attributes["output_shapes"]
    try:
        values = tf.raw_ops.IteratorGetNext(iterator=iterator, output_types=dtypes, output_shapes=shapes)
    except tf.errors.OutOfRangeError:
        raise EndOfDataError("End of sequence") from None
    return [value.numpy() for value in values]


class IteratorFeed(Infeed):
    """Feed with elements of a host iterator for a loop."""

    def __init__(self, node: Node) -> None:
        """Take the node that reads an element."""
        self._node = node
        self.iterator: Any = None

    def connect(self, session: RunningSession | EagerHost) -> None:
        """Ignore sessions: the host keeps the iterator."""

    def replicate(self, program: Any, replicas: int) -> None:
        """Ignore replicas: loops have separate feeds."""

    def pull(self) -> list[Array]:
        """Return the next element; raises EndOfDataError at the end."""
        return next_element(self.iterator, self._node)

    def zeros(self) -> list[Array]:
        """Return an element of zeros with static shapes."""
        attributes = self._node.attributes
        pairs = zip(attributes["output_shapes"], attributes["output_types"], strict=True)
        return [np.zeros(tuple(shape), dtype) for shape, dtype in pairs]


@dataclass(frozen=True, eq=False)
class _Loop:
    """A loop inside a function.

    Attributes:
        node: the loop's node.
        condition, body: graphs of the loop's functions.
    """

    node: Node
    condition: Graph
    body: Graph


def place_loops(graph: Graph, options: Callable[[], Mapping[str, Any]], owner: Any) -> Graph:
    """Return a function's graph with loops over queues replaced by programs of the machine.

    A loop becomes a program if the loop reads one queue, or only sends to one queue, and if values known in advance
    determine the number of iterations. Other loops remain nodes.

    Args:
        graph: the graph.
        options: returns the request's system options, keyed like a scenario.
        owner: concrete function; the programs disappear together with the function.
    """
    nodes = dict(graph.nodes)
    for name, node in graph.nodes.items():
        if node.type in ("While", "StatelessWhile"):
            loop = _Loop(node, graph.functions[node.attributes["cond"]], graph.functions[node.attributes["body"]])
            loop_node = _program_node(graph, loop, options, owner)
            if loop_node is not None:
                nodes[name] = loop_node
    return replace(graph, nodes=nodes)


def _program_node(graph: Graph, loop: _Loop, options: Callable[[], Mapping[str, Any]], owner: Any) -> Node | None:
    """Return a loop's node as a program; None for other loops."""
    feeds = [node for node in loop.body.nodes.values() if _takes_element(node)]
    counter = _counter_of(loop)
    sends = any(value_of(node, EnqueueItem) is not None for node in loop.body.nodes.values())
    if len(feeds) > 1 or not (feeds or sends) or counter is None:
        return None
    infeed: Infeed | None = None
    for feed in feeds:
        entry = entry_of(feed)
        infeed = IteratorFeed(feed) if entry is None or feed.type == "IteratorGetNext" else entry.value
    body, carried, outside = _as_body(graph, loop, infeed, counter.internal_places, owner)
    program = program_of_body(loop.node.name, body, set(body.nodes), options, infeed, list(carried.values()))
    runner = _Runner(loop, program, infeed, carried, outside, counter)
    entry = Entry(lambda _: runner.run, effect=True, invoked=True, value=program)
    return replace(loop.node, type="PyFunc", attributes={"token": register_token(entry, owner)})


def _takes_element(node: Node) -> bool:
    """Tell whether a node reads elements of an iterator or queue."""
    return node.type == "IteratorGetNext" or value_of(node, Infeed) is not None


def _as_body(
    graph: Graph, loop: _Loop, infeed: Infeed | None, internal_places: Collection[int], owner: Any
) -> tuple[Graph, dict[int, str], dict[Output, int]]:
    """Return a loop's body as program body, names of variables by place, and places of constants.

    Variables keep the loop's changing values between iterations. Values that only count iterations need no variable,
    since the program counts iterations.
    """
    nodes: dict[str, Node] = {}
    later_nodes: list[Node] = []
    carried: dict[int, str] = {}
    outside: dict[Output, int] = {}
    for place, tensor in enumerate(loop.body.inputs):
        node, source = loop.body.nodes[tensor.node], graph.nodes[loop.node.inputs[place].node]
        kind, unchanged = node.output_types[0], loop.body.outputs[place] == tensor
        if source.type == "VarHandleOp":
            nodes[node.name] = replace(node, type="VarHandleOp", attributes={"shared_name": shared_name(source)})
        elif kind == _HANDLE_DTYPE or unchanged or place in internal_places:
            nodes[node.name] = node
            outside[tensor] = place
        else:
            carried[place] = f"{loop.node.name}/value{place}"
            handle = Node(
                f"{carried[place]}/handle",
                "VarHandleOp",
                {"shared_name": carried[place]},
                output_types=(_HANDLE_DTYPE,),
            )
            nodes[handle.name] = handle
            nodes[node.name] = replace(node, type="ReadVariableOp", attributes={}, inputs=handle.outputs)
            value = loop.body.outputs[place]
            later_nodes.append(Node(f"{carried[place]}/assign", "AssignVariableOp", {}, (*handle.outputs, value)))
    for name, node in loop.body.nodes.items():
        is_taken = isinstance(infeed, IteratorFeed) and node.type == "IteratorGetNext"
        nodes.setdefault(name, _dequeue(node, infeed, owner) if infeed is not None and is_taken else node)
    nodes |= {node.name: node for node in later_nodes}
    return Graph(nodes, loop.body.functions), carried, outside


def _dequeue(node: Node, infeed: Infeed, owner: Any) -> Node:
    """Return the node that reads an iterator's element, changed to a node that takes an element from a queue."""
    entry = Entry(lambda _iterator_place: infeed.pull, effect=True, value=infeed)
    return replace(node, type="PyFunc", attributes={"token": register_token(entry, owner)}, inputs=())


@dataclass(frozen=True, eq=False)
class _Counter:
    """Counter of a loop.

    Attributes:
        places: places of deciding values, on which the end of the loop depends.
        internal_places: places of deciding values used only for the next deciding values.
        condition: computes from the deciding values whether the loop continues.
        next_values: computes the next deciding values.
    """

    places: tuple[int, ...]
    internal_places: frozenset[int]
    condition: Executable
    next_values: Executable

    def count(self, invocation: Invocation, values: Sequence[Any]) -> tuple[int, dict[int, Any]]:
        """Return the number of iterations, and the deciding values after the last iteration, by place."""
        state = [values[place] for place in self.places]
        for number in range(_MAX_ITERATIONS):
            if not bool(self.condition.run(invocation, state)[0]):
                return number, dict(zip(self.places, state, strict=True))
            state = self.next_values.run(invocation, state)
        raise OverflowError(f"a loop of more than {_MAX_ITERATIONS} iterations")


def _counter_of(loop: _Loop) -> _Counter | None:
    """Return a loop's counter; None if data or variables decide the loop's end."""
    places = {tensor: place for place, tensor in enumerate(loop.condition.inputs)}
    inputs = {tensor: place for place, tensor in enumerate(loop.body.inputs)}
    condition = _data_nodes(loop.condition, loop.condition.outputs)
    places_read = sorted({places[tensor] for tensor in condition.inputs})
    while True:
        step = _data_nodes(loop.body, [loop.body.outputs[place] for place in places_read])
        if any(runs_for_effect(node) or node.type == "ReadVariableOp" for node in step.nodes.values()):
            return None
        extended = sorted({*places_read, *(inputs[tensor] for tensor in step.inputs)})
        if extended == places_read:
            break
        places_read = extended
    read = {tensor for node in loop.body.nodes.values() if node.name not in step.nodes for tensor in node.inputs}
    condition_feeds = [loop.condition.inputs[place] for place in places_read]
    next_feeds = [loop.body.inputs[place] for place in places_read]
    return _Counter(
        tuple(places_read),
        frozenset(place for place in places_read if loop.body.inputs[place] not in read),
        Executable(condition, condition_feeds, condition.outputs),
        Executable(step, next_feeds, step.outputs),
    )


def _data_nodes(graph: Graph, fetches: Sequence[Output]) -> Graph:
    """Return the nodes of a function that given results need, following data edges but no control edges."""
    arguments = set(graph.inputs)
    nodes: dict[str, Node] = {}
    read: dict[Output, None] = {}
    work = list(fetches)
    while work:
        tensor = work.pop()
        if tensor in arguments:
            read[tensor] = None
        elif tensor.node not in nodes:
            node = graph.nodes[tensor.node]
            nodes[tensor.node] = replace(node, controls=())
            work += node.inputs
    return Graph(nodes, graph.functions, tuple(read), tuple(fetches))


class _Runner:
    """Runs a loop on the machine."""

    def __init__(
        self,
        loop: _Loop,
        program: DeviceProgram,
        infeed: Infeed | None,
        carried: Mapping[int, str],
        outside: Mapping[Output, int],
        counter: _Counter,
    ) -> None:
        self._program, self._infeed, self._carried, self._counter = program, infeed, carried, counter
        self._places_of_constants = [outside[tensor] for tensor in program.outside]
        self._iterator_place = next(
            (
                place
                for tensor, place in outside.items()
                if loop.body.nodes[tensor.node].output_types[0] == _HANDLE_DTYPE
            ),
            None,
        )

    def run(self, invocation: Invocation, *values: Any) -> Any:
        """Return the loop's values after the last iteration."""
        results = list(values)
        iterations, state = self._counter.count(invocation, values)
        if iterations:
            if isinstance(self._infeed, IteratorFeed) and self._iterator_place is not None:
                self._infeed.iterator = values[self._iterator_place]
            operands = [
                *(values[place] for place in self._places_of_constants),
                *(values[place] for place in self._carried),
            ]
            outputs = self._program.run(invocation, invocation.session, operands, iterations)
            for place, value in zip(self._carried, outputs, strict=True):
                results[place] = value
        for place, value in state.items():
            results[place] = value
        return tuple(results)
