"""The order of ``pipeline``'s arguments in Graphcore's releases: those of SDK 2.1 and before have one fewer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final, TypeVar

from ipusim.errors import ProgramTypeError

_ReturnT = TypeVar("_ReturnT")

#: The place of gradient_accumulation_for_captured_grads, True or False; in SDK 2.1 repeat_count stands there.
_CAPTURED: Final = 3
#: The gradient accumulation count by the name that it had before SDK 1.4.
_DEPTH: Final = "pipeline_depth"


def in_any_release(function: Callable[..., _ReturnT]) -> Callable[..., _ReturnT]:
    """Let ``pipeline`` be called by position in the order of SDK 2.1, and with ``pipeline_depth`` by name."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> _ReturnT:
        if kwargs.get(_DEPTH) is not None:
            kwargs["gradient_accumulation_count"] = kwargs[_DEPTH]
        kwargs.pop(_DEPTH, None)
        return function(*_in_order(args), **kwargs)

    return call


def _in_order(args: Sequence[Any]) -> tuple[Any, ...]:
    """Return positional arguments in the order of today.

    Raises ProgramTypeError for those before SDK 1.4, where a count stood in the place of the accumulators' dtype.
    """
    count, dtype = [*args[1:_CAPTURED], None, None][:2]
    if isinstance(dtype, int) and not isinstance(dtype, bool):
        raise ProgramTypeError(
            f"gradient_accumulation_dtype: expected a dtype, a function or None, got {dtype!r}; before SDK 1.4 the "
            f"gradient accumulation count stood there, behind pipeline_depth {count!r}: name the arguments"
        )
    if len(args) <= _CAPTURED or isinstance(args[_CAPTURED], bool):
        return tuple(args)
    return (*args[:_CAPTURED], True, *args[_CAPTURED:])
