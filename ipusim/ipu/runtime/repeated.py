"""Programs of a function that a strategy calls again: they run on, with what the function gives them then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ipusim.ipu.runtime.building import compiling
from ipusim.ipu.runtime.context import setting

T = TypeVar("T")


class Held:
    """A function of a program's, which is another object in each call of the function that builds it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Take the first."""
        self.function = function

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The latest, whose arguments are its own."""
        return self.function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the latest."""
        return self.function(*args, **kwargs)


@dataclass(frozen=True, eq=False)
class Made:
    """A program that a function has built.

    Attributes:
        program: what it became.
        form: what must be the same for it to run on, such as its queues.
        functions: that it runs.
    """

    program: Any
    form: tuple[Any, ...]
    functions: Sequence[Held]


@dataclass(eq=False)
class _Call:
    made: list[Made]
    place: int = 0


_CALL: Final[ContextVar[_Call | None]] = ContextVar("call", default=None)


def repeating(made: list[Made]) -> AbstractContextManager[Any]:
    """Build the programs of a function in the block, or run on those that it ``made`` when it was called before."""
    return setting(_CALL, _Call(made))


def once(
    form: tuple[Any, ...],
    functions: Sequence[Callable[..., Any]],
    make: Callable[[Sequence[Callable[..., Any]]], T],
    run_on: Callable[[T], bool],
) -> T:
    """Return what ``make`` makes of a program's functions, and runs.

    In a function that a strategy calls again it is what was made there before, with the new functions, if ``run_on``
    could run it.
    """
    call = _CALL.get()
    if call is None or compiling() is not None:
        return make(functions)
    place, call.place = call.place, call.place + 1
    before = call.made[place] if place < len(call.made) else None
    if before is not None and _same(before.form, form) and len(before.functions) == len(functions):
        for held, function in zip(before.functions, functions, strict=True):
            held.function = function
        program: T = before.program
        if run_on(program):
            return program
    holding = [Held(function) for function in functions]
    found = make(holding)
    call.made[place:] = [Made(found, form, holding)]
    return found


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return len(one) == len(other) and all(
        a is b or (isinstance(a, int) and a == b) for a, b in zip(one, other, strict=True)
    )
