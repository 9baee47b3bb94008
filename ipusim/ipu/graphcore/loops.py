"""Loops in Graphcore's names: a body that runs on one IPU once for each iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipusim.base.errors import ProgramTypeError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.graphcore.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.devices import building, check_queue_on_device, device_ordinal
from ipusim.ipu.runtime.loop_body import check_body
from ipusim.ipu.runtime.program_request import options_of_loop
from ipusim.ipu.traced.loops import add_loop
from ipusim.ipu.traced.pipelines import listed

tf = load()


@building
def repeat(
    n: int,
    body: Callable[..., Any],
    inputs: Any = None,
    infeed_queue: IPUInfeedQueue | None = None,
    use_while_v1: bool = True,
) -> Any:
    """Trace a loop of a known number of iterations.

    Args:
        n: number of iterations.
        body: takes the loop's tensors, then those of an element of the infeed; returns the tensors of the next
            iteration, and operations that run with it.
        inputs: the tensors of the first iteration.
        infeed_queue: gives an element for each iteration.
        use_while_v1: without effect.

    Returns:
        The tensors behind the last iteration: one by itself, several in a list, and without any the operation.

    Raises:
        ProgramError: for arguments out of range, and ProgramTypeError for those of other types.
    """
    iterations = checks.whole("n", n, 1)
    check_body("body", body)
    if infeed_queue is not None and not isinstance(infeed_queue, IPUInfeedQueue):
        raise ProgramTypeError("infeed_queue is not an instance of ipu_infeed_queue.IPUInfeedQueue")
    if infeed_queue is not None:
        check_queue_on_device("infeed_queue", infeed_queue.ordinal)
    results = add_loop(
        iterations,
        body,
        options_of_loop(device_ordinal(), None if infeed_queue is None else infeed_queue.prefetch_depth),
        inputs=[tf.convert_to_tensor(each) for each in listed(inputs)],
        infeed=None if infeed_queue is None else infeed_queue.feed,
    )
    return results[0] if len(results) == 1 else results
