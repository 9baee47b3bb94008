"""``tf.Variable``, what finds and sets variables, and the step that a training counts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipusim.api import Array, Shape, functions
from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.context import setting
from ipusim.ipu.runtime.host import Operation
from ipusim.ipu.runtime.names import in_stage, scope, unique
from ipusim.ipu.runtime.program_state import add, store, used
from ipusim.ipu.runtime.variable import NamedVariable
from ipusim.ipu.tensorflow.array_functions import tensor

_STEP: Final = "global_step"


class GraphKeys:
    """The collections that there are; that of updates is empty, as batch normalisation makes its own in its call."""

    GLOBAL_VARIABLES: Final = "variables"
    TRAINABLE_VARIABLES: Final = "trainable_variables"
    GLOBAL_STEP: Final = _STEP
    UPDATE_OPS: Final = "update_ops"


class Variable(NamedVariable):
    """TensorFlow's variable, made outside of stages and used in them, or made in every call of one.

    With ``trainable=False``, and of whole numbers, it is one that no optimizer trains and that stages may change.
    """

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        validate_shape: bool = True,
        caching_device: object = None,
        name: str | None = None,
        variable_def: None = None,
        dtype: Any = None,
        import_scope: object = None,
        constraint: None = None,
        synchronization: object = None,
        aggregation: object = None,
        shape: Any = None,
        collections: object = None,
        use_resource: bool | None = None,
    ) -> None:
        """Begin with ``initial_value``, an array, a number or a function that gives one.

        The other arguments but trainable, name and dtype are without effect. Raises ProgramError without a value and
        for a constraint, ProgramTypeError for what is no array of numbers.
        """
        if initial_value is None:
            raise ProgramError("initial_value must be specified.")
        for argument, value in (("variable_def", variable_def), ("constraint", constraint)):
            checks.nothing(argument, "it is not simulated", value)
        initial = checks.numbers("initial_value", tensor(initial_value() if callable(initial_value) else initial_value))
        if dtype is not None:
            initial = initial.astype(checks.dtype("dtype", dtype, "biuf"))
        trained = True if trainable is None else checks.truth("trainable", trainable)
        full_name = scope().prefix + checks.text("name", "Variable" if name is None else name)
        inside = functions.inside()
        super().__init__(
            unique(full_name) if inside else free_name(full_name, store().by_name),
            np.array(initial),
            trained,
            in_stage=inside,
        )
        if not inside:
            add(self)


def free_name(name: str, taken: Container[str]) -> str:
    """Return a name that is not taken: the name itself, or with the least number from 1 behind it."""
    numbered = (f"{name}_{number}" for number in itertools.count(1))
    return next(item for item in itertools.chain([name], numbered) if item not in taken)


def global_variables(scope: str | None = None) -> list[NamedVariable]:
    """Return all variables, or those whose names begin with ``scope``, in the order in which they were made."""
    beginning = "" if scope is None else checks.text("scope", scope)
    result = {variable.name: variable for variable in (*store().variables, *(used() or {}).values())}
    return [item for name, item in result.items() if name.startswith(beginning)]


def trainable_variables(scope: str | None = None) -> list[NamedVariable]:
    """Return the :func:`global_variables` that optimizers train."""
    return [global_variable for global_variable in global_variables(scope) if global_variable.trainable]


def get_collection(key: str, scope: str | None = None) -> list[NamedVariable]:
    """Return the variables of a collection; of an unknown one, as in TensorFlow, none."""
    result = {
        GraphKeys.GLOBAL_VARIABLES: global_variables,
        GraphKeys.TRAINABLE_VARIABLES: trainable_variables,
        GraphKeys.GLOBAL_STEP: lambda _: [
            global_variable for global_variable in global_variables() if global_variable.name == _STEP
        ],
    }.get(checks.text("key", key))
    return [] if result is None else result(scope)


def variables_initializer(var_list: Sequence[Any], name: str = "init") -> Operation:
    """Return the operation that sets some variables to their initial values; raises ProgramTypeError for others."""
    if not isinstance(var_list, list | tuple) or not all(isinstance(item, NamedVariable) for item in var_list):
        checks.wrong_type("var_list", "a list of variables", var_list)

    def initialize() -> None:
        for element in var_list:
            element.initialize()

    return Operation(checks.text("name", name), lambda _: initialize())


def _setting(method: str) -> Callable[..., Any]:
    def call(
        ref: Any, value: Any, validate_shape: bool = True, use_locking: bool | None = None, name: Any = None
    ) -> Any:
        checks.instance("ref", ref, NamedVariable, "a variable made with trainable=False, or outside of stages")
        return getattr(ref, method)(value)

    call.__doc__ = f"Call ``{method}`` of a variable; raises ProgramTypeError for what is none, and as that does."
    return call


assign, assign_add, assign_sub = map(_setting, ("assign", "assign_add", "assign_sub"))


def get_global_step(graph: object = None) -> NamedVariable | None:
    """Return the variable that counts the steps of a training; None where there is none yet."""
    return (used() or {}).get(_STEP, store().by_name.get(_STEP))


def create_global_step(graph: object = None) -> NamedVariable:
    """Make the variable that counts the steps of a training; raises ProgramError for a second one."""
    if get_global_step() is not None:
        raise ProgramError('"global_step" already exists.')
    result = NamedVariable(_STEP, np.zeros((), np.int64), trainable=False)
    add(result)
    return result


def get_or_create_global_step(graph: object = None) -> NamedVariable:
    """Return the variable that counts the steps of a training, made where there is none yet."""
    result = get_global_step()
    return create_global_step() if result is None else result


def current_global_step() -> int:
    """Return the global step as it is now; 0 where there is none."""
    result = get_global_step()
    return 0 if result is None else int(result.value_now())


def set_global_step(step: int) -> None:
    """Set it, also where there was none."""
    get_or_create_global_step().set(np.array(step, np.int64))


class _Where(Enum):
    """Where layers are called: in a program, on the host, or nowhere, for the shapes that they give."""

    PROGRAM = 0
    HOST = 1
    TRYING = 2


_WHERE: Final[ContextVar[_Where]] = ContextVar("layers_called", default=_Where.PROGRAM)


@contextmanager
def _at(where: _Where) -> Iterator[None]:
    with setting(_WHERE, where), functions.Surrounded(lookup=_value_now):
        yield


def _value_now(name: str, initial: Array) -> Array:
    """Return the value of a variable of the host by its name, ``initial`` where there is none."""
    variable = store().by_name.get(name)
    return np.array(initial) if variable is None else variable.value_now()


def trying() -> Any:
    """Return a context in which all weights are zeros."""
    return _at(_Where.TRYING)


def on_host() -> Any:
    """Return a context in which weights have their values of the host."""
    return _at(_Where.HOST)


def is_trying() -> bool:
    """Tell whether layers are tried for the shapes that they give."""
    return _WHERE.get() is _Where.TRYING


def may_change() -> bool:
    """Tell whether layers may change their weights, as in a program."""
    return _WHERE.get() is _Where.PROGRAM


class Weight(NamedVariable):
    """A weight.

    Attributes:
        own_name: its name in its layer.
    """

    def __init__(
        self,
        path: Callable[[], str],
        own_name: str,
        shape: Shape,
        dtype: npt.DTypeLike,
        draw: Callable[[], Array],
        trainable: bool = True,
    ) -> None:
        """Take what says the names around it, its own, its form, and what draws its first value."""
        self._path, self._draw, self.own_name = path, draw, own_name
        self._shape, self._dtype = tuple(shape), np.dtype(dtype)
        self._initial: Array | None = None
        self._begin(trainable and self._dtype.kind == "f", in_stage=in_stage())

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name that it has as a variable of a program: those of model and layer, and its own."""
        return f"{self._path()}/{self.own_name}"

    @property
    def initial(self) -> Array:  # type: ignore[override]
        """The value that it begins with."""
        if self._initial is None:
            self._initial = np.asarray(self._draw(), self.dtype)
        return self._initial

    @property
    def example(self) -> Array:  # type: ignore[override]
        """An array of its form."""
        return self.initial

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its dtype."""
        return self._dtype

    def read_value(self) -> Any:
        """Return the value that the caller computes with."""
        if is_trying():
            return np.zeros(self.shape, self.dtype)
        return super().read_value() if may_change() else self.value_now()
