"""Variables by name and the scopes that their names begin with, as TensorFlow 1 has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from typing import Any, Final

import numpy as np

from ipusim.api import functions
from ipusim.base.errors import ProgramError, ProgramTypeError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.initializers import initial_value
from ipusim.ipu.runtime.names import Scope, counts, inside, scope, unique
from ipusim.ipu.runtime.program_state import add, store, used
from ipusim.ipu.runtime.variable import NamedVariable, named_variable


class _Reuse(Enum):
    AUTO_REUSE = "AUTO_REUSE"


#: A variable of a scope may be there already, and is made where it is not.
AUTO_REUSE: Final = _Reuse.AUTO_REUSE


class VariableScope:
    """A scope as ``variable_scope`` gives it."""

    def __init__(self, inner: Scope) -> None:
        """Take the scope."""
        self._scope = inner

    @property
    def name(self) -> str:
        """The names of the scopes around and of this, with slashes between them."""
        return self._scope.prefix.removesuffix("/")

    @property
    def reuse(self) -> bool | _Reuse:
        """Whether variables must be there already."""
        return AUTO_REUSE if self._scope.reuse is None else self._scope.reuse

    def reuse_variables(self) -> None:
        """Refuse: say reuse where the scope begins. Raises ProgramError."""
        raise ProgramError("reuse_variables: expected `reuse=True` in variable_scope, where the scope begins")


@contextmanager
def variable_scope(
    name_or_scope: str | VariableScope | None,
    default_name: str | None = None,
    values: object = None,
    initializer: object = None,
    regularizer: None = None,
    caching_device: object = None,
    partitioner: None = None,
    custom_getter: Callable[..., Any] | None = None,
    reuse: bool | _Reuse | None = None,
    use_resource: bool | None = None,
    dtype: Any = None,
    auxiliary_name_scope: bool = True,
) -> Iterator[VariableScope]:
    """Make variables inside the block under this name.

    Inherited from the scope around are ``reuse``, ``initializer`` and ``dtype`` of variables that do not say theirs,
    and ``custom_getter``, a function that get_variable calls in its place: with what gives the variable, and its own
    arguments by name. The other arguments, but for the names, are without effect.

    Raises ProgramTypeError for what is no name, scope or function, ProgramError for no name at all.
    """
    outer = scope()
    _check_none(regularizer=regularizer, partitioner=partitioner)
    if isinstance(name_or_scope, VariableScope):
        prefix = f"{name_or_scope.name}/" if name_or_scope.name else ""
    elif name_or_scope is None:
        if default_name is None:
            raise ProgramError("If default_name is None then name_or_scope is required")
        prefix = f"{outer.prefix}{unique(checks.text('default_name', default_name))}/"
    else:
        named = checks.text("name_or_scope", name_or_scope)
        prefix = f"{outer.prefix}{named}/" if named else outer.prefix
    chosen = outer.reuse if reuse is None else None if reuse is AUTO_REUSE else checks.truth("reuse", reuse)
    getters = (*outer.getters, *_getters(custom_getter))
    begins = outer.initializer if initializer is None else initializer
    kind = outer.dtype if dtype is None else checks.dtype("dtype", dtype, "biuf")
    with inside(Scope(prefix, outer.reuse if outer.reuse else chosen, getters, begins, kind)) as inner:
        yield VariableScope(inner)


@contextmanager
def name_scope(name: str, default_name: str | None = None, values: object = None) -> Iterator[str]:
    """Name operations inside the block; variables keep their names, as in TensorFlow."""
    yield checks.text("name", name if name is not None else default_name)


def get_variable_scope() -> VariableScope:
    """Return the scope that the caller is in."""
    return VariableScope(scope())


def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: None = None,
    trainable: bool | None = None,
    collections: object = None,
    caching_device: object = None,
    partitioner: None = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Callable[..., Any] | None = None,
    constraint: None = None,
    synchronization: object = None,
    aggregation: object = None,
) -> Any:
    """Return the variable called ``name`` in the scope around: of the running stage, or made for those to come.

    A stage that asks for a name again shares the variable, which needs ``reuse`` as in TensorFlow; stages share one on
    the same IPU alone. With ``reuse`` programs that are compiled one after the other share it too, and without it each
    has its own. Initial values are drawn by name and ``tf.set_random_seed``. In a stage it is the array that the stage
    computes with. One with ``trainable=False`` no optimizer sees, and the stage may change: it is a
    :class:`NamedVariable`, and so is one that is made outside of stages. ``custom_getter`` is called in its place,
    within those of the scopes around, as :func:`variable_scope` says.

    Raises ProgramError and ProgramTypeError in TensorFlow's words for what it does not take.
    """
    arguments = {name: value for name, value in locals().items() if name not in ("name", "custom_getter")}
    here = scope()
    kind = next(each for each in (dtype, here.dtype, np.float32) if each is not None)
    arguments |= {"dtype": checks.dtype("dtype", kind, "biuf"), "trainable": trainable is not False}
    arguments |= {"initializer": here.initializer if initializer is None else initializer, "reuse": here.reuse}
    getter: Callable[..., Any] = _variable
    for custom in (*here.getters, *_getters(custom_getter)):
        getter = partial(custom, getter)
    return getter(name=here.prefix + checks.text("name", name), **arguments)


def _getters(custom_getter: Callable[..., Any] | None) -> tuple[Callable[..., Any], ...]:
    if custom_getter is None:
        return ()
    checks.function("custom_getter", custom_getter, "a function of what gives a variable, and of its arguments")
    return (custom_getter,)


def _check_none(**arguments: object) -> None:
    for argument, value in arguments.items():
        checks.nothing(argument, "it is not simulated", value)


def _variable(
    name: str,
    shape: Any = None,
    dtype: Any = np.float32,
    initializer: Any = None,
    regularizer: None = None,
    reuse: object = None,
    trainable: bool | None = None,
    collections: object = None,
    caching_device: object = None,
    partitioner: None = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    constraint: None = None,
    synchronization: object = None,
    aggregation: object = None,
) -> Any:
    """Return the variable of a full name, as :func:`get_variable` does; a custom getter calls it, in this order."""
    _check_none(regularizer=regularizer, partitioner=partitioner, constraint=constraint)
    full = checks.text("name", name)
    kind = checks.dtype("dtype", dtype, "biuf")
    known = counts().variables if functions.inside() else store().by_name.keys()
    reuse = scope().reuse
    if reuse is False and full in known:
        raise ProgramError(
            f"Variable {full} already exists, disallowed. Did you mean to set reuse=True or reuse=tf.AUTO_REUSE in "
            "VarScope?"
        )
    if reuse and full not in known and full not in store().by_name and (used() is not None or not functions.inside()):
        raise ProgramError(
            f"Variable {full} does not exist, or was not created with tf.get_variable(). Did you mean to set "
            "reuse=tf.AUTO_REUSE in VarScope?"
        )
    counts().variables.add(full)
    shared: NamedVariable | None = store().by_name.get(full) if reuse is not False else None
    if kind.kind != "f" and trainable is not False and shared is None:
        raise ProgramTypeError(
            f"dtype: expected a floating-point dtype for variable {full!r}, which is trained, got {kind}; or give it "
            "trainable=False"
        )
    initial = shared.initial if shape is None and shared is not None else initial_value(full, shape, kind, initializer)
    if not functions.inside():
        return _made(NamedVariable(full, initial, trainable is not False)) if shared is None else shared
    result = named_variable(full, initial, trainable is not False, shares=reuse is not False)
    now = result.read_value()
    return now if result.trainable else result


def _made(variable: NamedVariable) -> NamedVariable:
    add(variable)
    return variable
