"""Loops in Graphcore's names: a body that runs on one IPU, or sharded over several, without a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ipusim.api import models
from ipusim.base.errors import ProgramTypeError, UnsupportedProgramError
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.arguments import Arguments
from ipusim.ipu.runtime.building import once
from ipusim.ipu.runtime.call_checks import check_body
from ipusim.ipu.runtime.function_body import device
from ipusim.ipu.runtime.host import EvaluatedTensor, Fetch, Running, Tensor
from ipusim.ipu.runtime.layouts import Fed
from ipusim.ipu.runtime.loop_program import LoopProgram, holds
from ipusim.ipu.runtime.program_state import using
from ipusim.ipu.runtime.run import Pipeline, examples, lay_out
from ipusim.ipu.runtime.stage_call import Inputs

#: Most iterations that a condition is tried for.
_LIMIT: Final = 100_000


def repeat(
    n: int,
    body: Callable[..., Any],
    inputs: Any = None,
    infeed_queue: IPUInfeedQueue | None = None,
    use_while_v1: bool = True,
) -> Any:
    """Run ``body`` ``n`` times on the device and return the final values of its loop-carried tensors.

    They are in a list, a single one is by itself, and without any it is the operation that runs the loop. Inside
    ``ipu_compiler.compile`` it runs when a session runs it, and the values are what a session evaluates.

    Args:
        n: iterations; where gradients are accumulated a multiple of num_mini_batches.
        body: takes the loop-carried tensors, then the arrays of an element of the infeed; returns the tensors of the
            next iteration. It may call ``minimize`` of an optimizer, and ``enqueue`` of one outfeed queue.
        inputs: the tensors of the first iteration.
        infeed_queue: gives an element for each iteration.
        use_while_v1: without effect.

    Raises ProgramError and ProgramTypeError for arguments out of range or of other types, and for a body that returns
    another number of tensors; UnsupportedProgramError for what is not simulated; and as ``pipelining_ops.pipeline``.
    """
    iterations = checks.whole("n", n, 1)
    result, ran = _run(iterations, body, inputs, infeed_queue)
    return _returned(result, ran)


def while_loop(
    condition: Callable[..., Any],
    body: Callable[..., Any],
    inputs: Any = None,
    infeed_queue: IPUInfeedQueue | None = None,
    maximum_iterations: int | None = None,
    use_while_v1: bool = True,
) -> Any:
    """Run ``body`` as long as ``condition`` holds of its loop-carried tensors; arguments and result as :func:`repeat`.

    ``use_while_v1`` has no effect: there is no graph.

    How often that is must not depend on data or variables: it is found by trying the body, and checked in the end.
    Raises UnsupportedProgramError where it does, and as :func:`repeat` does.
    """
    check_body("condition", condition)
    _check(body, infeed_queue)
    most = _LIMIT if maximum_iterations is None else checks.whole("maximum_iterations", maximum_iterations, 1)
    with device():
        program = LoopProgram(body, examples(inputs)[1], infeed_queue)
        iterations = program.iterations(condition, most)
    if not iterations or iterations == _LIMIT:
        raise UnsupportedProgramError(
            f"condition: expected one that holds from 1 to {_LIMIT - 1} times, got {iterations} times"
        )
    outcome, ran = _run(iterations, body, inputs, infeed_queue)

    def check(values: Any) -> None:
        if iterations < most and holds(condition, values):
            raise UnsupportedProgramError(
                f"condition: expected a number of iterations that depends on no data, got more than the {iterations} "
                "of the body's trial"
            )

    ran.check = check
    if not isinstance(next(iter(outcome), None), Fetch):
        check(outcome)
    return _returned(outcome, ran)


def _returned(result: list[Any], ran: _Ran) -> Any:
    """Return the final values as Graphcore's loops do: a single one by itself, and without any what runs the loop."""
    if not result:
        return ran.pipeline
    return result[0] if len(result) == 1 else result


def _final(ran: _Ran, index: int) -> Tensor:
    """Return the final value of a loop-carried tensor."""

    def evaluate(running: Running) -> Any:
        running.value(ran.pipeline)
        values = ran.pipeline.inputs
        ran.check(values)
        return values[index]

    return EvaluatedTensor(evaluate, ran.program.inputs.values[index])


class _Ran:
    """A loop and the program that it became."""

    def __init__(self, program: LoopProgram, pipeline: Pipeline) -> None:
        self.program, self.pipeline = program, pipeline
        self.check: Callable[[Any], None] = lambda _: None


def _check(body: object, infeed: object) -> None:
    check_body("body", body)
    if infeed is not None and not isinstance(infeed, IPUInfeedQueue):
        raise ProgramTypeError("infeed_queue is not an instance of ipu_infeed_queue.IPUInfeedQueue")


def _run(n: int, body: Callable[..., Any], inputs: Any, infeed: IPUInfeedQueue | None) -> tuple[list[Any], _Ran]:
    _check(body, infeed)
    symbols, values = examples(inputs)

    def make(functions: Sequence[Callable[..., Any]]) -> _Ran:
        def rebuild(values: Sequence[Any], captured: Mapping[Any, Any]) -> tuple[Arguments, Inputs]:
            program = LoopProgram(functions[0], values, infeed, captured=captured)
            return program.arguments(n), program.inputs

        with device(), using():
            program = LoopProgram(functions[0], values, infeed)
            fed = Fed(program.inputs.values, rebuild)
            return _Ran(program, lay_out(program.arguments(n), None, symbols, program.inputs, fed))

    def run_on(ran: _Ran) -> bool:
        with device():
            if not ran.program.sends_as_before():
                return False
            ran.pipeline.run(models.as_results(values) or None)
        return True

    ran = once((n, infeed), [body], make, run_on)
    if symbols is None:
        return list(ran.program.inputs.values), ran
    return [_final(ran, index) for index in range(len(models.as_results(values)))], ran
