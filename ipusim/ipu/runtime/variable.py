"""Variables as objects, in the place of ``tf.Variable``: made anywhere, used in stages, loops and on the host."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final, Protocol

import numpy as np

from ipusim.api import Array, functions
from ipusim.base.errors import ProgramError, ProgramStateError, ProgramTypeError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.building import compiling
from ipusim.ipu.runtime.host import EvaluatedTensor, Running, Tensor, compute
from ipusim.ipu.runtime.operators import give_operators
from ipusim.ipu.runtime.program_state import add, graph_mode, is_at_once, store, used

_REMEDY: Final = "use its read_value(), or a function of tf"


class Program(Protocol):
    """A program with variables, which holds the values of those that it has changed."""

    def value_of(self, name: str) -> Array:
        """Return a copy of the value that a variable has now."""
        ...


class NamedVariable(Tensor, functions.Readable):
    """A variable by name.

    In a stage it is what the stage computes with; elsewhere its value, or where operations wait for a session
    (``tf.disable_eager_execution``) a tensor that has one there.

    Attributes:
        name: without TensorFlow's ``:0``.
        initial: the value that it begins with.
        trainable: whether optimizers train it; whole numbers never are.
        made_trainable: whether they did when it was made.
        in_stage: whether a stage makes it, in every call.
        version: a number that is another after each change, for programs that hold a copy.
        slots: what an optimizer keeps of it on the host, by the names that checkpoints have for that.
        tables: what looks its rows up on the host, by the identity of what they learn by; see
            :mod:`ipusim.ipu.embedding_ops`.
    """

    late: ClassVar[bool] = True
    has_known_form: ClassVar[bool] = True

    def __init__(self, name: str, initial: Array, trainable: bool, *, in_stage: bool = False) -> None:
        """Begin with the initial value; ``in_stage``: a stage makes it, in every call."""
        super().__init__(initial)
        self.name, self.initial = name, initial
        self._begin(trainable and initial.dtype.kind == "f", in_stage=in_stage)

    def _begin(self, trainable: bool, *, in_stage: bool = False) -> None:
        """Set the initial value."""
        self.trainable = self.made_trainable = trainable
        self.in_stage = in_stage
        self.version, self.slots = 0, dict[str, Array]()
        self.tables: dict[int, Any] = {}
        self._value: Array | None = None
        self._holder: Program | None = None

    def __repr__(self) -> str:
        """Say name, shape and dtype."""
        return f"<tf.Variable {self.name!r} shape={self.shape} dtype={self.dtype}>"

    @property
    def ndim(self) -> int:
        """Its number of axes."""
        return self.initial.ndim

    @property
    def size(self) -> int:
        """Its number of elements."""
        return self.initial.size

    @property
    def op(self) -> NamedVariable:
        """Itself, whose name is what TensorFlow's operation is called."""
        return self

    @property
    def initializer(self) -> Tensor:
        """The operation that sets it to its initial value."""
        return self._changing(lambda: self.initial)

    def initialized_value(self) -> Any:
        """Return the initial value."""
        return self.initial

    def numpy(self) -> Array:
        """Return a copy of its value on the host; raises ProgramStateError in a stage."""
        if functions.inside() or functions.surroundings().untrained is not None:
            raise ProgramStateError(
                f"{self.name}.numpy(): expected to be called outside of stages and loops: use read_value()"
            )
        return self.value_now()

    def eval(self, session: object = None) -> Array:  # type: ignore[override]  # as in TensorFlow
        """Return its value."""
        return self.numpy()

    def value_now(self) -> Array:
        """Return a copy of its value, wherever that is."""
        if self._holder is not None:
            return self._holder.value_of(self.name)
        return np.array(self.initial if self._value is None else self._value)

    def evaluate(self, running: Running) -> Array:
        """Return its value in a session."""
        return self.value_now()

    def read_value(self) -> Any:
        """Return the variable as the caller reads it: what a stage computes with, its value, or a session's tensor."""
        if functions.inside():
            self._note()
            if self.trainable:
                return functions.get_variable(self.name, self.initial)
        if (now := functions.surroundings().untrained) is not None:
            if self.trainable:
                raise ProgramStateError(
                    f"variable {self.name!r}: expected to be read in a stage, or as the Variable that apply_gradients "
                    "is given"
                )
            return now.read(self.name, self.initial)
        return self if waits_for_session() else self.value_now()

    value = read_value

    def _note(self) -> None:
        """Note that the program which is being tried uses it; raises ProgramError for another of its name."""
        noted = used()
        first = self if noted is None else noted.setdefault(self.name, self)
        if first is not self and not (first.in_stage and self.in_stage):
            raise ProgramError(
                f"Variable {self.name} already exists, disallowed: two variables of the program have one name"
            )

    def assign(
        self, value: Any, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Set it, in a stage from then on; returns its value, in a graph the operation that sets it.

        Raises ProgramTypeError and ProgramError for a value that does not fit; in a stage ProgramError for a variable
        that is trained, which optimizers alone change.
        """
        return self._change("value", lambda argument: argument, value)

    def assign_add(
        self, delta: Any, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Add to it; raises as :meth:`assign` does."""
        return self._change("delta", lambda value: self._here() + value, delta)

    def assign_sub(
        self, delta: Any, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtract from it; raises as :meth:`assign` does."""
        return self._change("delta", lambda value: self._here() - value, delta)

    def _here(self) -> Any:
        return self.value_now() if functions.surroundings().untrained is None else self.read_value()

    def _change(self, argument: str, function: Callable[[Any], Any], operand: Any) -> Any:
        if functions.inside() or functions.surroundings().untrained is not None:
            now = functions.surroundings().untrained
            if self.trainable or now is None:
                raise ProgramError(
                    f"variable {self.name!r} is trained, and can only be modified by the apply_gradients member "
                    "function of the applied Optimizer: expected one made with trainable=False"
                )
            self.read_value()
            now.write(self.name, self._fitting(argument, function(self._fitting(argument, operand))))
            return self.read_value()
        if waits_for_session():
            if isinstance(operand, Tensor):
                return self._changing(lambda value: function(self._fitting(argument, value)), operand)
            fitting = self._fitting(argument, operand)
            return self._changing(lambda: function(fitting))
        self.set(function(self._fitting(argument, operand)))
        return self

    def _changing(self, function: Callable[..., Any], *arguments: Any) -> Tensor:
        """Return the operation of a session that sets it to ``function`` of the arguments, and gives its new value."""

        def evaluate(running: Running) -> Array:
            self.set(np.asarray(function(*map(running.value, arguments))))
            return self.value_now()

        return EvaluatedTensor(evaluate, self.initial)

    def check(self, value: Any) -> Array:
        """Return a value for it; raises ProgramError for another shape, ProgramTypeError for what are no numbers."""
        result = checks.numbers("value", value)
        if result.shape != self.shape:
            checks.wrong_value("value", f"the shape {self.shape} of variable {self.name!r}", result.shape)
        return result.astype(self.dtype)

    def set(self, value: Array) -> None:
        """Set it on the host: programs take the value when they begin to run."""
        self._value, self._holder = np.array(value, self.dtype), None
        self.version += 1

    def initialize(self) -> None:
        """Set it to its initial value."""
        self._value = self._holder = None
        self.slots.clear()
        self.version += 1

    def changed_by(self, program: Program) -> int:
        """Note that ``program`` holds its value, and return the version that this is."""
        self._value, self._holder = None, program
        self.version += 1
        return self.version

    def _fitting(self, argument: str, value: Any) -> Any:
        """Return a value in the variable's shape and dtype, or what a trace computes with in its place."""
        from autograd.tracer import isbox  # noqa: PLC0415 - autograd takes a while to import

        value = plain(value)
        if not isbox(value):
            checks.numbers(argument, value)
            value = np.asarray(value, _dtype_of(argument, value, self.dtype))
        if tuple(value.shape) != self.shape:
            checks.wrong_value(
                argument, f"the shape {self.shape} of variable {self.name!r} and not {tuple(value.shape)}", value
            )
        if value.dtype != self.dtype:
            checks.wrong_type(argument, f"{self.dtype} as variable {self.name!r} is, and not {value.dtype}", value)
        return value

    def __getitem__(self, key: Any) -> Any:
        """Return elements; raises ProgramError for elements out of range."""
        return compute(operator.getitem, self.read_value(), key)

    def __iter__(self) -> Iterator[Any]:
        """Go through the first axis; raises ProgramTypeError where it has no value yet."""
        now = self.read_value()
        return super().__iter__() if now is self else iter(now)

    def __len__(self) -> int:
        """Return the length of the first axis."""
        return len(self.initial)

    def __bool__(self) -> bool:
        """Return the value as a truth value; raises ProgramTypeError where it has none yet."""
        now = self.read_value()
        return super().__bool__() if now is self else bool(now)

    def __float__(self) -> float:
        """Return the value as a number."""
        return float(self.__array__())

    def __int__(self) -> int:
        """Return the value as a whole number."""
        return int(self.__array__())

    __index__ = __int__

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return the value; raises ProgramTypeError for one that a gradient has to go back to."""
        from autograd.tracer import isbox  # noqa: PLC0415 - autograd takes a while to import

        now = self.read_value()
        if now is self:
            return super().__array__()
        if isbox(now):
            self._refuse()
        return np.array(now, dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Do what an operator asks for with an array on its left, or a function of NumPy with the value."""
        import autograd.numpy as anp  # noqa: PLC0415 - autograd takes a while to import
        from autograd.tracer import isbox  # noqa: PLC0415 - as above

        values = [plain(input_) for input_ in inputs]
        if any(isinstance(value, NamedVariable) for value in values):  # its value is that of a session
            if method != "__call__" or options:
                return NotImplemented
            return compute(getattr(anp, ufunc.__name__), *values)
        if not any(map(isbox, values)):
            return getattr(ufunc, method)(*values, **options)
        # autograd calls with arrays taken out of their trace, to which no gradient would come back
        if method != "__call__" or options or functions.package_of(sys._getframe(1)) == "autograd":
            self._refuse()
        return getattr(anp, ufunc.__name__)(*values)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, options: Any) -> Any:
        """Call a function of NumPy with the value."""
        from autograd.tracer import isbox  # noqa: PLC0415 - autograd takes a while to import

        def value(argument: Any) -> Any:
            if isinstance(argument, list | tuple):
                return type(argument)(value(item) for item in argument)
            result = plain(argument)
            if isbox(result) or isinstance(result, NamedVariable):
                self._refuse()
            return result

        return function(*map(value, args), **{name: value(option) for name, option in options.items()})

    def _refuse(self) -> Any:
        raise ProgramTypeError(
            f"variable {self.name!r} was given to a function of NumPy, from which no gradient comes back to it: "
            f"{_REMEDY}"
        )


def named_variable(name: str, initial: Array, trainable: bool = True, *, shares: bool = False) -> NamedVariable:
    """Return the variable that a stage, or a layer in a graph, asks for by name.

    One that ``shares`` may be another program's. Raises ProgramError for one that there is already in another form.
    """
    result: NamedVariable | None = (used() or {}).get(name, store().by_name.get(name) if shares else None)
    if result is None:
        # A stage that runs asks in every pass, for what the program has already: what it gives is not kept.
        kept = used() is not None or not functions.inside()
        result = NamedVariable(name, np.array(initial) if kept else initial, trainable, in_stage=functions.inside())
        if not functions.inside():
            add(result)
    if used() is not None and (result.shape, result.dtype) != (initial.shape, initial.dtype):
        raise ProgramError(
            f"Trying to share variable {name}, but specified shape {initial.shape} and found shape {result.shape}, "
            f"specified dtype {initial.dtype} and found dtype {result.dtype}"
        )
    return result


def plain(value: Any) -> Any:
    """Return a variable as the caller reads it; anything else unchanged."""
    return value.read_value() if isinstance(value, functions.Readable) else value


def waits_for_session() -> bool:
    """Whether operations on the host wait for a session, and do not have their effect at once."""
    return (graph_mode() or compiling() is not None) and not is_at_once()


def _dtype_of(argument: str, value: Any, expected: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of a value given for a variable of another: Python's own numbers and lists become that."""
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype
    result = np.asarray(value).dtype
    if not np.can_cast(result, expected, "same_kind"):
        checks.wrong_type(argument, f"{expected} numbers, and not {result}", value)
    return expected


give_operators(NamedVariable, lambda function, *operands: compute(function, *map(plain, operands)))
