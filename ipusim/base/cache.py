"""Cache function results by arguments, within blocks that callers enter.

Callers that assemble many similar requests activate a cache for a block (:meth:`Cache.activate`); functions called
within the block get the cache from :func:`shared`. No results are kept elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Results kept per function; the oldest are dropped first.
_MOST_RESULTS: Final = 64


class _Mark:
    """Substitute for a value in comparisons, equal only to itself."""


class Cache:
    """Function results by arguments. Arguments are compared by value; comparing identical objects takes no time.

    Comparing values that :meth:`first_equal` returned takes no time either; such arguments are compared first.

    A cached function must depend only on its arguments, and results must not be modified.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self._results: dict[Callable[..., Any], list[tuple[tuple[Any, ...], Any]]] = {}
        self._marks: dict[int, tuple[Any, _Mark]] = {}  # marks of values from first(), by identity

    def __call__(self, make: Callable[..., _T], *arguments: Any) -> _T:
        """Return the result of ``make`` for ``arguments``, cached by value; errors are not cached."""
        for hit in self.find(make, *arguments):
            return hit
        result = make(*arguments)
        self.keep(result, make, *arguments)
        return result

    @contextmanager
    def activate(self) -> Iterator[None]:
        """Share this cache with every function called in the block."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def find(self, make: Callable[..., _T], *arguments: Any) -> tuple[_T, ...]:
        """Return the cached result for equal arguments as a tuple; empty if not cached."""
        key = self._key(arguments)
        return next(((result,) for key_of_result, result in self._results.get(make, ()) if key_of_result == key), ())

    def keep(self, result: _T, make: Callable[..., _T], *arguments: Any) -> None:
        """Store ``result`` as the result of ``make`` for ``arguments``."""
        self._results[make] = [(self._key(arguments), result), *self._results.get(make, ())][:_MOST_RESULTS]

    def _key(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the key of arguments: marks of values from :meth:`first_equal`, then the rest."""
        marks = [self._marks.get(id(argument), (None, None))[1] for argument in arguments]
        values = tuple(argument if mark is None else None for argument, mark in zip(arguments, marks, strict=True))
        return (*marks, values)

    def first_equal(self, value: _T, substitute: Any = None) -> _T:
        """Return the earliest value given to this method that equals ``value``.

        Later comparisons with the returned value are fast.

        Args:
            value: anything.
            substitute: value that is compared in place of ``value``, and faster: equal for equal values, different for
                different values.

        >>> cache = Cache()
        >>> one = cache.first_equal((1, "a"))
        >>> cache.first_equal((1, "a")) is one
        True
        """
        substitute = value if substitute is None else substitute
        first: _T
        for first in self.find(_identity, substitute):
            return first
        self.keep(value, _identity, substitute)
        self._marks[id(value)] = value, _Mark()  # keeps the value alive, so that the identity stays unique
        if len(self._marks) > _MOST_RESULTS:
            del self._marks[next(iter(self._marks))]
        return value


def _identity(value: Any) -> Any:
    return value


_CURRENT: Final[ContextVar[Cache | None]] = ContextVar("cache", default=None)


def shared() -> Cache:
    """Return the cache that is active around the caller, or an empty cache."""
    return _CURRENT.get() or Cache()


def sharing(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Wrap a function to run within a cache: the caller's, or a new cache."""

    @wraps(function)
    def share(*arguments: _P.args, **keywords: _P.kwargs) -> _T:
        with shared().activate():
            return function(*arguments, **keywords)

    return share
