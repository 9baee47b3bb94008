"""Trace a loop into one node, whose iterations run on simulated IPUs."""

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
from ipusim.ipu.graph.tracing import initializers, names_since
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.call_checks import check_takes
from ipusim.ipu.runtime.devices import exclusive_program
from ipusim.ipu.traced.bodies import program_of_body
from ipusim.ipu.traced.pipelines import CLAIMED, add_program
from ipusim.ipu.traced.queues import Infeed, Outfeed

tf = load()

#: Maximum number of iterations under a condition.
_MAX_ITERATIONS: Final = 10_000_000


def add_loop(
    iterations: int | None,
    body: Callable[..., Any],
    options: Callable[[], Mapping[str, Any]],
    *,
    inputs: Sequence[Any],
    infeed: Infeed | None,
    condition: Callable[..., Any] | None,
    config: IPUConfig | None,
) -> list[Any]:
    """Trace a loop into TensorFlow's current graph, and add the loop's node.

    Args:
        iterations: number of iterations; with a condition the maximum, None for no maximum.
        body: takes the loop's values followed by an infeed element; returns the values of the next iteration, and
            operations to run.
        options: returns the request's system options, keyed like a scenario.
        inputs: loop values before the first iteration.
        infeed: queue with one element per iteration.
        condition: tells from the loop's values whether another iteration follows.
        config: configuration of the loop; None for the active configuration.

    Returns:
        Loop values after the last iteration, or only the operation in a list if the loop has no values.

    Raises:
        UnsupportedProgramError: if the body sends to several outfeeds, values change dtype, or the condition depends
            on elements or variables.
        ProgramError: if the number or shapes of values change.
        ProgramTypeError: if the body or condition does not take the values.
    """
    graph = tf.compat.v1.get_default_graph()
    start = len(graph.get_operations())
    carried = [
        _LoopValue(tensor, f"loop/value{number}") for number, tensor in enumerate(map(tf.convert_to_tensor, inputs))
    ]
    values, keywords = [value.read for value in carried], {}
    if infeed is not None:
        element = infeed.dequeue()
        keywords = dict(element) if isinstance(element, Mapping) else {}
        values += [] if keywords else checks.as_list(element)
    check_takes("body", body, values, keywords)
    with exclusive_program("loop"):
        results = [result for result in checks.as_list(body(*values, **keywords)) if result is not None]
    tensors = [tf.convert_to_tensor(result) for result in results if not isinstance(result, tf.Operation)]
    if carried and len(tensors) != len(carried):
        raise ProgramError(
            f"body: expected as many tensors as there are loop-carried inputs, {len(carried)}, got {len(tensors)}"
        )
    for value, tensor in zip(carried, tensors, strict=False):
        if tensor is not value.read:  # an unchanged value is a constant of the run
            value.assign(tensor)
    names = _claim(graph, start)
    counter = None if condition is None else _IterationCounter(condition, carried, tensors, names, iterations)
    return _add_program(graph, names, "loop", options, infeed, carried, iterations, counter, config)


def add_iteration(
    start: int, results: Sequence[Any], options: Callable[[], Mapping[str, Any]], infeed: Infeed | None
) -> Outfeed | None:
    """Turn already traced operations into a loop of one iteration.

    Args:
        start: number of the first traced operation in TensorFlow's current graph.
        results: tensors to return.
        options: see :func:`add_loop`.
        infeed: queue of the iteration's element.

    Returns:
        Queue of the results, or None for loops without results.
    """
    graph, queue = tf.compat.v1.get_default_graph(), _ComputationResults(keeps_all=False) if results else None
    if queue is not None:
        queue.enqueue(list(results))
    _add_program(graph, _claim(graph, start), "computation", options, infeed, (), 1)
    return queue


class _ComputationResults(Outfeed):
    """Queue that takes a computation's results from the first replica."""

    def add(self, session: Any, element: Sequence[Array]) -> None:
        """Add the first replica's results."""
        super().add(session, [value[0] for value in element] if self._replicas > 1 else element)


def _claim(graph: Any, start: int) -> set[str]:
    """Claim operations from number ``start`` on for a program; return names without initializers."""
    names = names_since(graph, start)
    CLAIMED.setdefault(graph, set()).update(names)
    return set(names) - initializers()


def _add_program(
    graph: Any,
    names: set[str],
    name: str,
    options: Callable[[], Mapping[str, Any]],
    infeed: Infeed | None,
    carried: Sequence[_LoopValue],
    iterations: int | None,
    counter: _IterationCounter | None = None,
    config: IPUConfig | None = None,
) -> list[Any]:
    """Add the node for a body's program; return the results of ``add_program``."""
    iterations_per_run = iterations if counter is None else 1
    names_of_values = [value.name for value in carried]
    program = program_of_body(
        name, read_graph(graph), names, options, infeed, names_of_values, iterations_per_run or 1, config
    )
    executions = {} if counter is None else {"executions": counter.count}
    return add_program(program, [value.tensor for value in carried], **executions)


class _IterationCounter:
    """Counts iterations of a loop with a condition, using only the loop's values."""

    def __init__(
        self,
        condition: Callable[..., Any],
        carried: Sequence[_LoopValue],
        tensors: Sequence[Any],
        body: set[str],
        max_iterations: int | None,
    ) -> None:
        """Trace the condition on the loop's values; ``tensors`` are the values of the next iteration."""
        graph = tf.compat.v1.get_default_graph()
        start = len(graph.get_operations())
        tensors_read = [value.read for value in carried]
        check_takes("condition", condition, tensors_read, {})
        holds = tf.convert_to_tensor(condition(*tensors_read))
        next_values = [tf.cast(new, value.tensor.dtype) for value, new in zip(carried, tensors, strict=True)]
        condition_names = {node.name for node in graph.get_operations()[start:]}
        CLAIMED.setdefault(graph, set()).update(condition_names)
        nodes, feeds = read_graph(graph), [output_of(value.read) for value in carried]
        part = {name for name in body | condition_names if not runs_for_effect(nodes.nodes[name])}
        self._holds = Executable(nodes, feeds, [output_of(holds)], (), part)
        self._next = Executable(nodes, feeds, [output_of(value) for value in next_values], (), part)
        self._max_iterations = _MAX_ITERATIONS if max_iterations is None else max_iterations
        if self._holds.external or self._holds.variables:
            _refuse_condition()

    def count(self, values: Sequence[Any]) -> int:
        """Return the number of iterations; raises UnsupportedProgramError if the number depends on data."""
        count, invocation = 0, Invocation({})
        while count < self._max_iterations and bool(self._holds.run(invocation, values)[0]):
            if self._next.external or self._next.variables:
                _refuse_condition()
            values = self._next.run(invocation, values)
            count += 1
        if count == _MAX_ITERATIONS:
            raise UnsupportedProgramError(f"condition: expected one that holds fewer than {_MAX_ITERATIONS} times")
        return count


def _refuse_condition() -> NoReturn:
    raise UnsupportedProgramError("condition: expected a number of iterations that depends on no data")


class _LoopValue:
    """A loop value, stored between iterations in an IPU variable.

    Attributes:
        tensor: value before the first iteration.
        name: shared name of the variable.
        read: value at the start of an iteration.
    """

    def __init__(self, tensor: Any, name: str) -> None:
        """Add a variable handle and a read of the variable."""
        self.tensor = tensor
        self.name = tf.compat.v1.get_default_graph().unique_name(name)
        self._handle = tf.raw_ops.VarHandleOp(dtype=tensor.dtype, shape=tensor.shape, shared_name=self.name)
        self.read = tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=tensor.dtype)
        self.read.set_shape(tensor.shape)

    def assign(self, tensor: Any) -> None:
        """Add the assignment of the next iteration's value.

        Raises:
            ProgramError: if the shape has changed.
            UnsupportedProgramError: if the kind of dtype has changed.
        """
        if not tensor.shape.is_compatible_with(self.tensor.shape):
            shape, expected_shape = tuple(tensor.shape.as_list()), tuple(self.tensor.shape.as_list())
            raise ProgramError(f"body: expected a loop-carried tensor of shape {expected_shape} again, got {shape}")
        dtype, expected_dtype = tensor.dtype.as_numpy_dtype, self.tensor.dtype.as_numpy_dtype
        if not np.can_cast(dtype, expected_dtype, "same_kind"):
            raise UnsupportedProgramError(
                f"body: expected a loop-carried tensor of {self.tensor.dtype.name} again, got {tensor.dtype.name}"
            )
        tf.raw_ops.AssignVariableOp(resource=self._handle, value=tf.cast(tensor, self.tensor.dtype))
