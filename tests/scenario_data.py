"""Scenarios as plain data: validated and resolved as every one is, without a YAML file where YAML is not the point."""

from __future__ import annotations

from pathlib import Path

from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.request.request import Request


def job_from(data, folder=Path()):
    """Return the Job of a scenario's mapping; files that it names are relative to ``folder``."""
    return assemble(Request.from_dict(data, name="drawn", folder=folder))


def timed(stages):
    """Return a scenario of so many stages of given cycles, each on an IPU, and eight micro-batches."""
    listed = [{"name": f"s{stage}", "forward": 1000, "backward": 2000} for stage in range(stages)]
    return {"system": {"name": "m2000"}, "pipeline": {"gradient_accumulation_count": 8, "stages": listed}}
