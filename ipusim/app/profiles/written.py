"""Measured stages as a CSV file, as ``stages: FILE.csv`` takes it, and as the scenario that names that file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from ipusim.api import runs
from ipusim.app.profiles.names import PASSES
from ipusim.app.profiles.stages import Stages
from ipusim.app.render.tables import Table
from ipusim.app.run_folder.output_file import mark_of
from ipusim.app.scenario.measured import plan_of
from ipusim.base.csv_table import csv_bytes
from ipusim.base.errors import printable

#: What the column ``source`` ends with, by which a file is known as written here.
MARK: Final = "by ipusim import"
_DIGITS: Final = 3


def csv_text(stages: Stages) -> str:
    """Return the table of the stages: medians in microseconds, and how many measurements they are of."""
    passes = [what for what in PASSES if any(what in figures for figures in stages.stages.values())]
    rows = [["stage", *(f"{what.replace('_', ' ')} [us]" for what in passes), "source"]]
    for name, figures in stages.stages.items():
        times = [_decimals(figures[what].median) if what in figures else "" for what in passes]
        least = min(figure.count for figure in figures.values())
        rows.append([name, *times, f"{stages.tool}: medians of {least} or more {MARK}"])
    return csv_bytes(rows).decode()


def scenario_text(stages: Stages, table: str, files: Sequence[str]) -> str:
    """Return the scenario of the stages, whose times are in the file ``table`` beside it, measured in ``files``."""
    several = f" and {len(files) - 1} more" if len(files) > 1 else ""
    number = len(stages.stages)
    title = "One stage" if number == 1 else f"{number} stages"
    count, comment = legal_count(stages)
    believed = [
        f"{file}: rank {rank}, stage {stage}, micro-batches {number}; {how}."
        for file, rank, stage, number, how in stages.known
    ]
    head = [
        f"{title} as {stages.tool} measured in {printable(files[0])}{several}.",
        "Machine, schedule and count are where ipusim begins: change them here or with --set.",
        *([comment] if comment else []),
        *map(printable, believed),
    ]
    data = plan_of(number, table, count)
    if len(set(stages.mapping)) < number:
        data["pipeline"]["device_mapping"] = list(stages.mapping)
    comments = "".join(f"# {line}\n" for line in head)
    return f"{comments}\n# {mark_of('import')}\n{runs.dump(data)}"


def legal_count(stages: Stages) -> tuple[int | None, str]:
    """Return the count as measured, or the next one up that Grouped can lay out, and a sentence on that.

    None where the measured one is not known.
    """
    number, count = len(stages.stages), stages.count
    if count is None:
        return None, "The micro-batches behind a weight update were not measured: the option count says them."
    if number == 1:
        return count, ""
    multiple = 2 * number  # of Graphcore's overlap length in training, and so of that in inference
    legal = math.ceil(count / multiple) * multiple
    if legal == count:
        return count, ""
    return legal, f"Micro-batches were {count}; Grouped takes multiples of {multiple}, point-to-point schedules any."


def known_table(stages: Stages) -> Table:
    """Return the table of each file's ranks, stages and micro-batches, and how these are known."""
    header = ("file", "rank", "stage", "micro-batches", "known")
    return Table("Believed", header, tuple(tuple(map(printable, row)) for row in stages.known))


def figures_table(stages: Stages) -> Table:
    """Return the table of what was measured, in milliseconds: medians, least and most."""
    rows = [
        (
            name,
            what.replace("_", " "),
            *(_decimals(value / 1000) for value in (figure.median, figure.least, figure.most)),
            str(figure.count),
        )
        for name, figures in stages.stages.items()
        for what, figure in figures.items()
    ]
    return Table("Measured, in ms", ("stage", "what", "median", "least", "most", "times"), tuple(rows))


def _decimals(number: Fraction) -> str:
    """Return a number to three decimals, without zeros at their end."""
    return f"{float(number):.{_DIGITS}f}".rstrip("0").rstrip(".")
