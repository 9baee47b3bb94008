"""Compare closed forms of schedules from papers with runs at twenty points.

A point gives a value to each letter of the form.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Final

from ipusim.app.published.case_runs import Case, CaseRun, run_case

#: The package's file.
FORMS: Final = Path(__file__).parent / "forms.csv"
#: Figures of forms, as functions of a run.
_FIGURES: Final[Mapping[str, Callable[[CaseRun], int]]] = {
    "bubble": lambda run: run.idle,
    "bubble by cost": lambda run: run.bubble,
    "makespan": lambda run: run.makespan,
    "peak": lambda run: run.peak,
}


@dataclass(frozen=True)
class Form:
    """A closed form of one figure of a schedule.

    Attributes:
        schedule: name of the schedule.
        figure: figure that the form gives.
        form: expression of p devices with v stages each, m micro-batches of k segments, f, i and w cycles of a
            stage's passes, and c cycles of a copy.
        sizes: p, v and m of the points, as ``4x2x8``.
        times: f, i and w at every size, as ``2-3-1``.
        more: k or c if needed.
        source: publication of the form.
    """

    schedule: str
    figure: str
    form: str
    sizes: str
    times: str
    more: str
    source: str

    @cached_property
    def points(self) -> tuple[dict[str, int], ...]:
        """Values of letters, point by point."""
        further_letters = dict(item.split("=") for item in self.more.split())
        numbers = (
            [*size.split("x"), *times.split("-")] for size, times in product(self.sizes.split(), self.times.split())
        )
        points = (dict(zip("pvmfiw", values, strict=True)) | further_letters for values in numbers)
        return tuple({letter: int(number) for letter, number in point.items()} for point in points)

    @cached_property
    def right(self) -> tuple[int, ...]:
        """Values of the form, point by point."""
        return tuple(eval(self.form, {"__builtins__": {}}, point) for point in self.points)

    @cached_property
    def values(self) -> tuple[int, ...]:
        """Values of runs, point by point."""
        return tuple(_FIGURES[self.figure](run_case(_case(self.schedule, **point))) for point in self.points)

    @property
    def matches(self) -> int:
        """Number of points with equal values."""
        return sum(right == value for right, value in zip(self.right, self.values, strict=True))


def _case(schedule: str, *, p: int, v: int, m: int, f: int, i: int, w: int, k: int = 1, c: int = 0) -> Case:
    options = (("segments", k),) if k > 1 else ()
    return Case(schedule, p, m, (k * f, k * (i + w)), (k * i, k * w), c, v, options)


def read_forms() -> tuple[Form, ...]:
    """Read the package's forms."""
    return tuple(Form(**row) for row in csv.DictReader(FORMS.read_text(encoding="utf-8").splitlines()))
