"""Read published values of schedules, with inputs and sources, from the package's file."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

#: The package's file.
PUBLISHED: Final = Path(__file__).parent / "schedules.csv"
#: Named checks of a row; other checks are allowed errors, such as ``11%``, or ``0.15`` in the figure's unit.
DIGITS, RANKING, FITTED = "digits", "ranking", "fitted"


@dataclass(frozen=True)
class PublishedValue:
    """One published value.

    Attributes:
        table: short name of the table or figure in the source.
        group: group within the table; rankings compare values within a group.
        name: name of the schedule, or of the choice, in the source.
        schedule: name of the schedule in ipusim; ``searched`` for an order searched for the costs.
        inputs: inputs of the value, as in the source: p devices, v stages per device, m micro-batches, cap
            maximum micro-batches held by a device, F, I, W and B times of a device's passes, c time of a copy.
        figure: a key of :data:`ipusim.app.published.figures.FIGURES`.
        printed: value as printed.
        check: ``digits`` for equality of all printed digits, ``ranking`` for comparison of order only, ``fitted``
            for values that determine constants of a model, an allowed error, or
            :data:`ipusim.app.published.figures.EXPLAINED` for a value that does not follow.
        assumed: inputs missing in the source.
        source: publication.
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
        """Printed number; mean of a printed range."""
        least, _, most = self.printed.partition("-")
        return (Fraction(least) + Fraction(most or least)) / 2

    @property
    def decimals(self) -> int:
        """Number of decimals."""
        return len(self.printed.partition(".")[2])

    @property
    def tolerance(self) -> Fraction | None:
        """Allowed error, relative or in the figure's unit; None for other checks."""
        if not self.check[:1].isdigit():
            return None
        is_relative = self.check.endswith("%")
        return Fraction(self.check.rstrip("%")) / (100 if is_relative else 1)


def read_published() -> tuple[PublishedValue, ...]:
    """Read the package's rows."""
    rows = []
    for cells in csv.DictReader(PUBLISHED.read_text(encoding="utf-8").splitlines()):
        inputs = dict(item.split("=") for item in cells.pop("inputs").split("; "))
        rows.append(PublishedValue(inputs=inputs, **cells))
    return tuple(rows)
