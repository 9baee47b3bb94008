"""A loop around a body, traced into a node, one iteration after another on a single IPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np

from ipusim.api import Array
from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.graph.executable import Executable, Invocation
from ipusim.ipu.graph.needed import runs_for_effect
from ipusim.ipu.graph.reading import output_of, read_graph
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.graph.tracing import is_fed_by_session
from ipusim.ipu.runtime.call_checks import check_takes
from ipusim.ipu.runtime.devices import exclusive_program
from ipusim.ipu.traced.bodies import program_of_body
from ipusim.ipu.traced.pipelines import CLAIMED, add_program, listed
from ipusim.ipu.traced.queues import Infeed, Outfeed

tf = load()

#: Most iterations of a loop with a condition.
_MOST: Final = 10_000_000


def add_loop(
    iterations: int | None,
    body: Callable[..., Any],
    options: Callable[[], Mapping[str, Any]],
    *,
    name: str = "loop",
    inputs: Sequence[Any] = (),
    infeed: Infeed | None = None,
    condition: Callable[..., Any] | None = None,
    config: IPUConfig | None = None,
) -> list[Any]:
    """Trace a loop into the graph that is being built, and write its node.

    Args:
        iterations: how often the body runs; with a condition how often at most, None for any number.
        body: takes the loop's values, and behind them an element of the infeed; returns the values of the next
            iteration, and operations to run.
        options: returns the options of the request's system by the keys of a scenario.
        name: name of the program.
        inputs: the loop's values before the first iteration.
        infeed: queue with an element for each iteration.
        condition: tells of the loop's values whether there is another iteration.
        config: the loop's own configuration; None for the one in effect.

    Returns:
        The loop's values behind the last iteration, or a list with the operation if there are no values.

    Raises:
        UnsupportedProgramError: for a body that sends to several outfeeds, values of another dtype, and a condition
            that depends on elements or variables.
        ProgramError: for another number of values, or another shape.
        ProgramTypeError: for a body or a condition that does not take the values.
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
        values += [] if named else listed(element)
    check_takes("body", body, values, named)
    with exclusive_program("loop"):
        returned = [each for each in listed(body(*values, **named)) if each is not None]
    tensors = [tf.convert_to_tensor(each) for each in returned if not isinstance(each, tf.Operation)]
    if carried and len(tensors) != len(carried):
        raise ProgramError(
            f"body: expected as many tensors as there are loop-carried inputs, {len(carried)}, got {len(tensors)}"
        )
    for each, tensor in zip(carried, tensors, strict=False):
        if tensor is not each.read:  # a value that stays is a constant of the run
            each.assign(tensor)
    known = _claim(graph, start)
    counted = None if condition is None else _Counted(condition, carried, tensors, known, iterations)
    return _add_program(graph, known, name, options, infeed, carried, iterations, counted, config)


def add_iteration(
    start: int, results: Sequence[Any], options: Callable[[], Mapping[str, Any]], infeed: Infeed | None
) -> Outfeed | None:
    """Make a loop of one iteration of what is traced already.

    Args:
        start: number of the first traced operation in the graph that is being built.
        results: tensors to return.
        options: as of :func:`add_loop`.
        infeed: queue that it takes an element of.

    Returns:
        The queue of the results; None without results.
    """
    graph, queue = tf.compat.v1.get_default_graph(), _Results(keeps_all=False) if results else None
    if queue is not None:
        queue.enqueue(list(results))
    _add_program(graph, _claim(graph, start), "computation", options, infeed, (), 1)
    return queue


class _Results(Outfeed):
    """The queue of the results of a computation, which are those of the first replica."""

    def add(self, session: Any, element: Sequence[Array]) -> None:
        """Add the results of all replicas."""
        super().add(session, [each[0] for each in element] if self._replicas > 1 else element)


def _claim(graph: Any, start: int) -> set[str]:
    """Claim operations from number ``start`` on for a program; return their names without those of initializers."""
    written = [node.name for node in graph.get_operations()[start:] if not is_fed_by_session(node)]
    variables = tf.compat.v1.global_variables() + tf.compat.v1.local_variables()
    CLAIMED.setdefault(graph, set()).update(written)
    return set(written) - {variable.initializer.name for variable in variables}


def _add_program(
    graph: Any,
    known: set[str],
    name: str,
    options: Callable[[], Mapping[str, Any]],
    infeed: Infeed | None,
    carried: Sequence[_LoopValue],
    iterations: int | None,
    counted: _Counted | None = None,
    config: IPUConfig | None = None,
) -> list[Any]:
    """Write the node of the program of a body; return its results, or a list with the operation."""
    once = iterations if counted is None else 1
    carries = [each.name for each in carried]
    program = program_of_body(name, read_graph(graph), known, options, infeed, carries, once or 1, config)
    executions = {} if counted is None else {"executions": counted.count}
    return add_program(program, [each.tensor for each in carried], **executions)


class _Counted:
    """Finds how often a loop with a condition runs, by its values alone."""

    def __init__(
        self,
        condition: Callable[..., Any],
        carried: Sequence[_LoopValue],
        tensors: Sequence[Any],
        body: set[str],
        most: int | None,
    ) -> None:
        """Trace the condition on the loop's values, whose next ones are tensors of the body."""
        graph = tf.compat.v1.get_default_graph()
        start = len(graph.get_operations())
        tensors_read = [each.read for each in carried]
        check_takes("condition", condition, tensors_read, {})
        holds = tf.convert_to_tensor(condition(*tensors_read))
        following = [tf.cast(new, each.tensor.dtype) for each, new in zip(carried, tensors, strict=True)]
        after = {node.name for node in graph.get_operations()[start:]}
        CLAIMED.setdefault(graph, set()).update(after)
        nodes, feeds = read_graph(graph), [output_of(each.read) for each in carried]
        part = {each for each in body | after if not runs_for_effect(nodes.nodes[each])}
        self._holds = Executable(nodes, feeds, [output_of(holds)], (), part)
        self._next = Executable(nodes, feeds, [output_of(each) for each in following], (), part)
        self._most = _MOST if most is None else most
        if self._holds.external or self._holds.variables:
            _refuse_condition()

    def count(self, values: Sequence[Any]) -> int:
        """Return how often the condition holds; raises UnsupportedProgramError where that depends on data."""
        count, invocation = 0, Invocation({})
        while count < self._most and bool(self._holds.run(invocation, values)[0]):
            if self._next.external or self._next.variables:
                _refuse_condition()
            values = self._next.run(invocation, values)
            count += 1
        if count == _MOST:
            raise UnsupportedProgramError(f"condition: expected one that holds fewer than {_MOST} times")
        return count


def _refuse_condition() -> NoReturn:
    raise UnsupportedProgramError("condition: expected a number of iterations that depends on no data")


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
        """Write the assignment of the next iteration's value.

        Raises:
            ProgramError: for another shape, and UnsupportedProgramError for another kind of dtype.
        """
        if not tensor.shape.is_compatible_with(self.tensor.shape):
            shape, own = tuple(tensor.shape.as_list()), tuple(self.tensor.shape.as_list())
            raise ProgramError(f"body: expected a loop-carried tensor of shape {own} again, got {shape}")
        dtype, before = tensor.dtype.as_numpy_dtype, self.tensor.dtype.as_numpy_dtype
        if not np.can_cast(dtype, before, "same_kind"):
            raise UnsupportedProgramError(
                f"body: expected a loop-carried tensor of {self.tensor.dtype.name} again, got {tensor.dtype.name}"
            )
        tf.raw_ops.AssignVariableOp(resource=self._handle, value=tf.cast(tensor, self.tensor.dtype))
