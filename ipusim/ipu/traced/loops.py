"""A loop around a body, traced into a node, one iteration after another on a single IPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ipusim.api import Job, Request, assemble
from ipusim.ipu.graph.own_nodes import add_node
from ipusim.ipu.graph.reading import read_graph
from ipusim.ipu.graph.registry import Entry
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.traced.bodies import program_of_body
from ipusim.ipu.traced.pipelines import CLAIMED, ProgramNode, listed
from ipusim.ipu.traced.queues import Infeed

tf = load()


def add_loop(
    iterations: int,
    body: Callable[..., Any],
    options: Callable[[], Mapping[str, Any]],
    *,
    name: str = "loop",
    inputs: Sequence[Any] = (),
    infeed: Infeed | None = None,
    place: Callable[[Request], Job] = assemble,
) -> list[Any]:
    """Trace a loop into the graph that is being built, and write its node.

    Args:
        iterations: how often the body runs.
        body: takes the loop's values, and behind them an element of the infeed; returns the values of the next
            iteration, and operations to run.
        options: returns the options of the request's system by the keys of a scenario.
        name: name of the program.
        inputs: the loop's values before the first iteration.
        infeed: queue with an element for each iteration.
        place: returns the job of a request.

    Returns:
        The loop's values behind the last iteration, or a list with the operation if there are no values.

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
        if tensor is not each.read:  # a value that stays is a constant of the run
            each.assign(tensor)
    written = [node.name for node in graph.get_operations()[start:]]
    initial = {variable.initializer.name for variable in tf.compat.v1.global_variables()}
    CLAIMED.setdefault(graph, set()).update(written)
    nodes = read_graph(graph)
    carries = [each.name for each in carried]
    program = program_of_body(name, nodes, set(written) - initial, options, infeed, carries, iterations, place)
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
