"""The problems found while a request becomes domain values, so that all are reported together."""

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
    """The problems of one request.

    Attributes:
        is_set: tells whether the option at a path was given.
    """

    def __init__(self, is_set: Callable[[KeyPath], bool]) -> None:
        """Begin without any."""
        self.is_set = is_set
        self._problems: list[Problem] = []

    def __len__(self) -> int:
        """The number of problems found so far."""
        return len(self._problems)

    def add(self, path: KeyPath, text: str, error: IpusimError | None = None) -> None:
        """Note a problem of the option at ``path``; ``error`` is what its own rule raised, if any."""
        self._problems.append(Problem(path, text, error=error))

    def at(self, path: KeyPath, context: str = "") -> At:
        """Return a block whose error becomes a problem of the option at ``path``; the program goes on behind it."""
        return At(self, path, context)

    def tried(self, path: KeyPath, make: Callable[_P, _T], /, *arguments: _P.args, **keywords: _P.kwargs) -> _T | None:
        """Return the result of ``make``; None after noting its error as a problem of the option at ``path``."""
        with self.at(path):
            return make(*arguments, **keywords)
        return None

    def cached(self, make: Callable[..., _T], *arguments: Any) -> _T:
        """Return the result of ``make`` for ``arguments`` and these findings, from the cache where it is there.

        What was made with a finding is not kept, so that the next request has that finding as well.
        """
        cache = shared()
        for made in cache.find(make, *arguments):
            return made
        before = len(self)
        result = make(*arguments, self)
        if len(self) == before:
            cache.keep(result, make, *arguments)
        return result

    def settled(self, value: _T | None) -> _T:
        """Return a value that is None only behind a problem; raises RequestError with every problem found so far."""
        if value is None or self._problems:
            raise RequestError(self._problems)
        return value

    def raise_if_any(self) -> None:
        """Raise RequestError with everything found."""
        if self._problems:
            raise RequestError(self._problems)


@dataclass(frozen=True)
class At:
    """A block of code that works on one option: ``with findings.at(path): ...``.

    A class, as only its ``-> bool`` tells type checkers that what follows the block may run after an error in it.
    """

    findings: Findings
    path: KeyPath
    context: str

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Note the error if it is one that ipusim raises on purpose; let any other pass."""
        if not isinstance(error, IpusimError):
            return False
        self.findings.add(self.path, self.context + str(error), error)
        return True
