"""The problems found while a scenario becomes domain values, so that all are reported together."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from ipusim.errors import IpusimError
from ipusim.scenario.problems import KeyPath, Problem, ScenarioError, dotted
from ipusim.scenario.source import Source


class Findings:
    """Problems with their places in one scenario."""

    def __init__(self, source: Source) -> None:
        """Begin without any."""
        self.source = source
        self._problems: list[Problem] = []

    def __len__(self) -> int:
        """The number of problems found so far."""
        return len(self._problems)

    def add(self, path: KeyPath, text: str) -> None:
        """Note a problem of the value at ``path``, or where it would stand."""
        self._problems.append(Problem(self.source.place(path), dotted(path), text))

    def at(self, path: KeyPath, context: str = "") -> At:
        """Return a block whose error becomes a problem of the value at ``path``; the program goes on behind it."""
        return At(self, path, context)

    def is_set(self, path: KeyPath) -> bool:
        """Whether ``path`` is written in the scenario."""
        return path in self.source.values

    def raise_if_any(self) -> None:
        """Raise ScenarioError with everything found."""
        if self._problems:
            raise ScenarioError(self._problems)


@dataclass(frozen=True)
class At:
    """A block of code that works on one value of the scenario: ``with findings.at(path): ...``.

    A class, as type checkers take what contextlib's decorator makes for a block that lets every error pass.
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
        self.findings.add(self.path, self.context + str(error))
        return True
