"""``tf.function``: a function whose loop over ``tf.range`` runs on the device."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from types import MethodType
from typing import Any

from ipusim.ipu import checks
from ipusim.ipu.function import Function


class TensorFlowFunction(Function):
    """A function, or in a class a method, as ``tf.function`` has made it."""

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return it as the method of an object."""
        return self if instance is None else MethodType(self, instance)


def function(func: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Return what a strategy runs of ``func``, or a decorator that does; ``options`` have no effect.

    Raises ProgramTypeError for what is no function.
    """
    if func is None:
        return function
    if not callable(func):
        checks.wrong_type("func", "a function", func)
    return update_wrapper(TensorFlowFunction(func), func)
