"""Nodes that a session runs on the host: placeholders, arithmetic on them, operations, and programs for the device.

Graphcore's programs are written before they run. Here a stage is a Python function that runs; what stands around it,
such as a learning rate that each run is fed, or results that are there after one, is a Fetch.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Self

import numpy as np

from ipusim.api import Array, functions
from ipusim.base.errors import IpusimError, ProgramError, ProgramTypeError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.building import captures, compiling, control_inputs, is_late, on_ipu, shard
from ipusim.ipu.runtime.context import Scoped
from ipusim.ipu.runtime.narrowing import as_tensor
from ipusim.ipu.runtime.operators import give_operators
from ipusim.ipu.runtime.program_state import session_here
from ipusim.ipu.runtime.structures import mapped
from ipusim.ipu.runtime.tensor_shape import TensorShape

#: Whether a function of arrays is being computed.
_COMPUTING: Final = Scoped("computing", False)


class Running:
    """One run of a session: what was fed, and the value of all that has been evaluated in it."""

    def __init__(self, feeds: Mapping[Placeholder, Array] | None = None) -> None:
        """Begin with what is fed."""
        self.feeds = dict(feeds or {})
        self._values: dict[int, tuple[Fetch, Any]] = {}

    def value(self, fetch: Any) -> Any:
        """Return the value of a Fetch, which is evaluated once in a run; anything else is its own."""
        if not isinstance(fetch, Fetch):
            return fetch
        if id(fetch) not in self._values:
            for control_input in fetch.control_inputs:
                self.value(control_input)
            self._values[id(fetch)] = fetch, self.evaluate(fetch)
        return self._values[id(fetch)][1]

    def evaluate(self, fetch: Fetch) -> Any:
        """Return the value of a Fetch that has none in this run yet."""
        return fetch.evaluate(self)

    def values(self, fetches: Any) -> Any:
        """Return the values of fetches in a structure like theirs, of lists, tuples and dictionaries."""
        return mapped(self.value, fetches)

    def evaluated(self) -> tuple[Fetch, ...]:
        """Return all that has been evaluated in this run, in order."""
        return tuple(fetch for fetch, _ in self._values.values())


class Examples(Running):
    """In the place of a run: tensors of the host are arrays of their shapes and dtypes."""

    def value(self, fetch: Any) -> Any:
        """Return an array of the form of a tensor; anything else is itself."""
        return example(fetch)


#: The run that reads a dataset from its beginning; None outside of one.
_READING: Final[Scoped[Running | None]] = Scoped("reading", None)
#: Sets the run in which datasets that begin in the block evaluate tensors of the host.
reading: Final = _READING.set_to


def evaluated(value: Any) -> Any:
    """Return the value of a tensor of the host in the run that reads a dataset, or in a run of its own."""
    return (_READING() or Running()).value(value)


class Fetch(ABC):
    """A value or operation that a session can evaluate.

    Attributes:
        control_inputs: what is evaluated before it in a run, as ``tf.control_dependencies`` says where it is made.
    """

    control_inputs: tuple[Fetch, ...]

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Note what comes before it."""
        result = super().__new__(cls)
        result.control_inputs = control_inputs()
        return result

    @property
    def late(self) -> bool:
        """Whether it comes after all others of a run, as results that the others make."""
        return False

    @abstractmethod
    def evaluate(self, running: Running) -> Any:
        """Return its value in this run."""


class Evaluated(Fetch):
    """A value that a function gives in each run of a session."""

    late: bool = False

    def __init__(self, value: Callable[[Running], Any], late: bool = False) -> None:
        """Take the function, and whether the value comes after all others of a run."""
        self._value, self.late = value, late

    def evaluate(self, running: Running) -> Any:
        """Return the value."""
        return self._value(running)


class Operation(Evaluated):
    """Something done on the host, which has no value."""

    def __init__(self, name: str, action: Callable[[Running], object] = lambda _: None, late: bool = False) -> None:
        """Call it ``name``; ``action`` is what it does in a run, ``late`` whether it comes after all others."""
        super().__init__(action, late)
        self.name = name

    def __repr__(self) -> str:
        """Name it."""
        return f"<Operation {self.name!r}>"

    def evaluate(self, running: Running) -> None:
        """Do it."""
        super().evaluate(running)


class Tensor(Fetch):
    """A number or array of the host that each run of a session computes again.

    Attributes:
        example: an array of its shape and dtype, which stages are tried on.
    """

    #: So that operators of NumPy's arrays on its left are left to it.
    __array_priority__: Final = 1000

    def __init__(self, example: Array) -> None:
        """Take an array of its shape and dtype."""
        self.example = example

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.example.shape

    def get_shape(self) -> TensorShape:
        """Return its shape."""
        return TensorShape(self.shape)

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        """Return its value in a run of a session, by default that in whose block the caller is.

        Raises ProgramError without any, and as ``run`` does.
        """
        running = session_here() if session is None else session
        if running is None:
            raise ProgramError(
                "Cannot evaluate tensor using `eval()`: No default session is registered. Use `with sess.as_default()` "
                "or pass an explicit session to `eval(session=sess)`"
            )
        return running.run(self, feed_dict)

    @property
    def has_known_form(self) -> bool:
        """Whether it has the shape of its example in each run."""
        return False

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its dtype."""
        return self.example.dtype

    def sources(self) -> Iterator[Tensor]:
        """Yield the tensors that it is a function of, which for any but a computed one is itself."""
        yield self

    def of_sources(self, value: Callable[[Tensor], Any]) -> Any:
        """Return the tensor's value where its sources have the values that ``value`` returns, such as traced ones."""
        return value(self)

    def __bool__(self) -> bool:
        """Refuse, as TensorFlow does. Raises ProgramTypeError."""
        raise ProgramTypeError("using a `tf.Tensor` as a Python `bool` is not allowed: it has a value in a session")

    def __getitem__(self, key: Any) -> Any:
        """Return a part; raises ProgramError where there is none."""
        return compute(operator.getitem, self, key)

    def __iter__(self) -> Iterator[Any]:
        """Refuse, as TensorFlow does. Raises ProgramTypeError."""
        raise ProgramTypeError("iterating over `tf.Tensor` is not allowed: it has a value in a session")

    def __array__(self, *_: Any, **__: Any) -> Any:
        """Return its value in a loop; else raises ProgramTypeError, in a stage ProgramError as Graphcore does."""
        if functions.inside():
            return captured(self)
        raise ProgramTypeError("a tensor of the host has a value in a session alone: pass it through `inputs`")


class EvaluatedTensor(Evaluated, Tensor):
    """A tensor whose value a function gives in each run of a session."""

    def __init__(self, value: Callable[[Running], Array], example: Array, late: bool = False) -> None:
        """Take the function, an array of its shape and dtype, and whether it comes after all others of a run."""
        Evaluated.__init__(self, value, late)
        Tensor.__init__(self, example)


class Computed(Tensor):
    """A tensor that is a function of others.

    Attributes:
        function, arguments: what computes it.
        placed: its programs, where sessions compute it on the device.
        on_ipu, shard: whether a scope places it on an IPU, and on which shard of the device, None for none.
    """

    def __init__(self, name: str, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
        """Take the function, what messages call it, and its arguments."""
        self._name, self.function, self.arguments = name, function, tuple(arguments)
        self.on_ipu, self.shard = on_ipu() and compiling() is None, shard()
        self.placed: Any = None
        with np.errstate(all="ignore"):
            super().__init__(as_tensor(result_of(name, function, [example(argument) for argument in self.arguments])))

    @cached_property
    def shape(self) -> tuple[int | None, ...]:  # type: ignore[override]  # None for what is fed
        """The tensor's shape; None for an axis whose length a fed placeholder decides."""
        known = self.example.shape
        if all(None not in source.shape for source in self.sources()):
            return known
        try:
            with np.errstate(all="ignore"):
                longer = np.shape(self.of_sources(_of_two_elements))
            return tuple(size if size == other else None for size, other in zip(known, longer, strict=True))
        except (IpusimError, TypeError, ValueError, IndexError, ArithmeticError):  # no length that the function takes
            return known

    @property
    def has_known_form(self) -> bool:
        """Whether each of its sources has."""
        return all(source.has_known_form for source in self.sources())

    @property
    def late(self) -> bool:
        """Whether an argument does."""
        return any(map(is_late, self.arguments))

    def sources(self) -> Iterator[Tensor]:
        """Yield the sources of the arguments."""
        for argument in self.arguments:
            if isinstance(argument, Tensor):
                yield from argument.sources()

    def of_sources(self, value: Callable[[Tensor], Any]) -> Any:
        """Compute it of the arguments' sources."""
        values = (
            argument.of_sources(value) if isinstance(argument, Tensor) else argument for argument in self.arguments
        )
        return self.function(*values)

    def evaluate(self, running: Running) -> Array:
        """Return the function of the arguments' values."""
        items = list(map(running.value, self.arguments))
        return as_tensor(result_of(self._name, self.function, items)).astype(self.dtype)


class Placeholder(Tensor):
    """A tensor that must be fed, or has a default."""

    def __init__(
        self, name: str, example: Array, default: Any = None, shape: Sequence[int | None] | None = None
    ) -> None:
        """Take its name, an array of its dtype, what it is where it is not fed, and its shape if axes may be longer."""
        super().__init__(example)
        self.name, self._default = name, default
        self._axes = example.shape if shape is None else tuple(shape)

    @property
    def shape(self) -> tuple[int | None, ...]:  # type: ignore[override]  # None for what is fed
        """The placeholder's shape; None for an open axis, which is as long as what is fed."""
        return self._axes

    @property
    def has_known_form(self) -> bool:
        """Whether the placeholder leaves no axis open."""
        return None not in self._axes

    def __repr__(self) -> str:
        """Say name, shape and dtype."""
        return f"<Placeholder {self.name!r} shape={self.shape} dtype={self.dtype}>"

    def evaluate(self, running: Running) -> Array:
        """Return the value that was fed; raises ProgramError for none."""
        if self in running.feeds:
            return running.feeds[self]
        if self._default is None:
            raise ProgramError(
                f"You must feed a value for placeholder tensor '{self.name}' with dtype {self.dtype} and shape "
                f"{list(self.shape)}"
            )
        return as_tensor(self._default)

    def fed(self, value: Any) -> Array:
        """Return ``value`` as what it is fed; raises ProgramError for another shape, ProgramTypeError for no number."""
        result = checks.numbers(f"feed_dict[{self.name!r}]", value)
        if len(result.shape) != len(self.shape) or any(
            size not in (None, length) for size, length in zip(self.shape, result.shape, strict=True)
        ):
            raise ProgramError(
                f"Cannot feed value of shape {result.shape} for Tensor '{self.name}:0', which has shape '{self.shape}'"
            )
        return result.astype(self.dtype)


def example(value: Any) -> Any:
    """Return an array of the form of a tensor; anything else is itself."""
    return value.example if isinstance(value, Tensor) else value


def _of_two_elements(source: Tensor) -> Array:
    """Return zeros in a tensor's shape and dtype, with two elements along each open axis."""
    axes = source.shape
    return np.zeros([2 if axis is None else axis for axis in axes], source.dtype) if None in axes else source.example


def captured(value: Any) -> Any:
    """Return the value that a tensor of the host has in the body of a loop; anything else is itself.

    Raises ProgramError in a stage of a pipeline, where it is no input of the program.
    """
    if functions.inside() and isinstance(value, Tensor):
        if (body := captures()) is not None:
            return body.value_of(value)
        raise ProgramError(
            f"Trying to capture the tensor {value!r} which is not a resource. This tensor needs to be passed as either "
            "part of the `input` or `infeed_queue` of the pipeline."
        )
    return value


def compute(function: Callable[..., Any], *arguments: Any, name: str | None = None) -> Any:
    """Return ``function`` of the arguments, computed in each run where one of them is a Tensor.

    Messages call it ``name``, by default what it is called itself. Raises ProgramTypeError and ProgramError outside of
    stages, where no stage says which of them failed.
    """
    called = functions.name_of(function) if name is None else name
    if functions.inside():
        return function(*map(captured, arguments))
    if any(isinstance(argument, Tensor) for argument in arguments):
        return Computed(called, function, arguments)
    return result_of(called, function, arguments)


def result_of(
    name: str, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any] | None = None
) -> Any:
    """Return the result of a function of Python's or NumPy's; raises errors of ipusim in place of its own.

    They begin with the ``name`` of the outermost, which is what a program has called.
    """
    if _COMPUTING():
        return function(*arguments, **(named or {}))
    try:
        with _COMPUTING.set_to(True):
            return function(*arguments, **(named or {}))
    except IpusimError:
        raise
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        kind = ProgramTypeError if isinstance(error, TypeError) else ProgramError
        raise kind(f"{name}: expected tensors that go together, got {functions.message_of(error)}") from error


give_operators(Tensor, compute)
