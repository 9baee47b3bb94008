"""Define the outcomes of scenario tests, and their report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ipusim.app.render.tables import Table
from ipusim.app.study.result import Result


@dataclass(frozen=True)
class Outcome:
    """Outcome of a scenario's test.

    Attributes:
        path: path of the scenario.
        ended: ``held``, ``missed``, ``mistake`` for an error in the file, or ``unfinished``.
        missed: lines on missed expectations, and on times that differ between two computations.
        expectations: expectations as plain data.
        pinned: whether the scenario has a pin.
        difference: first difference from the pin, in lines; empty without a difference.
        details: the difference as plain data.
        times: number of equal times, or the reason for not computing times twice; empty unless requested.
        mistake: error of the scenario or its pin.
        new_pin: content of the new pin, if requested and changed.
        seconds: duration of the test.
    """

    path: Path
    ended: Literal["held", "missed", "mistake", "unfinished"]
    missed: tuple[str, ...] = ()
    expectations: tuple[dict[str, Any], ...] = ()
    pinned: bool = False
    difference: str = ""
    details: dict[str, Any] | None = None
    times: str = ""
    mistake: str = ""
    new_pin: bytes | None = None
    seconds: float = 0.0

    def words(self) -> Iterator[str]:
        """Yield the scenario's line, with missed expectations and pin differences below."""
        if self.mistake:
            yield f"{self.ended:<10}  {self.mistake}"
            return
        count = len(self.expectations)
        texts = [f"{count} expectation{'' if count == 1 else 's'}"] if count else []
        texts += ["pin"] if self.pinned else []
        yield f"{self.ended:<10}  {self.path}: {' and '.join(texts) or 'no pin'}, tested in {self.seconds:.1f} s"
        lines = [*self.missed, *self.difference.splitlines(), *filter(None, [self.times])]
        yield from (f"            {line}" for line in lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as plain data for JSON."""
        return {
            "scenario": str(self.path),
            "result": self.ended,
            "expectations": list(self.expectations),
            "pinned": self.pinned,
            "difference": self.details,
            **({"times": self.times} if self.times else {}),
            "mistake": self.mistake or None,
        }


@dataclass(frozen=True)
class SuiteResult(Result):
    """Outcomes of scenarios for command, notebook and files.

    Attributes:
        outcomes: outcomes of ended scenarios, sorted by path.
        count: number of scenarios.
    """

    outcomes: Sequence[Outcome]
    count: int

    def printout(self) -> Iterator[str | Table]:
        """Yield the lines of every scenario, and the number of each outcome."""
        for outcome in self.outcomes:
            yield from outcome.words()
        yield self.end()

    def end(self) -> str:
        """Return the counts of outcomes in words."""
        ends = [*(outcome.ended for outcome in self.outcomes), *["unfinished"] * (self.count - len(self.outcomes))]
        words = {"held": "held", "missed": "missed", "mistake": "with a mistake", "unfinished": "unfinished"}
        counts = [f"{ends.count(kind)} {text}" for kind, text in words.items() if kind in ends or kind == "held"]
        return f"{', '.join(counts)}, of {self.count} scenario{'' if self.count == 1 else 's'}"

    def data(self) -> list[dict[str, Any]]:
        """Return every outcome."""
        return [outcome.to_dict() for outcome in self.outcomes]

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for every scenario."""
        return [
            {
                "scenario": str(outcome.path),
                "result": outcome.ended,
                "expectations": len(outcome.expectations),
                "missed": "; ".join(outcome.missed) or None,
                "pinned": outcome.pinned,
                "difference": outcome.difference or None,
                "mistake": outcome.mistake or None,
            }
            for outcome in self.outcomes
        ]
