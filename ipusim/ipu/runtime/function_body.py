"""A function whose loop over ``tf.range`` runs on the device: where its one loop is, and what an iteration asks for."""

from __future__ import annotations

import dis
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, Final, Protocol

import numpy as np

from ipusim.api import machine
from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.runtime.context import Scoped
from ipusim.ipu.runtime.loop_body import body_record


class Infeed(Protocol):
    """A queue of elements."""

    def example(self) -> Sequence[Any]:
        """Return arrays of an element's shapes and dtypes."""
        ...


class Elements(Protocol):
    """An iterator, whose elements a queue can take to the device."""

    @property
    def infeed(self) -> Infeed:
        """The queue."""
        ...


@dataclass(frozen=True)
class Loop:
    """A loop in the source of a function.

    Attributes:
        numbers: that it goes through.
        code, offset: where it begins.
        counts: whether it uses the number.
    """

    numbers: np.ndarray[Any, Any]
    code: CodeType
    offset: int
    counts: bool


class LoopReached(BaseException):
    """Leaves a function at its first loop, which then is run on the device."""

    def __init__(self, loop: Loop) -> None:
        """Take the loop."""
        super().__init__(loop)
        self.loop = loop


@dataclass
class FunctionBody:
    """A run of a function as the body of its loop, from its beginning to its end, with one iteration.

    Attributes:
        name: the function's.
        loop: that is run; None until it is found.
        number: which iteration it is.
        element: the arrays of the infeed's element; None while it is found out whose.
        iterator: whose elements the body takes; None for none.
    """

    name: str
    loop: Loop | None = None
    number: int = 0
    element: Sequence[Any] | None = None
    iterator: Elements | None = None
    _inside: bool = field(default=False, init=False)
    _ended: tuple[Any, ...] | None = field(default=None, init=False)
    _taken: bool = field(default=False, init=False)

    def refuse(self, text: str) -> UnsupportedProgramError:
        """Return the error for what cannot be a loop on the device."""
        return UnsupportedProgramError(f"{self.name}: {text}")

    def go_through(self, numbers: LoopRange, frame: FrameType) -> Iterator[Any]:
        """Return an iterator of a loop over ``numbers`` in ``frame``: of one number, for the loop on the device."""
        known = self.loop is not None and (frame.f_code, frame.f_lasti) == (self.loop.code, self.loop.offset)
        # Part of an iteration, as a comprehension is, or an iterator that is handed to something else than a loop.
        if self._inside or not (known or _after(frame).opname == "FOR_ITER"):
            return iter(np.asarray(numbers))
        if self.loop is None:
            raise LoopReached(self._loop(np.asarray(numbers), frame))
        if self._ended is not None or not known:
            raise self.refuse("expected one loop over tf.range on the device, got two: put each into its own function")
        if len(numbers) != len(self.loop.numbers):
            raise self.refuse(
                f"expected a loop over {len(self.loop.numbers)} numbers, as in its first call, got {len(numbers)}: an "
                "int of Python's as the argument, in place of a tensor, makes another program"
            )
        if any(_recorded()):
            raise self.refuse("expected nothing that trains, or goes to an outfeed, before the loop over tf.range")
        return self._iteration(numbers)

    def next_element(self, iterator: Elements) -> Sequence[Any]:
        """Return the element that this iteration takes from ``iterator``."""
        if not self._inside:
            raise self.refuse("expected next(iterator) inside of the loop over tf.range, as in `for _ in tf.range(1)`")
        if self._taken or self.iterator not in (None, iterator):
            raise self.refuse(
                "expected next(iterator) once in an iteration: zip datasets, or take larger batches of them"
            )
        self.iterator, self._taken = iterator, True
        return iterator.infeed.example() if self.element is None else self.element

    def end(self, returned: Any) -> None:
        """Check what can be told when the function has ended; raises UnsupportedProgramError."""
        if self._ended is None:
            raise self.refuse("expected a loop over tf.range that runs to its end, got a break or a return in it")
        if _recorded() != self._ended:
            raise self.refuse("expected nothing that trains, or goes to an outfeed, behind the loop over tf.range")
        if returned is not None:
            raise self.refuse("expected a function with a loop over tf.range to return nothing: enqueue its results")

    def _iteration(self, numbers: LoopRange) -> Iterator[Any]:
        self._inside = True
        yield np.asarray(numbers)[self.number]
        self._inside, self._ended = False, _recorded()

    def _loop(self, numbers: np.ndarray[Any, Any], frame: FrameType) -> Loop:
        carried, counts = _names(frame)
        if carried:
            raise self.refuse(
                f"expected a loop over tf.range that begins each iteration anew, got {', '.join(carried)} carried "
                "from one to the next: enqueue results, or write the loop as loops.repeat(n, body, inputs)"
            )
        return Loop(numbers, frame.f_code, frame.f_lasti, counts)


#: What the name of an instruction says of variables.
_ACCESS: Final = re.compile(r"(LOAD|STORE)_(?:FAST|NAME|GLOBAL|DEREF|CLASSDEREF)")

#: The function whose loop is looked for, or run, None where there is none.
body_of_function: Final[Scoped[FunctionBody | None]] = Scoped("body_of_function", None)
#: Whether functions that are called are to run on the device.
_ON_DEVICE: Final = Scoped("on_device", False)


def calls_device() -> bool:
    """Tell whether a function that the caller calls is to run on the device, and is no part of another there."""
    return _ON_DEVICE() and body_of_function() is None


def in_strategy() -> bool:
    """Whether this is in the scope of a strategy, or in what it runs."""
    return bool(_ON_DEVICE())


@contextmanager
def calling(device: bool) -> Iterator[None]:
    """Run functions that are called in the block on the device, or on the host, where none's loop is looked for."""
    with _ON_DEVICE.set_to(device), body_of_function.set_to(body_of_function() if device else None):
        yield


class LoopRange(np.ndarray[Any, Any]):
    """Numbers of ``tf.range``: a loop over them runs on the device, where its function does."""

    def __iter__(self) -> Iterator[Any]:
        """Go through them; in a function that a strategy runs, once for all."""
        body = body_of_function()
        return iter(np.asarray(self)) if body is None else body.go_through(self, sys._getframe(1))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute on plain numbers."""
        plain = (np.asarray(input_) if isinstance(input_, LoopRange) else input_ for input_ in inputs)
        return getattr(ufunc, method)(*plain, **options)


def loop_range(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return numbers that a loop on the device may go through; anywhere else they are plain."""
    body = body_of_function()
    return numbers if body is None else numbers.view(LoopRange)


def _recorded() -> tuple[Any, ...]:
    record = body_record()
    return () if record is None else (record.queue, record.train)


def _after(frame: FrameType) -> dis.Instruction:
    """Return the instruction behind the one that ``frame`` is at."""
    code = dis.get_instructions(frame.f_code)
    return next(item for item in code if item.offset > frame.f_lasti and item.opname != "EXTENDED_ARG")


def _names(frame: FrameType) -> tuple[list[str], bool]:
    """Return the names that a loop in ``frame`` hands from one iteration to the next, and whether it uses its number.

    A name is handed on where it has a value before the loop and gets another in it.
    """
    code, begin = frame.f_code, _after(frame)
    accesses = [access for instruction in dis.get_instructions(code) for access in _accesses(instruction)]
    before = {name for offset, stores, name in accesses if stores and offset < begin.offset}
    before |= {*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], *code.co_freevars}
    inner = [access for access in accesses if begin.offset < access[0] < begin.argval]
    (_, _, number), *others = inner or [(0, True, "")]  # what the loop stores first is its number
    carried = {name for _, stores, name in others if stores and name in before}
    return sorted(carried), any(name == number and not stores for _, stores, name in others)


def _accesses(instruction: dis.Instruction) -> list[tuple[int, bool, str]]:
    """Return offset, whether it is stored, and name of each variable that an instruction loads or stores, in order."""
    result = _ACCESS.findall(instruction.opname)  # some do two
    names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,) * len(result)
    return [(instruction.offset, kind == "STORE", name) for kind, name in zip(result, names, strict=False)]


#: Of the process, as traces and the number of BLAS threads are; a program that runs may build another.
_DEVICE: Final = threading.RLock()


@contextmanager
def device() -> Iterator[None]:
    """Hold the device, and one BLAS thread, for the block; another thread waits until it ends.

    What runs in it is no part of a function whose loop is looked for. Several BLAS threads spin longer over matrices
    of a few hundred rows than they compute.
    """
    with _DEVICE, machine.one_blas_thread(), calling(device=False):
        yield
