"""Collect the problems of a request while it is assembled, to report all problems together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from ipusim.base.cache import shared
from ipusim.base.errors import IpusimError
from ipusim.runs.problems import KeyPath, Problem, RequestError

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Findings:
    """Problems of one request.

    Attributes:
        is_set: function that tells whether the option at a path was given.
    """

    def __init__(self, is_set: Callable[[KeyPath], bool]) -> None:
        """Start without problems."""
        self.is_set = is_set
        self._problems: list[Problem] = []

    def __len__(self) -> int:
        """Return the number of problems."""
        return len(self._problems)

    def add(self, path: KeyPath, text: str, error: IpusimError | None = None) -> None:
        """Record a problem of the option at ``path``; ``error`` is the error of the option's own rule, if any."""
        self._problems.append(Problem(path, text, error=error))

    def collect(self, path: KeyPath, context: str = "") -> OptionBlock:
        """Return a ``with`` block that turns an error inside it into a problem at ``path``; the code after it runs."""
        return OptionBlock(self, path, context)

    def attempt(
        self, path: KeyPath, make: Callable[_P, _T], /, *arguments: _P.args, **keywords: _P.kwargs
    ) -> _T | None:
        """Return the result of ``make``; None after recording its error as a problem of the option at ``path``."""
        with self.collect(path):
            return make(*arguments, **keywords)
        return None

    def cached(self, make: Callable[..., _T], *arguments: Any) -> _T:
        """Return the result of ``make`` for ``arguments`` and these findings, from the active cache if possible.

        Results with a problem are not cached, so that the next request gets the problem again.
        """
        cache = shared()
        for hit in cache.find(make, *arguments):
            return hit
        problem_count = len(self)
        result = make(*arguments, self)
        if len(self) == problem_count:
            cache.keep(result, make, *arguments)
        return result

    def settle(self, value: _T | None) -> _T:
        """Return a value that is None only after a problem; raises RequestError with recorded problems."""
        if value is None or self._problems:
            raise RequestError(self._problems)
        return value

    def raise_if_any(self) -> None:
        """Raise RequestError with all problems, if any."""
        if self._problems:
            raise RequestError(self._problems)


@dataclass(frozen=True)
class OptionBlock:
    """Block of code on one option: ``with findings.collect(path): ...``.

    This is a class whose ``__exit__`` returns ``bool``: the annotation tells type checkers that execution continues
    after the block.
    """

    findings: Findings
    path: KeyPath
    context: str

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Record an error of ipusim; pass on any other exception."""
        if not isinstance(error, IpusimError):
            return False
        self.findings.add(self.path, self.context + str(error), error)
        return True
