"""Functions of arrays that take tensors of the host as well, and arguments by TensorFlow 1's older names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from typing import Any, TypeVar, cast

from ipusim.api import functions
from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime.host import Tensor, compute, example, result_of
from ipusim.ipu.runtime.structures import leaves, mapped

Function = TypeVar("Function", bound=Callable[..., Any])


def also_on_host(function: Function) -> Function:
    """Wrap a function of arrays so that it takes tensors of the host, also in lists, and then returns such tensors.

    Outside of stages it raises ProgramTypeError and ProgramError in place of NumPy's own errors, in the name of the
    function that was called first.
    """
    name = functions.name_of(function)

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if functions.inside():
            return function(*args, **kwargs)
        tensors = [leaf for leaf in leaves((args, kwargs)) if _waits(leaf)]
        if not tensors:
            return result_of(name, function, args, kwargs)

        def of(*values: Any) -> Any:
            known = dict(zip(map(id, tensors), values, strict=True))
            value, named = mapped(lambda item: known.get(id(item), item), (args, kwargs))
            return function(*value, **named)

        tried = result_of(name, of, [example(tensor) for tensor in tensors])
        if not isinstance(tried, tuple | list):
            return compute(of, *tensors, name=name)
        return type(tried)(compute(partial(_part_of, of, index), *tensors, name=name) for index in range(len(tried)))

    return cast(Function, called)


def also_by_older_names(**newer_names: str) -> Callable[[Function], Function]:
    """Return a decorator by which a function takes arguments by TensorFlow 1's older names too: of each the newer one.

    The function raises ProgramError for an argument that is given by both.
    """

    def wrapped(function: Function) -> Function:
        places = list(signature(function).parameters)

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            for older in newer_names.keys() & kwargs.keys():
                newer, value = newer_names[older], kwargs.pop(older)
                if value is None:
                    continue
                if newer in kwargs or newer in places[: len(args)]:
                    raise ProgramError(f"Cannot specify both '{older}' and '{newer}'")
                kwargs[newer] = value
            return function(*args, **kwargs)

        return cast(Function, called)

    return wrapped


def _waits(value: Any) -> bool:
    """Tell whether a value is a tensor of the host, or a variable that is one to the caller."""
    return isinstance(value.read_value() if isinstance(value, functions.Readable) else value, Tensor)


def _part_of(function: Callable[..., Any], index: int, *values: Any) -> Any:
    return function(*values)[index]
