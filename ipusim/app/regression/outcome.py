"""The outcome of the test of a scenario."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal


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
