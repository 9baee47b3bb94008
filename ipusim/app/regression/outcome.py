"""The outcome of the test of a scenario."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ipusim.app.render.tables import Table
from ipusim.app.study.result import Result


@dataclass(frozen=True)
class Outcome:
    """The outcome of one scenario.

    Attributes:
        path: of the scenario.
        ended: whether all held, something was missed, the file has a mistake, or it did not run to its end.
        missed: lines on expectations that were, and on times that differ where they are computed a second time.
        expectations: these as plain data.
        pinned: whether it has a pin.
        difference: the first thing that differs from the pin, in lines; empty where nothing does.
        details: that as plain data.
        times: how many times are equal, or why they were not computed a second time; empty unless asked for.
        mistake: what is wrong with the scenario, or with its pin.
        new_pin: the content of a pin of this run, where it was asked for and is another.
        seconds: that it took.
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
        """Yield the line of the scenario, with its missed expectations and pins below."""
        if self.mistake:
            yield f"{self.ended:<10}  {self.mistake}"
            return
        count = len(self.expectations)
        what = [f"{count} expectation{'' if count == 1 else 's'}"] if count else []
        what += ["pin"] if self.pinned else []
        yield f"{self.ended:<10}  {self.path}: {' and '.join(what) or 'no pin'}, {self.seconds:.1f} s"
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
    """The outcomes of scenarios for every face.

    Attributes:
        outcomes: outcomes of ended scenarios, in the order of their paths.
        count: number of scenarios.
    """

    outcomes: Sequence[Outcome]
    count: int

    def shown(self) -> Iterator[str | Table]:
        """Yield the lines of each scenario, and how many held."""
        for outcome in self.outcomes:
            yield from outcome.words()
        yield self.end()

    def end(self) -> str:
        """Return how many scenarios held."""
        ended = [*(outcome.ended for outcome in self.outcomes), *["unfinished"] * (self.count - len(self.outcomes))]
        words = {"held": "held", "missed": "missed", "mistake": "with a mistake", "unfinished": "unfinished"}
        counts = [f"{ended.count(kind)} {text}" for kind, text in words.items() if kind in ended or kind == "held"]
        return f"{', '.join(counts)}, of {self.count} scenario{'' if self.count == 1 else 's'}"

    def data(self) -> list[dict[str, Any]]:
        """Return every outcome."""
        return [outcome.to_dict() for outcome in self.outcomes]

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each scenario."""
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
