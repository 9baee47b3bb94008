"""A CSV file of measured stages as the text of a scenario: what it does not say, every stage's plan begins with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ipusim.api import hardware, runs
from ipusim.base.csv_table import first_titles
from ipusim.base.errors import FileError, printable

#: How a name of such a file ends.
SUFFIX: Final = ".csv"
#: Micro-batches for each stage: a multiple of what any schedule of the house asks of a count, two for each stage.
_COUNT: Final = 4


def measured_text(path: Path) -> str:
    """Return the scenario of the stages of a CSV file: a stage an IPU, on ``free``, Grouped, four micro-batches each.

    It holds the stages themselves, so that it needs no file beside it. One stage is no pipeline: its schedule is
    single. Raises FileError that names every line and column that is wrong; OSError for a file that cannot be read.
    """
    if {"Instances", "Range"} <= {*first_titles(path)}:
        raise FileError(
            f"{path}:1: expected stages, got a summary of NVTX ranges by nsys: `ipusim import` makes stages of it"
        )
    stages = runs.read_stages(path, hardware.GC200.clock_hz)
    many = "a stage" if len(stages) == 1 else f"{len(stages)} stages"
    # A number without a unit counts cycles, which a user who meant milliseconds has to see.
    cycles = not any(isinstance(stage.forward, runs.CyclesOfTime) for stage in stages)
    unit = ", in cycles of the tile clock as no unit is said" if cycles else ""
    head = (
        f"{printable(path.name)}, {many} as measured{unit}. Machine, schedule and count are where ipusim begins: "
        "--set changes them."
    )
    listed = [{"name": stage.name} | runs.options_set(stage) for stage in stages]
    return f"# {head}\n\n{runs.dump(plan_of(len(stages), listed))}"


def plan_of(stages: int, written: Any, count: int | None = None) -> dict[str, Any]:
    """Return the options that so many measured stages begin with, at another count where one is known.

    ``written`` stands for the stages: themselves, or the file that has them.
    """
    pipeline = {"schedule": "grouped" if stages > 1 else "single"}
    counts = {"gradient_accumulation_count": count or _COUNT * stages}
    return {"system": {"name": "free"}, "pipeline": {**pipeline, **counts, "stages": written}}
