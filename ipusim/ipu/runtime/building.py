"""The surroundings of a computation that is built: its device, what precedes it, what it captures and makes.

Programs of a function that a strategy calls again run on, with what the function gives them then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ipusim.api import Array
from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.runtime.context import Scoped


class Captures:
    """The tensors that one body captures, each with its value."""

    def __init__(self, values: Mapping[Any, Array] | None = None) -> None:
        """Begin with none; the body is tried on ``values`` of those that it captures, by default on their examples."""
        self._tried = dict(values or {})
        self._values: dict[Any, Array] = {}
        self._running = False

    def __len__(self) -> int:
        """How many there are."""
        return len(self._values)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of their values."""
        return tuple(value.shape for value in self._values.values())

    def evaluated(self, value: Callable[[Any], Array]) -> dict[Any, Array]:
        """Return the values of a run, in which ``value`` evaluates a tensor, by tensor."""
        return {tensor: value(tensor).astype(before.dtype) for tensor, before in self._values.items()}

    def take(self, value: Callable[[Any], Array]) -> None:
        """Take the values of a run, in which ``value`` evaluates a tensor."""
        self._values = self.evaluated(value)
        self._running = True

    def value_of(self, tensor: Any) -> Array:
        """Return the value of a tensor in this run, while the body is tried an array of its form.

        Raises UnsupportedProgramError for one that the body did not capture when it was tried.
        """
        if tensor not in self._values:
            if self._running:
                raise UnsupportedProgramError(f"body: expected to capture {tensor!r} in every iteration, or in none")
            self._values[tensor] = self._tried.get(tensor, tensor.example)
        return self._values[tensor]


#: What the body that is running captures; None where none is, as in a stage of a pipeline, which may capture nothing.
captures: Final[Scoped[Captures | None]] = Scoped("captures", None)


#: A Fetch, which knows this module (:class:`ipusim.ipu.runtime.host.Fetch`).
Fetch = Any

#: The fetches that come before anything that is made here.
control_inputs: Final[Scoped[tuple[Fetch, ...]]] = Scoped("control_inputs", ())


def depending_on(inputs: Sequence[Fetch] | None) -> AbstractContextManager[Any]:
    """Make ``inputs`` control inputs of what the block makes, beside those of outer blocks; None removes all."""
    return control_inputs.set_to(() if inputs is None else (*control_inputs(), *inputs))


def is_late(value: Any) -> bool:
    """Tell whether a value is a Fetch that comes after all others of a run, or that such a one must come before."""
    return getattr(value, "late", False) or any(map(is_late, getattr(value, "control_inputs", ())))


#: The list that a program for the device adds itself to, to run in a session; None where it runs at once.
compiling: Final[Scoped[list[Any] | None]] = Scoped("compiling", None)


def collect(computation: Callable[..., Any], inputs: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return the results of ``computation``, and the programs for the device that it has made."""
    programs: list[Any] = []
    with compiling.set_to(programs):
        return computation(*inputs), programs


#: Whether tensors are to be computed on an IPU.
on_ipu: Final = Scoped("on_ipu", False)
#: The shard that computations are placed on; None outside of any scope.
shard: Final[Scoped[int | None]] = Scoped("shard", None)

T = TypeVar("T")


class CurrentFunction:
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
    functions: Sequence[CurrentFunction]


@dataclass(eq=False)
class _Call:
    made: list[Made]
    next_program: int = 0


_CALL: Final[Scoped[_Call | None]] = Scoped("call", None)


def repeating(made: list[Made]) -> AbstractContextManager[Any]:
    """Build the programs of a function in the block, or run on those that it ``made`` when it was called before."""
    return _CALL.set_to(_Call(made))


def once(
    form: tuple[Any, ...],
    functions: Sequence[Callable[..., Any]],
    make: Callable[[Sequence[Callable[..., Any]]], T],
    run_on: Callable[[T], bool],
) -> T:
    """Return the program that ``make`` makes of functions, and runs.

    In a function that a strategy calls again it is what was made there before, with the new functions, if ``run_on``
    could run it.
    """
    call = _CALL()
    if call is None or compiling() is not None:
        return make(functions)
    index, call.next_program = call.next_program, call.next_program + 1
    before = call.made[index] if index < len(call.made) else None
    if before is not None and _same(before.form, form) and len(before.functions) == len(functions):
        for current, function in zip(before.functions, functions, strict=True):
            current.function = function
        program: T = before.program
        if run_on(program):
            return program
    current_functions = [CurrentFunction(function) for function in functions]
    program_made = make(current_functions)
    call.made[index:] = [Made(program_made, form, current_functions)]
    return program_made


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return len(one) == len(other) and all(
        a is b or (isinstance(a, int) and a == b) for a, b in zip(one, other, strict=True)
    )
