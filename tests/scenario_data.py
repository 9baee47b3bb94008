"""Scenarios as plain data: validated and resolved as every one is, without a YAML file where YAML is not the point."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.request.request import Request


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
