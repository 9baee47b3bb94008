"""Accept the argument orders of Graphcore's releases, told apart by types of positional arguments.

Up to SDK 2.1 ``pipeline`` has one argument fewer than today, and the first argument of a queue is a name. Programs of
these releases pass arguments by position, and ``pipeline_depth`` by name, for example graphcore/examples at commit
3c88014, code_examples/tensorflow/pipelining/pipelining.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import wraps
from typing import Any, Final, TypeVar

from ipusim.base.errors import ProgramTypeError

_ReturnT = TypeVar("_ReturnT")

#: Position of gradient_accumulation_for_captured_grads, a boolean; SDK 2.1 has repeat_count at this position.
_CAPTURED_POSITION: Final = 3
#: Name of the gradient accumulation count before SDK 1.4.
_OLD_COUNT_NAME: Final = "pipeline_depth"

#: Arguments of an infeed after the dataset, in today's order; the class declares SDK 2.1's order.
_INFEED: Final = ("device_ordinal", "prefetch_depth", "optimise_latency")
#: Arguments of an outfeed in today's order; the class declares SDK 2.1's order.
_OUTFEED: Final = ("outfeed_mode", "device_ordinal", "buffer_depth", "optimise_latency")
#: Names of outfeed modes. A text in this position is more likely a mode than a queue's name.
_MODE_NAMES: Final = ("ALL", "LAST")


def accepts_old_order(function: Callable[..., _ReturnT]) -> Callable[..., _ReturnT]:
    """Accept calls of ``pipeline`` in SDK 2.1's positional order, and ``pipeline_depth`` by name."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> _ReturnT:
        if kwargs.get(_OLD_COUNT_NAME) is not None:
            kwargs["gradient_accumulation_count"] = kwargs[_OLD_COUNT_NAME]
        kwargs.pop(_OLD_COUNT_NAME, None)
        return function(*_in_todays_order(args), **kwargs)

    return call


def _in_todays_order(args: Sequence[Any]) -> tuple[Any, ...]:
    """Return positional arguments in today's order.

    Raises ProgramTypeError for the order before SDK 1.4, which had a count in place of the accumulators' dtype.
    """
    count, dtype = [*args[1:_CAPTURED_POSITION], None, None][:2]
    if isinstance(dtype, int) and not isinstance(dtype, bool):
        raise ProgramTypeError(
            f"gradient_accumulation_dtype: expected a dtype, a function or None, got {dtype!r}; before SDK 1.4 the "
            f"gradient accumulation count stood there, after pipeline_depth {count!r}: name the arguments"
        )
    if len(args) <= _CAPTURED_POSITION or isinstance(args[_CAPTURED_POSITION], bool):
        return tuple(args)
    return (*args[:_CAPTURED_POSITION], True, *args[_CAPTURED_POSITION:])


def infeed_accepts_old_order(init: Callable[..., None]) -> Callable[..., None]:
    """Accept today's positional order of an infeed's arguments, in addition to the declared order of SDK 2.1.

    Raises ProgramTypeError for ambiguous positions.
    """

    @wraps(init)
    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        value = args[1:]
        if value and value[0] is not None:
            is_new = not isinstance(value[0], str)
        else:
            is_new = _is_new_order("IPUInfeedQueue", "prefetch_depth", value[1:])
        init(self, *args[:1], *([] if is_new else value), **_by_name(_INFEED if is_new else (), value), **kwargs)

    return call


def outfeed_accepts_old_order(init: Callable[..., None]) -> Callable[..., None]:
    """Accept today's positional order of an outfeed's arguments, in addition to the declared order of SDK 2.1.

    Raises ProgramTypeError for ambiguous positions.
    """

    @wraps(init)
    def call(self: Any, *values: Any, **kwargs: Any) -> None:
        name, mode = (*values, None, None)[:2]
        if name is not None:
            is_new = not isinstance(name, str) or name.upper() in _MODE_NAMES
        elif mode is not None:
            is_new = not isinstance(mode, Enum)
        else:
            is_new = _is_new_order("IPUOutfeedQueue", "buffer_depth", values[2:])
        init(self, *([] if is_new else values), **_by_name(_OUTFEED if is_new else (), values), **kwargs)

    return call


def _is_new_order(queue: str, depth: str, values: Sequence[Any]) -> bool:
    """Tell whether the arguments after None are in today's order: ``depth``, then optimise_latency.

    SDK 2.1 has device_ordinal, replication_factor and others. Raises ProgramTypeError for an ambiguous position.
    """
    if len(values) > 1:
        return len(values) == 2 and isinstance(values[1], bool)
    if values and isinstance(values[0], int) and not isinstance(values[0], bool) and values[0] > 0:
        raise ProgramTypeError(
            f"{queue}: expected arguments by name, because the argument after None is device_ordinal up to SDK 2.1 and "
            f"{depth} in later releases, got {values[0]} by position"
        )
    return False


def _by_name(order: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Return positional arguments by name; raises ProgramTypeError for too many arguments."""
    if order and len(values) > len(order):
        raise ProgramTypeError(f"expected at most {len(order)} arguments, {', '.join(order)}, got {len(values)}")
    return dict(zip(order, values, strict=False))
