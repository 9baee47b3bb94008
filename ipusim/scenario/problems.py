"""The problems of a scenario, each at the place in the file where its value is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ipusim.errors import IpusimError, OutOfMemoryError
from ipusim.runs.job import Job


@dataclass(frozen=True)
class Place:
    """A place in a file (line and column count from 1), or an override as given on the command line.

    Attributes:
        source: the file as it was named, or ``--set path``.
        line, column: None for a whole file and for an override.
    """

    source: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        """Return ``file:line:column``, or the source alone."""
        return self.source if self.line is None else f"{self.source}:{self.line}:{self.column}"

    @property
    def rank(self) -> tuple[int, int]:
        """Sort key: overrides and whole files first, then by line and column."""
        return (self.line or 0, self.column or 0)


@dataclass(frozen=True)
class PlacedProblem:
    """One thing that is wrong with a scenario, with its place.

    Attributes:
        place: of the value, or of the key when the key itself is wrong.
        key: the key's path as ``--set`` takes it, such as ``model.layers.1.units``; empty for a whole file.
        text: what was expected, what was found, and what to do.
    """

    place: Place
    key: str
    text: str

    def __str__(self) -> str:
        """Return the one line that a person reads, whatever line breaks a key or a text of others holds."""
        named = self.key and self.place.source != f"--set {self.key}"
        line = f"{self.place}: {self.key}: {self.text}" if named else f"{self.place}: {self.text}"
        return " ".join(line.split())


class ScenarioError(IpusimError, ValueError):
    """Every problem found in a scenario, in the order of the file; ``str(error)`` is one line for each."""

    def __init__(self, problems: Iterable[PlacedProblem]) -> None:
        """Sort the problems by place and drop repeats."""
        super().__init__(tuple(sorted(dict.fromkeys(problems), key=lambda problem: problem.place.rank)))

    @property
    def problems(self) -> tuple[PlacedProblem, ...]:
        """The problems, in the order of the file."""
        return self.args[0]  # type: ignore[no-any-return]

    def __str__(self) -> str:
        """Return one line for each problem."""
        return "\n".join(map(str, self.problems))


class ScenarioMemoryError(ScenarioError, OutOfMemoryError):
    """A scenario whose program needs more memory than there is; the problem stands at what makes it too large.

    Attributes:
        job: what does not fit.
    """

    def __init__(self, problems: Iterable[PlacedProblem], job: Job) -> None:
        """Keep the problems and the Job."""
        super().__init__(problems)
        self.job = job
