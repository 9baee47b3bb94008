"""Write measured stages as a CSV file for ``stages: FILE.csv``, and as a scenario with this file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from ipusim.api import runs
from ipusim.app.profiles.names import PASSES
from ipusim.app.profiles.stages import Stages
from ipusim.app.render.tables import Table
from ipusim.app.run_folder.output_file import mark_of
from ipusim.app.scenario.measured import plan_of
from ipusim.app.study.result import Result
from ipusim.base.errors import printable

#: Ending of the column ``source`` in files written here.
MARK: Final = "by ipusim import"
#: Decimals of printed times.
_DECIMALS: Final = 3


@dataclass(frozen=True)
class StagesResult(Result):
    """Measured stages for command, notebook and files."""

    stages: Stages

    def printout(self) -> Iterator[str | Table]:
        """Yield the measurements, and a note if the count is unknown or Grouped needs another."""
        yield figures_table(self.stages)
        yield from filter(None, [legal_count(self.stages)[1]])

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for every stage: medians in microseconds, and minimum number of measurements."""
        passes = [kind for kind in PASSES if any(kind in figures for figures in self.stages.stages.values())]
        rows: list[dict[str, Any]] = []
        for name, figures in self.stages.stages.items():
            times = {
                f"{kind.replace('_', ' ')} [us]": _number(figures[kind].median) if kind in figures else None
                for kind in passes
            }
            least = min(figure.count for figure in figures.values())
            source = f"{self.stages.tool}: medians of {least} or more {MARK}"
            rows.append({"stage": name, **times, "source": source})
        return rows

    def data(self) -> dict[str, Any]:
        """Return statistics of stage times in microseconds, and sources of ranks."""
        return {
            "tool": self.stages.tool,
            "count": self.stages.count,
            "mapping": list(self.stages.mapping),
            "stages": measured_data(self.stages),
            "known": [
                {"file": file, "rank": rank, "stage": stage, "micro_batches": number, "how": source}
                for file, rank, stage, number, source in self.stages.sources
            ],
            "notes": list(self.stages.notes),
        }


def measured_data(stages: Stages) -> dict[str, Any]:
    """Return the statistics of stage times as plain data, in microseconds."""
    return {
        name: {
            kind: {key: float(getattr(figure, key)) for key in ("median", "least", "most", "count")}
            for kind, figure in figures.items()
        }
        for name, figures in stages.stages.items()
    }


def scenario_text(stages: Stages, table: str, files: Sequence[str]) -> str:
    """Return the scenario of measured stages, with times in the file ``table``. ``files`` are the measured files."""
    several = f" and {len(files) - 1} more" if len(files) > 1 else ""
    number = len(stages.stages)
    title = "One stage" if number == 1 else f"{number} stages"
    count, comment = legal_count(stages)
    remarks = [
        f"{file}: rank {rank}, stage {stage}, micro-batches {number}; {source}."
        for file, rank, stage, number, source in stages.sources
    ]
    head = [
        f"{title} as {stages.tool} measured in {printable(files[0])}{several}.",
        "Machine, schedule and count are ipusim's defaults: change them here or with --set.",
        *([comment] if comment else []),
        *map(printable, remarks),
    ]
    data = plan_of(number, table, count)
    if len(set(stages.mapping)) < number:
        data["pipeline"]["device_mapping"] = list(stages.mapping)
    comments = "".join(f"# {line}\n" for line in head)
    return f"{comments}\n# {mark_of('import')}\n{runs.dump(data)}"


def legal_count(stages: Stages) -> tuple[int | None, str]:
    """Return the measured count, or the next larger count that is legal for Grouped, with an explanation.

    Unknown counts are None.
    """
    number, count = len(stages.stages), stages.count
    if count is None:
        return (
            None,
            "The number of micro-batches for each weight update was not measured: the option count sets the number.",
        )
    if number == 1:
        return count, ""
    multiple = 2 * number  # Graphcore's overlap length in training, a multiple of the length in inference
    legal = math.ceil(count / multiple) * multiple
    if legal == count:
        return count, ""
    remark = f"Grouped takes multiples of {multiple}, and point-to-point schedules take any number."
    return legal, f"Micro-batches were {count}; {remark}"


def sources_table(stages: Stages) -> Table:
    """Return the table of ranks, stages and micro-batches by file, with their sources."""
    header = ("file", "rank", "stage", "micro-batches", "known")
    return Table("What the files tell", header, tuple(tuple(map(printable, row)) for row in stages.sources))


def figures_table(stages: Stages) -> Table:
    """Return the table of measured times in milliseconds: median, minimum and maximum."""
    rows = [
        (
            name,
            kind.replace("_", " "),
            *(_decimals(value / 1000) for value in (figure.median, figure.least, figure.most)),
            str(figure.count),
        )
        for name, figures in stages.stages.items()
        for kind, figure in figures.items()
    ]
    return Table("Measured, in ms", ("stage", "what", "median", "least", "most", "times"), tuple(rows))


def _decimals(number: Fraction) -> str:
    """Return a number to three decimals, without trailing zeros."""
    return f"{float(number):.{_DECIMALS}f}".rstrip("0").rstrip(".")


def _number(number: Fraction) -> float | int:
    text = _decimals(number)
    return float(text) if "." in text else int(text)
