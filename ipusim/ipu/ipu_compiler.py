"""Compilation in Graphcore's names: a computation whose program runs when a session is asked for its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks, program_state
from ipusim.ipu.runtime.building import collect
from ipusim.ipu.runtime.call_checks import check_takes
from ipusim.ipu.runtime.function import CompiledComputation, Result, TrialError
from ipusim.ipu.runtime.host import Evaluated, Fetch, Running
from ipusim.ipu.runtime.loop_body import is_operation
from ipusim.ipu.runtime.program_state import Remembered, VariableStore
from ipusim.ipu.runtime.run import Pipeline, ProgramReached
from ipusim.ipu.runtime.structures import mapped

#: All programs that have been compiled in this context, whose variables an initializer sets.
compiled: Final[Remembered[tuple[Fetch, ...]]] = Remembered("compiled", ())
#: Restores the programs that ``compiled`` has returned, without those compiled since.
restore: Final = compiled.set


def compile(computation: Callable[..., Any], inputs: Sequence[Any] | None = None) -> Any:
    """Build ``computation`` and return what runs it in a session.

    No code is made for an IPU: operations are computed with NumPy, and their time on the IPU is simulated.

    One with a pipeline or a loop in it is that program. Any other is a program by itself, of one execution in each run
    of a session: its inputs come to the IPU and its results go to the host in copies of their own. It is sharded by
    ``scopes.ipu_shard``, and trains with the operations that it returns.

    Stages are tried, and the program is laid out and checked, at once. As in Graphcore's, a computation without
    outputs gives an operation, one value a tuple of it, and several values a list or tuple of them; operations among
    them run with any of them.

    Args:
        computation: a function of ``inputs``.
        inputs: placeholders, other tensors of the host, or values.

    Raises ProgramTypeError for what is no function, ProgramError for several pipelines, ModelError for a computation
    that fails, and what ``pipelining_ops.pipeline`` and ``loops.repeat`` raise.
    """
    checks.function("computation", computation, "a function of the inputs")
    items = [] if inputs is None else inputs
    checks.instance("inputs", items, list | tuple, "a list of placeholders, other tensors of the host, or values")
    check_takes("computation", computation, items, {})
    variables = program_state.store()
    try:
        result, programs = collect(computation, items)
    except Exception as error:  # one without a pipeline or a loop computes what tensors of the host do not know
        return _compiled_alone(computation, items, variables, error)
    if not programs:
        return _compiled_alone(computation, items, variables)
    if sum(isinstance(program, Pipeline) and program.pipelined for program in programs) > 1:
        raise ProgramError(
            "Only a single ipu.pipeline() is allowed in a compiled program - if multiple pipelines are required the "
            "program needs to be split into multiple compilations."
        )
    compiled.set((*compiled(), *programs))
    return _fetched(result, programs)


def _compiled_alone(
    computation: Callable[..., Any], inputs: Sequence[Any], before: VariableStore, error: Exception | None = None
) -> Any:
    """Return what runs a computation as a program by itself, with the variables that there were ``before``.

    Raises the ``error`` that the computation has raised where it does build a pipeline or a loop.
    """
    program_state.restore(before)
    try:
        program, laid_out = collect(CompiledComputation, (computation, inputs))
    except TrialError as failed:
        raise failed.error from failed.error.__cause__
    except ProgramReached:
        if error is None:
            raise ProgramError("computation: expected one that builds its pipeline or loop in every call") from None
        raise error from error.__cause__
    compiled.set((*compiled(), *laid_out))
    return _fetched(program.results(), [program])


def _fetched(result: Any, programs: Sequence[Fetch]) -> Any:
    """Return the fetches that make a session run ``programs`` and evaluate the tensors of ``result``."""

    def after(value: Any) -> Fetch:
        def evaluate(running: Running) -> Any:
            for program in programs:
                running.value(program)
            return running.value(value)

        return Evaluated(evaluate)

    def tensor(value: Any) -> Any:
        return value if isinstance(value, Result) else after(value)

    if isinstance(result, Mapping):
        return mapped(tensor, result)
    if isinstance(result, list | tuple):
        tensors = [mapped(tensor, item) for item in result if not _is_operation(item)]
        return type(result)(tensors) if tensors else after(None)
    return after(None) if result is None or _is_operation(result) else (tensor(result),)


def _is_operation(value: Any) -> bool:
    return isinstance(value, Pipeline) or is_operation(value)


def forget() -> None:
    """Forget the programs that have been compiled in this context."""
    restore(())
