"""A function that a strategy runs: its loop over ``tf.range`` becomes a program, which goes on in the next call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ipusim.ipu.function_body import FunctionBody, Loop, LoopFound, calls_device, running_as
from ipusim.ipu.host import compiling
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.lay_out import lay_out
from ipusim.ipu.loop_body import run_body
from ipusim.ipu.loop_program import LoopProgram, trying
from ipusim.ipu.one_at_a_time import device
from ipusim.ipu.repeated import Made, repeating
from ipusim.ipu.run import Pipeline
from ipusim.ipu.variable_store import using
from ipusim.model.functions.variables import inside


class Function:
    """What a strategy calls, as ``tf.function`` makes it of a function.

    A loop over ``tf.range`` in it runs on the device: the function, from its beginning to its end and with one
    iteration, is then the body of a loop. Called again with arguments of the same forms it runs on from the variables
    as they are, with the arguments' new values. A function without such a loop is called as it is, and its pipelines
    and loops run on in the same way. One that no strategy calls is called as it is.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        """Take the function."""
        self._function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self._programs: dict[Any, FunctionProgram] = {}
        self._made: dict[Any, list[Made]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it; raises UnsupportedProgramError for a loop that cannot be one on the device, and as loops do."""
        if not calls_device() or inside() or compiling() is not None:
            return self._function(*args, **kwargs)
        form = _form((args, kwargs))
        made = self._made.setdefault(form, [])
        found = self._programs.get(form)
        if found is not None:
            return found.run(args, kwargs)
        try:
            with running_as(FunctionBody(self.name)), repeating(made):
                return self._function(*args, **kwargs)
        except LoopFound as found_loop:
            loop = found_loop.loop
        if loop.numbers.size:
            with device():  # another thread may have been faster
                if form in self._programs:
                    return self._programs[form].run(args, kwargs)
                self._programs[form] = FunctionProgram(self._function, self.name, loop, args, kwargs)
        return None


class FunctionProgram:
    """The loop of a function as a program, which has run once."""

    def __init__(
        self, function: Callable[..., Any], name: str, loop: Loop, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Find out whose elements the loop takes, and run it; raises as :meth:`Function.__call__`."""
        self._function, self._args, self._kwargs = function, args, kwargs
        self._body = FunctionBody(name, loop)
        with using():
            with trying():
                tried = replace(self._body)
                run_body(partial(self._run_body, tried), (), 0, at_once=True)
            self._body = replace(self._body, iterator=tried.iterator)
            infeed = None if tried.iterator is None else tried.iterator.infeed
            assert infeed is None or isinstance(infeed, IPUInfeedQueue)
            self._first = [np.zeros((), np.int32)] if loop.counts else []
            program = LoopProgram(self._iteration, self._first, infeed, at_once=True)
            self._pipeline: Pipeline = lay_out(program.arguments(loop.numbers.size), None, None, program.inputs)

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Run the loop again."""
        with device():
            self._args, self._kwargs = args, kwargs
            self._pipeline.run(self._first or None)

    def _iteration(self, *given: Any, **named: Any) -> Any:
        carried = len(self._first)
        number = int(given[0]) if carried else 0
        self._run_body(replace(self._body, number=number, element=(*given[carried:], *named.values())))
        return (number + 1,) if carried else None

    def _run_body(self, body: FunctionBody) -> None:
        with running_as(body):
            body.end(self._function(*self._args, **self._kwargs))


def _form(value: Any) -> Any:
    """Return what calls have in common that one program serves: forms of arrays, and all else as it is."""
    if isinstance(value, Mapping):
        return tuple((name, _form(each)) for name, each in value.items())
    if isinstance(value, tuple | list):
        return tuple(map(_form, value))
    if isinstance(value, np.ndarray | np.generic):
        return np.shape(value), value.dtype
    if isinstance(value, float):  # the next run has another one: it is no part of the program
        return float
    return value if isinstance(value, int | str | None) else Same(value)


class Same:
    """An object that is itself alone, and that its program keeps alive."""

    def __init__(self, value: Any) -> None:
        """Take the object."""
        self._value = value

    def __eq__(self, other: object) -> bool:
        """Tell whether it is the same."""
        return isinstance(other, Same) and self._value is other._value

    def __hash__(self) -> int:
        """Return its identity."""
        return id(self._value)
