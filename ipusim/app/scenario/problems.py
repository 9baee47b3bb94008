"""Errors of a scenario: all of its problems, each with its position in the file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ipusim.api import Job, runs
from ipusim.base.errors import MOST_LINES, IpusimError, OutOfMemoryError


class ScenarioError(IpusimError, ValueError):
    """Every problem found in a scenario, in the order of the file; ``str(error)`` is one line for each."""

    def __init__(self, problems: Iterable[runs.PlacedProblem]) -> None:
        """Sort the problems by position and drop duplicates."""
        super().__init__(tuple(sorted(dict.fromkeys(problems), key=lambda problem: problem.position.rank)))

    @property
    def problems(self) -> tuple[runs.PlacedProblem, ...]:
        """The problems, in the order of the file."""
        return self.args[0]  # type: ignore[no-any-return]

    def __str__(self) -> str:
        """Return a line for each problem; of very many the first ones, and the number and position of the rest."""
        shown, rest = self.problems[: MOST_LINES - 1], self.problems[MOST_LINES - 1 :]
        if len(rest) <= 1:
            return "\n".join(map(str, self.problems))
        return "\n".join(map(str, [*shown, replace(rest[0], text=f"... and {len(rest):,} more problems")]))


class ScenarioMemoryError(ScenarioError, OutOfMemoryError):
    """A scenario whose program does not fit its IPUs' memory; the problem is at the option that makes it too large.

    Attributes:
        job: the Job that does not fit.
        remedy: the part of the problem's text that says what to do.
    """

    def __init__(self, problems: Iterable[runs.PlacedProblem], job: Job, remedy: str) -> None:
        """Keep the problems, the Job and the remedy."""
        super().__init__(problems)
        self.job = job
        self.remedy = remedy

    def advised(self, advice: str) -> ScenarioMemoryError:
        """Return the same error with other words on what to do."""
        problems = [replace(problem, text=problem.text.replace(self.remedy, advice)) for problem in self.problems]
        return ScenarioMemoryError(problems, self.job, advice)
