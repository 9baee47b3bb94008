"""Make a scenario from a CSV file of measured stages, with default machine, schedule and count."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ipusim.api import hardware, runs
from ipusim.base.csv_table import first_titles
from ipusim.base.errors import FileError, printable

#: File ending of measured stages.
SUFFIX: Final = ".csv"
#: Micro-batches per stage: a multiple of two, which every schedule of ipusim accepts.
_COUNT: Final = 4


def measured_text(path: Path) -> str:
    """Return the scenario of a CSV file's stages.

    Defaults: one stage per IPU on ``free``, Grouped, four micro-batches per stage.

    The stages are part of the scenario, which needs no further file. A single stage uses the schedule single. Raises
    FileError that names every wrong line and column; OSError for an unreadable file.
    """
    if {"Instances", "Range"} <= {*first_titles(path)}:
        raise FileError(
            f"{path}:1: expected stages, got a summary of NVTX ranges by nsys: convert the summary with `ipusim import`"
        )
    stages = runs.read_stages(path, hardware.GC200.clock_hz)
    stages_text = "a stage" if len(stages) == 1 else f"{len(stages)} stages"
    # Numbers without unit are cycles; the text tells users who meant milliseconds.
    are_cycles = not any(isinstance(stage.forward, runs.CyclesOfTime) for stage in stages)
    unit = ", in cycles of the tile clock, because the columns have no unit" if are_cycles else ""
    head = (
        f"{printable(path.name)}, {stages_text} as measured{unit}. Machine, schedule and count are defaults: --set "
        "changes them."
    )
    stages_data = [{"name": stage.name} | runs.options_set(stage) for stage in stages]
    return f"# {head}\n\n{runs.dump(plan_of(len(stages), stages_data))}"


def plan_of(stages: int, stages_data: Any, count: int | None = None) -> dict[str, Any]:
    """Return the default options of measured stages, at another ``count`` if given.

    ``stages_data`` represents the stages: inline, or as their file.
    """
    pipeline = {"schedule": "grouped" if stages > 1 else "single"}
    counts = {"gradient_accumulation_count": count or _COUNT * stages}
    return {"system": {"name": "free"}, "pipeline": {**pipeline, **counts, "stages": stages_data}}
