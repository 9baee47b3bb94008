"""Pictures that a process draws which was begun before the run are those that are drawn where the run is."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from ipusim.app.run_folder import pictures, report
from ipusim.runs.execute import execute
from tests.scenario_data import job_from


@pytest.fixture(scope="module")
def job():
    stages = [{"name": f"s{number}", "forward": 1000, "backward": 2000, "parameter_bytes": 90_000} for number in (0, 1)]
    pipeline = {"schedule": "grouped", "gradient_accumulation_count": 12, "stages": stages}
    return job_from({"system": {"name": "m2000"}, "pipeline": pipeline})


@pytest.fixture(scope="module")
def result(job):
    return execute(job)


@pytest.fixture(scope="module")
def drawn_here(result, tmp_path_factory):
    return report.run_files(result, report.picture_window(result.timeline), tmp_path_factory.getbasetemp())


@pytest.fixture
def drawn_in(monkeypatch):
    """The processes in which pictures are drawn from here on, of this one alone."""
    processes, makers = [], pictures.picture_makers

    def noted(*of):
        processes.append(os.getpid())
        return makers(*of)

    monkeypatch.setattr(pictures, "picture_makers", noted)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # whatever other tests have left
    return processes


def files(result, folder, drawing):
    return report.run_files(result, report.picture_window(result.timeline), folder, drawing=drawing)


def test_pictures_drawn_ahead_are_those_drawn_here(job, result, drawn_here, drawn_in, tmp_path):
    with report.drawing_ahead(job) as drawing:
        ahead = files(result, tmp_path, drawing)
    assert [*ahead] == [*drawn_here]
    assert {name for name in ahead if ahead[name] != drawn_here[name]} <= {"scenario.yaml"}
    assert {"trace.png", "trace.svg", "memory.png"} <= ahead.keys()
    assert drawn_in == []


def test_where_that_process_is_killed_or_the_run_is_too_long_to_be_sent_they_are_drawn_here(
    job, result, drawn_here, drawn_in, monkeypatch, tmp_path
):
    with report.drawing_ahead(job) as drawing:
        os.kill(drawing._child.process, signal.SIGKILL)
        assert files(result, tmp_path, drawing)["trace.png"] == drawn_here["trace.png"]
    monkeypatch.setattr(report, "_MOST_SENT", len(result.timeline) - 1)
    with report.drawing_ahead(job) as drawing:
        assert files(result, tmp_path, drawing)["memory.png"] == drawn_here["memory.png"]
    assert drawn_in == [os.getpid()] * 2
