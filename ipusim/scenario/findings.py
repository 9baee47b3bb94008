"""The problems found while a scenario becomes domain values, so that all are reported together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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

    @contextmanager
    def at(self, path: KeyPath, remedy: str = "") -> Iterator[None]:
        """Note an error that the block raises as a problem of the value at ``path``, and go on behind the block."""
        try:
            yield
        except IpusimError as error:
            self.add(path, str(error) + remedy)

    def is_set(self, path: KeyPath) -> bool:
        """Whether ``path`` is written in the scenario."""
        return path in self.source.values

    def raise_if_any(self) -> None:
        """Raise ScenarioError with everything found."""
        if self._problems:
            raise ScenarioError(self._problems)
