"""Compilation in Graphcore's names: a computation whose program runs when a session is asked for its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ipusim.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu import checks
from ipusim.ipu.host import After, Fetch, Operation, collect
from ipusim.ipu.loop_body import check_takes
from ipusim.ipu.remembered import Remembered
from ipusim.ipu.run import Pipeline

#: What has been compiled so far, whose variables an initializer sets.
_COMPILED: Final[Remembered[tuple[Fetch, ...]]] = Remembered("compiled", ())


def compile(computation: Callable[..., Any], inputs: Sequence[Any] | None = None) -> Any:
    """Build ``computation``, which holds a pipeline or a loop, and return what runs it in a session.

    Stages are tried, and the program is laid out and checked, at once. As in Graphcore's, a computation without
    outputs gives an operation, one value a tuple of it, and several values a list or tuple of them; operations among
    them run with any of them.

    Arguments:
        computation: a function of ``inputs``.
        inputs: placeholders, other tensors of the host, or values.

    Raises ProgramTypeError for what is no function, ProgramError for several pipelines, UnsupportedProgramError for a
    computation without a pipeline or a loop, and what ``pipelining_ops.pipeline`` and ``loops.repeat`` raise.
    """
    if not callable(computation):
        checks.wrong_type("computation", "a function of the inputs", computation)
    given = [] if inputs is None else inputs
    if not isinstance(given, list | tuple):
        checks.wrong_type("inputs", "a list of placeholders, other tensors of the host, or values", inputs)
    check_takes("computation", computation, given, {})
    found, programs = collect(computation, given)
    if not programs:
        raise UnsupportedProgramError(
            "computation: expected a pipelining_ops.pipeline, a loops.repeat or a loops.while_loop in it, got none: "
            "put what it computes into the body of a loop"
        )
    if sum(isinstance(each, Pipeline) and each.pipelined for each in programs) > 1:
        raise ProgramError(
            "Only a single ipu.pipeline() is allowed in a compiled program - if multiple pipelines are required the "
            "program needs to be split into multiple compilations."
        )
    _COMPILED.set((*compiled(), *programs))
    if isinstance(found, list | tuple):
        tensors = [After(each, programs) for each in found if not _is_operation(each)]
        return type(found)(tensors) if tensors else After(None, programs)
    return After(None, programs) if found is None or _is_operation(found) else (After(found, programs),)


def compiled() -> tuple[Fetch, ...]:
    """Return all programs that have been compiled in this context."""
    return _COMPILED.get()


def _is_operation(value: Any) -> bool:
    return value is None or isinstance(value, Operation) or bool(getattr(value, "is_operation", False))


def forget() -> None:
    """Forget the programs that have been compiled in this context."""
    _COMPILED.set(())
