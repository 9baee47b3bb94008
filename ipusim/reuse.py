"""What was made of what, to be taken again where the same is asked for.

Whoever asks for many things that are alike in part passes one of these along: nothing is kept anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

#: Results of one function that are kept; the oldest go first.
_MOST: Final = 64


class Reuse:
    """Results of functions by their arguments, which are compared as values; identical ones in no time.

    A function that is called through it must depend on its arguments alone, and nobody may change what it returns.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._made: dict[Callable[..., Any], list[tuple[tuple[Any, ...], Any]]] = {}

    def __call__(self, make: Callable[..., _T], *arguments: Any) -> _T:
        """Return what ``make`` gives for ``arguments``, or gave for equal ones; what it raises is not kept."""
        for made in self.find(make, *arguments):
            return made
        result = make(*arguments)
        self.keep(result, make, *arguments)
        return result

    def find(self, make: Callable[..., _T], *arguments: Any) -> tuple[_T, ...]:
        """Return what is kept of ``make`` for equal arguments: one result, or none."""
        return next(((made,) for known, made in self._made.get(make, ()) if known == arguments), ())

    def keep(self, result: _T, make: Callable[..., _T], *arguments: Any) -> None:
        """Keep what ``make`` gave for ``arguments``."""
        self._made[make] = [(arguments, result), *self._made.get(make, ())][:_MOST]

    def first(self, value: _T) -> _T:
        """Return the first value equal to ``value`` that was given here: what is compared with it again is identical.

        >>> again = Reuse()
        >>> one = again.first((1, "a"))
        >>> again.first((1, "a")) is one
        True
        """
        found: _T = self(_itself, value)
        return found


def _itself(value: _T) -> _T:
    return value
