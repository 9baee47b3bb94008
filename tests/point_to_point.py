"""Runs in point-to-point of stages known by their cycles, by default on the free system."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ipusim.runs.execute import execute
from ipusim.runs.run import Run
from ipusim.timeline.timeline import Timeline
from tests.scenario_data import job_from


@lru_cache(maxsize=32)
def run(
    schedule: str = "1f1b",
    *,
    mapping: Sequence[int] = (0, 1, 2, 3),
    count: int = 8,
    forward: int = 100,
    backward: int = 200,
    update: int = 50,
    moved: int = 0,
    system: str = "free",
    executions: int = 1,
    inference: bool = False,
    held: int = 0,
    **pipeline: Any,
) -> Run:
    """Return the run; each stage moves so many bytes to its neighbours, and holds so many of each micro-batch."""
    last = len(mapping) - 1
    stages = [
        {
            "name": f"stage{number}",
            "forward": forward,
            **({} if inference else {"backward": backward, "update": update}),
            **({"output_bytes": moved} if moved and number < last else {}),
            **({"gradient_bytes": moved} if moved and number and not inference else {}),
            **({"stash_bytes": held, "parameter_bytes": held} if held else {}),
        }
        for number in range(len(mapping))
    ]
    asked = {"schedule": schedule, "gradient_accumulation_count": count, "repeat_count": executions}
    asked |= {"device_mapping": list(mapping), "stages": stages, **pipeline}
    data = {"system": {"name": system, "auto_select_ipus": max(mapping) + 1}, "pipeline": asked}
    return execute(job_from(data | ({"training": False} if inference else {})))


def timeline(*names: str, **changes: Any) -> Timeline:
    """Return the Timeline of :func:`run`, with every span as a row."""
    return run(*names, **changes).timeline.expanded()
