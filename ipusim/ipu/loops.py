"""Run a body repeatedly on one IPU, or on several IPUs as shards: Graphcore's ``loops``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipusim.base.errors import ProgramTypeError
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.call_checks import check_body, check_takes
from ipusim.ipu.runtime.devices import (
    INNER_LOOP,
    building_program,
    check_queue_on_device,
    device_ordinal,
    refuse_in_inner_loop,
    traced_program,
)
from ipusim.ipu.runtime.program_request import options_of_loop
from ipusim.ipu.traced.loops import add_loop

tf = load()


@building_program
def repeat(
    n: Any,
    body: Callable[..., Any],
    inputs: Any = None,
    infeed_queue: IPUInfeedQueue | None = None,
    use_while_v1: bool = True,
    *,
    config: IPUConfig | None = None,
) -> Any:
    """Trace a loop with a known number of iterations.

    Args:
        n: number of iterations, or a tensor with the number.
        body: function of the loop's tensors, then of the tensors of an infeed element; returns the tensors of the next
            iteration, and operations to run in the iteration.
        inputs: tensors of the first iteration.
        infeed_queue: queue with an element per iteration.
        use_while_v1: without effect.
        config: configuration of the device; by default the program's.

    Returns:
        The tensors after the last iteration: a single tensor or a list; without tensors, the operation.

    Raises:
        ProgramError: if an argument is out of range.
        ProgramTypeError: if an argument has a wrong type.
    """
    if not isinstance(n, tf.Tensor):
        return _loop(checks.whole("n", n, 1), body, inputs, infeed_queue, config=config)
    check_body("body", body)

    def repeat_body(count: Any, limit: Any, *values: Any) -> list[Any]:
        return [count + 1, limit, *checks.as_list(body(*values))]

    carried = [tf.constant(0), tf.cast(n, tf.int32), *checks.as_list(inputs)]
    results = checks.as_list(
        _loop(None, repeat_body, carried, infeed_queue, lambda count, limit, *_: count < limit, config)
    )
    return results[2:] if len(results) != 3 else results[2]


@building_program
def while_loop(
    condition: Callable[..., Any],
    body: Callable[..., Any],
    inputs: Any = None,
    infeed_queue: IPUInfeedQueue | None = None,
    maximum_iterations: int | None = None,
    use_while_v1: bool = True,
) -> Any:
    """Trace a loop that runs while a condition on the loop's tensors holds.

    Args:
        condition: function of the loop's tensors; the number of iterations must not depend on elements or variables.
        body: see :func:`repeat`.
        inputs: tensors of the first iteration.
        infeed_queue: queue with an element per iteration.
        maximum_iterations: upper limit of iterations; None for no limit.
        use_while_v1: without effect.

    Returns:
        As :func:`repeat`.

    Raises:
        UnsupportedProgramError: if the condition depends on data.
        ProgramError: for the reasons given at :func:`repeat`.
        ProgramTypeError: for the reasons given at :func:`repeat`.
    """
    check_body("condition", condition)
    maximum = None if maximum_iterations is None else checks.whole("maximum_iterations", maximum_iterations, 1)
    return _loop(maximum, body, inputs, infeed_queue, condition)


def _loop(
    iterations: int | None,
    body: Callable[..., Any],
    inputs: Any,
    infeed_queue: IPUInfeedQueue | None,
    condition: Callable[..., Any] | None = None,
    config: IPUConfig | None = None,
) -> Any:
    check_body("body", body)
    if infeed_queue is not None and not isinstance(infeed_queue, IPUInfeedQueue):
        raise ProgramTypeError("infeed_queue is not an instance of ipu_infeed_queue.IPUInfeedQueue")
    if infeed_queue is not None:
        check_queue_on_device("infeed_queue", infeed_queue.ordinal)
    if traced_program():
        results = _inner_loop(iterations, body, checks.as_list(inputs), infeed_queue, condition)
        return results[0] if len(results) == 1 else results
    results = add_loop(
        iterations,
        body,
        options_of_loop(device_ordinal(), None if infeed_queue is None else infeed_queue.prefetch_depth, config),
        inputs=[tf.convert_to_tensor(value) for value in checks.as_list(inputs)],
        infeed=None if infeed_queue is None else infeed_queue.feed,
        condition=condition,
        config=config,
    )
    return results[0] if len(results) == 1 else results


def _inner_loop(
    iterations: int | None, body: Callable[..., Any], inputs: list[Any], infeed_queue: Any, condition: Any
) -> list[Any]:
    """Trace a loop inside of a program as control flow of that program; return its tensors, or the operation."""
    carried = [tf.convert_to_tensor(value) for value in inputs]

    def step(count: Any, *values: Any) -> list[Any]:
        results = [result for result in checks.as_list(body(*values)) if result is not None]
        operations = [result for result in results if isinstance(result, tf.Operation)]
        with tf.control_dependencies(operations):
            tensors = [tf.identity(result) for result in results if not isinstance(result, tf.Operation)]
            return [count + 1, *tensors]

    def continues(count: Any, *values: Any) -> Any:
        is_within_limit = tf.constant(True) if iterations is None else count < iterations
        return is_within_limit if condition is None else tf.logical_and(is_within_limit, condition(*values))

    with traced_program.set_to(INNER_LOOP):
        if infeed_queue is not None:
            refuse_in_inner_loop("infeed_queue")
        check_takes("body", body, carried, {})
        count, *results = tf.while_loop(continues, step, [tf.constant(0), *carried])
    return list(results) or [count.op]
