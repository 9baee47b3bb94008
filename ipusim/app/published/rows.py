"""Published values of schedules with inputs and sources, read from the package's file."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

#: The package's file.
PUBLISHED: Final = Path(__file__).parent / "schedules.csv"
#: Checks of a row; others are errors that are allowed, such as ``11%``, or ``0.15`` in the figure's unit.
DIGITS, RANKING, FITTED = "digits", "ranking", "fitted"


@dataclass(frozen=True)
class PublishedValue:
    """One value that a source prints.

    Attributes:
        table: where it is printed, in short.
        group: within the table; values for a ranking are compared within their group.
        name: the schedule, or the choice, as the source calls it.
        schedule: the same as ipusim calls it; ``searched`` for an order of its own for the costs.
        inputs: what the value follows from, as the source has it: p devices, v stages on each, m micro-batches, cap
            the most micro-batches that a device may hold, F, I, W and B the times of a device's passes, c of a copy.
        figure: a key of :data:`ipusim.app.published.figures.FIGURES`.
        printed: as it is printed.
        check: ``digits`` where each printed digit is to follow, ``ranking`` where only order can be held, ``fitted``
            for what others of the model follow from, an error that is allowed, or an explanation of
            :data:`ipusim.app.published.figures.EXPLANATIONS` for a value that does not follow.
        assumed: what the source does not say.
        source: who published it.
    """

    table: str
    group: str
    name: str
    schedule: str
    inputs: Mapping[str, str]
    figure: str
    printed: str
    check: str
    assumed: str
    source: str

    def number(self, key: str, default: int = 0) -> Fraction:
        """Return an input as a number."""
        return Fraction(self.inputs.get(key, default))

    def count(self, key: str, default: int = 1) -> int:
        """Return an input as a whole number."""
        return int(self.inputs.get(key, default))

    @property
    def value(self) -> Fraction:
        """The printed number; of a range its mean."""
        least, _, most = self.printed.partition("-")
        return (Fraction(least) + Fraction(most or least)) / 2

    @property
    def decimals(self) -> int:
        """Digits behind the point."""
        return len(self.printed.partition(".")[2])

    @property
    def allowed(self) -> Fraction | None:
        """The error that is allowed, in parts or in the figure's unit; None for other checks."""
        if not self.check[:1].isdigit():
            return None
        part = self.check.endswith("%")
        return Fraction(self.check.rstrip("%")) / (100 if part else 1)


def read_published() -> tuple[PublishedValue, ...]:
    """Return the package's rows."""
    rows = []
    for cells in csv.DictReader(PUBLISHED.read_text(encoding="utf-8").splitlines()):
        inputs = dict(item.split("=") for item in cells.pop("inputs").split("; "))
        rows.append(PublishedValue(inputs=inputs, **cells))
    return tuple(rows)
