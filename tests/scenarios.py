"""The repository's files, and scenarios as plain data, run without YAML where YAML is not the point."""

from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.job import Job
from ipusim.runs.request.request import Request
from ipusim.runs.run import Run
from ipusim.timeline.timeline import Timeline

ROOT = Path(__file__).parents[1]
SCENARIOS = ROOT / "scenarios"
GOLDEN = ROOT / "tests" / "golden"


@cache
def plain_data(file: Path) -> Any:
    """Return what a YAML file says as another reader than ours reads it, slowly and once: nobody may change it."""
    return YAML(typ="safe", pure=True).load(file)


def job_from(data, folder=Path()):
    """Return the Job of a scenario's mapping; files that it names are relative to ``folder``."""
    return assemble(Request.from_dict(data, name="drawn", folder=folder))


def timed(stages):
    """Return a scenario of so many stages of given cycles, each on an IPU, and eight micro-batches."""
    listed = [{"name": f"s{stage}", "forward": 1000, "backward": 2000} for stage in range(stages)]
    return {"system": {"name": "m2000"}, "pipeline": {"gradient_accumulation_count": 8, "stages": listed}}


def job_of(
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
) -> Job:
    """Return the Job; each stage moves so many bytes to its neighbours, and holds so many of each micro-batch."""
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
    data = {"system": {"name": system, "auto_select_ipus": 1 << max(mapping).bit_length()}, "pipeline": asked}
    return job_from(data | ({"training": False} if inference else {}))


@lru_cache(maxsize=32)
def run(*names: str, **changes: Any) -> Run:
    """Return the run of :func:`job_of`."""
    return execute(job_of(*names, **changes))


def timeline(*names: str, **changes: Any) -> Timeline:
    """Return the Timeline of :func:`run`, with every span as a row."""
    return run(*names, **changes).timeline.expanded()
