"""A CSV file of measured stages as the text of a scenario: what it does not say, every stage's plan begins with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ipusim.api import hardware, runs

#: How a name of such a file ends.
SUFFIX: Final = ".csv"
#: Micro-batches for each stage: a multiple of what any schedule of the house asks of a count, two for each stage.
_COUNT: Final = 4


def measured_text(path: Path) -> str:
    """Return the scenario of the stages of a CSV file: a stage an IPU, on ``free``, Grouped, four micro-batches each.

    It holds the stages themselves, so that it needs no file beside it. One stage is no pipeline: its schedule is
    single. Raises FileError that names every line and column that is wrong; OSError for a file that cannot be read.
    """
    stages = runs.read_stages(path, hardware.GC200.clock_hz)
    many = "a stage" if len(stages) == 1 else f"{len(stages)} stages"
    head = f"{path.name}, {many} as measured. Machine, schedule and count are where ipusim begins: --set changes them."
    return f"# {head}\n\n{runs.dump(plan_of(stages, [{'name': stage.name} | runs.given(stage) for stage in stages]))}"


def plan_of(stages: Sequence[runs.TimedStageSpec], written: Any) -> dict[str, Any]:
    """Return the options that measured stages begin with; ``written`` stands for these: themselves, or a file."""
    pipeline = {"schedule": "grouped" if len(stages) > 1 else "single"}
    return {
        "system": {"name": "free"},
        "pipeline": {**pipeline, "gradient_accumulation_count": _COUNT * len(stages), "stages": written},
    }
