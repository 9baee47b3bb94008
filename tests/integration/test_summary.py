"""The summary of a run, which is all of its file."""

import json
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from ipusim.app.render.window import execution_window
from ipusim.app.run_folder.report import run_files
from ipusim.app.scenario import load_job
from ipusim.runs.execute import execute
from tests.cli.commands import leave_charts_out
from tests.scenarios import SCENARIOS


def test_the_summary_is_frozen_comparable_and_all_of_the_file(monkeypatch):
    leave_charts_out(monkeypatch)
    path = SCENARIOS / "data_parallel_4x4.yaml"
    one, other = (execute(load_job(path, ("steps=1",))) for _ in range(2))
    assert one.summary == other.summary
    with pytest.raises(FrozenInstanceError):
        one.summary.steps = 2
    shown = execution_window(one.timeline)
    assert json.loads(run_files(one, shown, Path())["summary.json"]) == one.summary.to_dict()
    names = {field.name for field in fields(one.summary) if field.compare} | {"waterfall", "verdict"}
    assert names <= one.summary.to_dict().keys()
    assert one.summary.gradient_sum.cycles * one.summary.executions == one.summary.run_use[0].cycles["all_reduce"]
