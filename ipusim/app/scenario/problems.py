"""Raise a scenario's problems with positions in the file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ipusim.api import Job, runs
from ipusim.base.errors import MOST_LINES, IpusimError, OutOfMemoryError


class ScenarioError(IpusimError, ValueError):
    """Every problem of a scenario, in the order of the file. ``str(error)`` has a line per problem."""

    def __init__(self, problems: Iterable[runs.PlacedProblem]) -> None:
        """Sort the problems by position and drop duplicates."""
        super().__init__(tuple(sorted(dict.fromkeys(problems), key=lambda problem: problem.position.rank)))

    @property
    def problems(self) -> tuple[runs.PlacedProblem, ...]:
        """Problems, in the order of the file."""
        return self.args[0]  # type: ignore[no-any-return]

    def __str__(self) -> str:
        """Return a line per problem, shortened beyond the limit.

        The last line has the number and first position of the remaining problems.
        """
        first, remainder = self.problems[: MOST_LINES - 1], self.problems[MOST_LINES - 1 :]
        if len(remainder) <= 1:
            return "\n".join(map(str, self.problems))
        return "\n".join(map(str, [*first, replace(remainder[0], text=f"... and {len(remainder):,} more problems")]))


class ScenarioMemoryError(ScenarioError, OutOfMemoryError):
    """Scenario of a program too large for the memory of the IPUs.

    The problem's position is the option that makes the program too large.

    Attributes:
        job: Job that does not fit.
        remedy: part of the problem's text with the advice.
    """

    def __init__(self, problems: Iterable[runs.PlacedProblem], job: Job, remedy: str) -> None:
        """Store the problems, the Job and the remedy."""
        super().__init__(problems)
        self.job = job
        self.remedy = remedy

    def with_advice(self, advice: str) -> ScenarioMemoryError:
        """Return the same error with other advice."""
        problems = [replace(problem, text=problem.text.replace(self.remedy, advice)) for problem in self.problems]
        return ScenarioMemoryError(problems, self.job, advice)
