"""Computations and functions as programs by themselves: of one iteration, or of a loop over ``tf.range`` in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, update_wrapper
from types import MethodType
from typing import Any

import numpy as np

from ipusim.api import Array, functions
from ipusim.base.errors import IpusimError, UnsupportedProgramError
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.arguments import Arguments
from ipusim.ipu.runtime.building import Made, compiling, repeating
from ipusim.ipu.runtime.devices import device_ordinal
from ipusim.ipu.runtime.function_body import FunctionBody, Loop, LoopReached, body_of_function, calls_device, device
from ipusim.ipu.runtime.host import Fetch, Running, Tensor, example
from ipusim.ipu.runtime.layouts import Fed
from ipusim.ipu.runtime.loop_body import body_record, is_operation, is_training, run_body
from ipusim.ipu.runtime.loop_program import LoopProgram, trying
from ipusim.ipu.runtime.narrowing import as_tensor
from ipusim.ipu.runtime.optimizer import is_tensor
from ipusim.ipu.runtime.program_state import using
from ipusim.ipu.runtime.queues import IPUOutfeedMode
from ipusim.ipu.runtime.run import Pipeline, ProgramReached, lay_out, stopping_at_programs
from ipusim.ipu.runtime.structures import leaves, mapped
from ipusim.ipu.runtime.variable import plain


class TrialError(Exception):
    """A computation fails when it is tried.

    Attributes:
        error: how.
    """

    def __init__(self, error: IpusimError) -> None:
        """Take the error."""
        super().__init__(str(error))
        self.error = error


class _InputStreams(IPUInfeedQueue):
    """The host copies of a computation's inputs: the values of each run, the same for every replica."""

    def __init__(self, values: tuple[Array, ...]) -> None:
        """Take values of the inputs' shapes and dtypes."""
        super().__init__([values], prefetch_depth=1, device_ordinal=device_ordinal())
        self.values = values

    def check_started(self) -> None:
        """Accept: a run brings its values along."""

    def take(self, index: int) -> tuple[Array, ...]:
        """Return the values of the run."""
        return self.values


class CompiledComputation(Fetch):
    """A computation as a program of one iteration, laid out and checked, which runs once in each run of a session.

    Attributes:
        pipeline: the program.
        structure: what the computation returned when it was tried: tensors, and operations among them.
    """

    def __init__(
        self, computation: Callable[..., Any], inputs: Sequence[Any], *, name: str = "", at_once: bool = False
    ) -> None:
        """Try the computation on the inputs' shapes and dtypes.

        Args:
            computation: a function of ``inputs``; with ``scopes.ipu_shard`` in it, of several IPUs.
            inputs: tensors of the host, or values.
            name: the program's; by default the computation's.
            at_once: run it now, and train where it says so, as in a function of TensorFlow 2.

        Raises:
            ProgramReached: it builds a pipeline or a loop.
            TrialError: it fails when it is tried, or asks for what is not simulated.
            IpusimError: the program cannot be laid out, or run.
        """
        self._computation, self._symbols = computation, tuple(inputs)
        self.structure: Any = None
        self._results = IPUOutfeedQueue(outfeed_mode=IPUOutfeedMode.LAST, device_ordinal=device_ordinal())
        self._name, self._at_once = name or getattr(computation, "__name__", "") or "computation", at_once
        examples = [as_tensor(example(value)) for value in inputs]
        self._dtypes = [item.dtype for item in examples]
        with device(), using():
            try:
                arguments, _ = self._arguments(examples, {})
            except IpusimError as error:
                raise TrialError(error) from error
            fed = Fed(examples, self._arguments)
            self.pipeline: Pipeline = lay_out(arguments, None, None if at_once else (), fed=fed)

    def _arguments(self, values: Sequence[Array], captured: Mapping[Any, Array]) -> tuple[Arguments, None]:
        """Return the arguments of the program whose inputs have the forms of ``values``."""
        streams = _InputStreams(tuple(values)) if values else None
        with stopping_at_programs.set_to(True):
            program = LoopProgram(self._body, (), streams, self._at_once, captured)
        return program.arguments(1, name=self._name), None

    def results(self) -> Any:
        """Return the results of the computation, with a tensor of the host for each tensor."""
        return self._returned(lambda dequeued: Result(self, dequeued), lambda operation: operation)

    def run(self, inputs: Sequence[Any]) -> None:
        """Run the program again, on other inputs of the same forms."""
        self._symbols = tuple(inputs)
        self.evaluate(Running())

    @property
    def replicated(self) -> bool:
        """Whether several replicas compute each result."""
        return self.pipeline.replicas > 1

    @property
    def has_effect(self) -> bool:
        """Whether it gives results, sends some, or trains."""
        return self._results.enqueued or self.pipeline.training or self.pipeline.sends

    def values(self) -> Any:
        """Return the results of the computation in the last run."""
        return self._returned(lambda array: array[0] if self.replicated else array, lambda _: None)

    def _returned(self, tensor: Callable[[Any], Any], operation: Callable[[Any], Any]) -> Any:
        """Return the computation's results: ``tensor`` of each dequeued array, ``operation`` of each operation."""
        dequeued = iter(self._results.dequeue() if self._results.enqueued else ())
        return mapped(lambda item: operation(item) if is_operation(item) else tensor(next(dequeued)), self.structure)

    def evaluate(self, running: Running) -> None:
        """Run the program on the values that the inputs have in this run of a session."""
        items = (as_tensor(running.value(symbol)) for symbol in self._symbols)
        values = tuple(value.astype(dtype, copy=False) for value, dtype in zip(items, self._dtypes, strict=True))
        self.pipeline.take_fed(running, values)
        streams = self.pipeline.infeed
        if isinstance(streams, _InputStreams):
            streams.values = values
        self.pipeline.run()

    def _body(self, *values: Any) -> list[Any]:
        """Run the computation as the body of a loop, which sends its tensors and returns what trains."""
        self.structure = returned = self._computation(*values)
        tensors = [_tensor(leaf) for leaf in leaves(returned) if not is_operation(leaf)]
        record = body_record()
        assert record is not None
        if tensors and record.queue is not None:
            raise UnsupportedProgramError(
                "computation: expected one that enqueues to an outfeed, outside of a loop, to enqueue all its results, "
                f"got {len(tensors)} that it returns"
            )
        if tensors:
            self._results.enqueue(tensors)
        return [leaf for leaf in leaves(returned) if is_training(leaf)]


class Result(Tensor):
    """A tensor that a computation returns: its value is there when the program has run."""

    def __init__(self, computation: CompiledComputation, dequeued: Tensor) -> None:
        """Take the tensor that is dequeued; of replicas, all of which compute it, the first one's counts."""
        super().__init__(dequeued.example[0] if computation.replicated else dequeued.example)
        self._computation, self._dequeued = computation, dequeued

    def evaluate(self, running: Running) -> Array:
        """Run the program, once in a run of a session, and return the tensor's value."""
        running.value(self._computation)
        value: Array = running.value(self._dequeued)
        return value[0] if self._computation.replicated else value


def _tensor(value: Any) -> Any:
    """Return a result as a tensor: Python's own numbers become float32 and int32.

    Raises UnsupportedProgramError for what is no tensor of numbers.
    """
    from ipusim.ipu.runtime.per_example_loss import concrete  # noqa: PLC0415 - autograd takes a while to import

    outcome = concrete(plain(value))
    if isinstance(outcome, bool | int | float):
        return as_tensor(outcome)
    if not is_tensor(outcome):
        raise UnsupportedProgramError(f"computation: expected tensors and operations as its results, got {value!r}")
    return outcome


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

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return the function, in a class as the method of an object."""
        return self if instance is None else MethodType(self, instance)

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
                return computation.call(args, kwargs)
            with body_of_function.set_to(FunctionBody(self.name)), repeating(made):
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


class FunctionComputation(CompiledComputation):
    """A function without pipelines and loops as a program of one iteration."""

    def __init__(self, function: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Try it, and run it once; raises ProgramReached and LoopReached where it has a program or a loop."""
        self._function, self._call, self._first = function, (args, kwargs), True
        super().__init__(self._called, self._arrays(), name=name, at_once=True)

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the results for these arguments; that of the first call is there already."""
        with device():
            self._call = args, kwargs
            if not self._first:
                self.run(self._arrays())
            self._first = False
            return self.values()

    def _arrays(self) -> list[Any]:
        return [leaf for leaf in leaves(self._call) if isinstance(leaf, np.ndarray | np.generic)]

    def _called(self, *arrays: Any) -> Any:
        rest = iter(arrays)
        args, kwargs = mapped(
            lambda item: next(rest) if isinstance(item, np.ndarray | np.generic) else item, self._call
        )
        with body_of_function.set_to(FunctionBody(self._name)):
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
        with body_of_function.set_to(body):
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


def function(func: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Return the Function of ``func`` that a strategy runs, or a decorator; ``options`` have no effect.

    Raises ProgramTypeError for what is no function.
    """
    if func is None:
        return function
    checks.function("func", func)
    return update_wrapper(Function(func), func)
