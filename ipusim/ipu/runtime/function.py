"""A function that a strategy runs: its loop over ``tf.range`` becomes a program, which goes on in the next call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, update_wrapper
from types import MethodType
from typing import Any

import numpy as np

from ipusim.api import functions
from ipusim.base.errors import IpusimError
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.building import Made, compiling, repeating
from ipusim.ipu.runtime.compiled_computation import CompiledComputation, TrialError
from ipusim.ipu.runtime.function_body import FunctionBody, Loop, LoopReached, calls_device, device, running_as
from ipusim.ipu.runtime.lay_out import ProgramReached, lay_out
from ipusim.ipu.runtime.loop_body import run_body
from ipusim.ipu.runtime.loop_program import LoopProgram, trying
from ipusim.ipu.runtime.program_state import using
from ipusim.ipu.runtime.run import Pipeline
from ipusim.ipu.runtime.structures import leaves, mapped


class Function:
    """A function that a strategy runs, as ``tf.function`` makes it.

    A loop over ``tf.range`` in it runs on the device: the function, from its beginning to its end and with one
    iteration, is then the body of a loop. Called again with arguments of the same forms it runs on from the variables
    as they are, with the arguments' new values. A function with pipelines or loops of its own is called as it is, and
    these run on in the same way. Any other is a program by itself: it takes the arrays among its arguments to the
    device, and its results to the host. What cannot be one, such as a function that sets variables which are trained,
    and one that no strategy calls, is called as it is.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        """Take the function."""
        self._function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self._programs: dict[Any, FunctionProgram] = {}
        self._made: dict[Any, list[Made]] = {}
        self._computations: dict[Any, FunctionComputation | TrialError | None] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it; raises UnsupportedProgramError for a loop that cannot be one on the device, and as loops do."""
        if not calls_device() or functions.inside() or compiling() is not None:
            return self._function(*args, **kwargs)
        form = _form((args, kwargs))
        made = self._made.setdefault(form, [])
        result = self._programs.get(form)
        if result is not None:
            return result.run(args, kwargs)
        computation: FunctionComputation | TrialError | None = None
        try:
            if form not in self._computations:
                self._computations[form] = _computation(self._function, self.name, args, kwargs)
            computation = self._computations[form]
            if isinstance(computation, FunctionComputation):
                return computation.run(args, kwargs)
            with running_as(FunctionBody(self.name)), repeating(made):
                return self._function(*args, **kwargs)
        except IpusimError:
            if isinstance(computation, TrialError):  # what the device does not take says more
                raise computation.error from computation.error.__cause__
            raise
        except LoopReached as reached:
            loop = reached.loop
        if loop.numbers.size:
            with device():  # another thread may have been faster
                if form in self._programs:
                    return self._programs[form].run(args, kwargs)
                self._programs[form] = FunctionProgram(self._function, self.name, loop, args, kwargs)
        return None


class FunctionComputation:
    """A function without pipelines and loops as a program of one iteration."""

    def __init__(self, function: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Try it, and run it once; raises ProgramReached and LoopReached where it has a program or a loop."""
        self._function, self._name, self._arguments = function, name, (args, kwargs)
        self._computation = CompiledComputation(self._called, self._arrays(), name=name, at_once=True)
        self.has_effect = self._computation.has_effect
        self._first = True

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the results for these arguments; that of the first call is there already."""
        with device():
            self._arguments = args, kwargs
            if not self._first:
                self._computation.run(self._arrays())
            self._first = False
            return self._computation.values()

    def _arrays(self) -> list[Any]:
        return [leaf for leaf in leaves(self._arguments) if isinstance(leaf, np.ndarray | np.generic)]

    def _called(self, *arrays: Any) -> Any:
        rest = iter(arrays)
        args, kwargs = mapped(
            lambda item: next(rest) if isinstance(item, np.ndarray | np.generic) else item, self._arguments
        )
        with running_as(FunctionBody(self._name)):
            return self._function(*args, **kwargs)


def _computation(
    function: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> FunctionComputation | TrialError | None:
    """Return a function as a program by itself, or why it is none; None for one with programs, or without any effect.

    Raises LoopReached for a loop, and IpusimError for a program that cannot be laid out, or run.
    """
    try:
        result = FunctionComputation(function, name, args, kwargs)
    except TrialError as error:
        return error
    except ProgramReached:
        return None
    return result if result.has_effect else None


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

    def _iteration(self, *values: Any, **named: Any) -> Any:
        carried = len(self._first)
        number = int(values[0]) if carried else 0
        self._run_body(replace(self._body, number=number, element=(*values[carried:], *named.values())))
        return (number + 1,) if carried else None

    def _run_body(self, body: FunctionBody) -> None:
        with running_as(body):
            body.end(self._function(*self._args, **self._kwargs))


def _form(value: Any) -> Any:
    """Return the key of calls that one program serves: forms of arrays, and all else unchanged."""
    if isinstance(value, Mapping):
        return tuple((name, _form(item)) for name, item in value.items())
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


class TensorFlowFunction(Function):
    """A function, or in a class a method, as ``tf.function`` has made it."""

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return the function as the method of an object."""
        return self if instance is None else MethodType(self, instance)


def function(func: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Return the Function of ``func`` that a strategy runs, or a decorator; ``options`` have no effect.

    Raises ProgramTypeError for what is no function.
    """
    if func is None:
        return function
    if not callable(func):
        checks.wrong_type("func", "a function", func)
    return update_wrapper(TensorFlowFunction(func), func)
