"""A cache of results of functions, by their arguments.

Whoever assembles many requests that are alike in part enters one around it (:meth:`Cache.entered`), and what is called
there takes it from :func:`shared`: no result is kept anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Results of one function that are kept; the oldest go first.
_MOST: Final = 64


class _Mark:
    """Stands for a value in comparisons: it is equal to itself alone."""


class Cache:
    """Results of functions by their arguments, which are compared as values; identical ones in no time.

    Nor does it take time to tell values apart that :meth:`first` gave, and these are compared before all others.

    A function that is called through it must depend on its arguments alone, and its results may not be changed.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._made: dict[Callable[..., Any], list[tuple[tuple[Any, ...], Any]]] = {}
        self._marks: dict[int, tuple[Any, _Mark]] = {}  # of values that were first, by their identity

    def __call__(self, make: Callable[..., _T], *arguments: Any) -> _T:
        """Return the result of ``make`` for ``arguments``, cached from equal ones; errors are not cached."""
        for made in self.find(make, *arguments):
            return made
        result = make(*arguments)
        self.keep(result, make, *arguments)
        return result

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Share this cache with all that is called in the block."""
        token = _ENTERED.set(self)
        try:
            yield
        finally:
            _ENTERED.reset(token)

    def find(self, make: Callable[..., _T], *arguments: Any) -> tuple[_T, ...]:
        """Return the cached result of ``make`` for equal arguments."""
        key = self._key(arguments)
        return next(((made,) for known, made in self._made.get(make, ()) if known == key), ())

    def keep(self, result: _T, make: Callable[..., _T], *arguments: Any) -> None:
        """Store ``result`` as what ``make`` returns for ``arguments``."""
        self._made[make] = [(self._key(arguments), result), *self._made.get(make, ())][:_MOST]

    def _key(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the key to compare: marks of values that :meth:`first` returned, and then the others."""
        marks = [self._marks.get(id(argument), (None, None))[1] for argument in arguments]
        rest = tuple(argument if mark is None else None for argument, mark in zip(arguments, marks, strict=True))
        return (*marks, rest)

    def first(self, value: _T, by: Any = None) -> _T:
        """Return the first value equal to ``value`` that was given here: what is compared with it again is identical.

        Args:
            value: anything.
            by: what is compared in its place, where that is faster: equal values have equal ones, and others others.

        >>> cache = Cache()
        >>> one = cache.first((1, "a"))
        >>> cache.first((1, "a")) is one
        True
        """
        by = value if by is None else by
        first: _T
        for first in self.find(_itself, by):
            return first
        self.keep(value, _itself, by)
        self._marks[id(value)] = value, _Mark()  # which keeps the value, so that no other one has its identity
        if len(self._marks) > _MOST:
            del self._marks[next(iter(self._marks))]
        return value


def _itself(value: Any) -> Any:
    return value


_ENTERED: Final[ContextVar[Cache | None]] = ContextVar("cache", default=None)


def shared() -> Cache:
    """Return the cache that is entered around the caller; an empty one where there is none."""
    return _ENTERED.get() or Cache()


def sharing(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return a function around all of which one cache is entered: the caller's own where there is one."""

    @wraps(function)
    def share(*arguments: _P.args, **keywords: _P.kwargs) -> _T:
        with shared().entered():
            return function(*arguments, **keywords)

    return share
