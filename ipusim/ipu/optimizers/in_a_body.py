"""What an optimizer's methods do in the body of a loop, where gradients have no values yet: they say what to do.

The program calls them again when it trains, with the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, Final, TypeVar, cast

import numpy as np

from ipusim.ipu.loop_body import asking
from ipusim.ipu.optimizers.asked_gradients import asked_update, gradient_of
from ipusim.ipu.optimizers.on_host import apply_on_host, host_pairs
from ipusim.ipu.optimizers.variable import AskedVariable

Method = TypeVar("Method", bound=Callable[..., Any])

#: Whether apply_gradients is tried, so that none updates a variable.
_TRYING: Final[ContextVar[bool]] = ContextVar("trying", default=False)
#: The package whose apply_gradients update variables; those of others say what is done around that.
_OURS: Final = __name__.partition(".")[0]


@contextmanager
def trying_updates() -> Iterator[None]:
    """Let no optimizer of this package update a variable in the block."""
    token = _TRYING.set(True)
    try:
        yield
    finally:
        _TRYING.reset(token)


def applying(method: Method) -> Method:
    """Return a class's apply_gradients, which in a body returns the operation that trains."""

    @wraps(method)
    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        asked = asking()
        if asked is None:
            if _TRYING.get() and method.__module__.partition(".")[0] == _OURS and not self.leaves_update:
                return None
            given = list(grads_and_vars) if isinstance(grads_and_vars, Iterator) else grads_and_vars
            if (pairs := host_pairs(given)) is not None:
                return apply_on_host(self.rule, partial(method, self), pairs, args, kwargs)
            return method(self, given, *args, **kwargs)
        return self._asked(asked, asked_update(grads_and_vars, asked), args, kwargs)

    return cast(Method, apply_gradients)


def computing(method: Method) -> Method:
    """Return a class's compute_gradients, which in a body returns gradients that will be known."""

    @wraps(method)
    def compute_gradients(self: Any, loss: Any, var_list: Any = None, *args: Any, **kwargs: Any) -> Any:
        asked = asking()
        if asked is None or callable(loss):
            return method(self, loss, var_list, *args, **kwargs)
        wanted = (
            None if var_list is None else {each if isinstance(each, str) else asked.name_of(each) for each in var_list}
        )
        return [
            (gradient_of(loss, name, value, self), AskedVariable(name, np.zeros(np.shape(value), value.dtype), {}))
            for name, value in asked.variables.values()
            if wanted is None or name in wanted
        ]

    return cast(Method, compute_gradients)
