"""Pictures that a process draws which was begun before the run are those that are drawn where the run is."""

import os
import signal
import threading
from dataclasses import replace

import pytest

from ipusim.app.render.window import ShownPart
from ipusim.app.run_folder import pictures, report
from ipusim.app.scenario import load_job
from ipusim.runs.execute import execute
from tests.effort import rarest
from tests.scenarios import SCENARIOS, run

pytestmark = pytest.mark.usefixtures("coarse")


@pytest.fixture(scope="module")
def result():
    return run("grouped", mapping=(0, 1), count=12, forward=1000, backward=2000, held=90_000, system="m2000")


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


def test_pictures_drawn_ahead_are_those_drawn_here(result, drawn_here, drawn_in, tmp_path):
    with report.drawing_ahead(result.job, report.picture_window) as drawing:
        ahead = files(result, tmp_path, drawing)
    assert [*ahead] == [*drawn_here]
    assert {name for name in ahead if ahead[name] != drawn_here[name]} <= {"scenario.yaml"}
    assert {"trace.png", "trace.svg", "memory.png"} <= ahead.keys()
    assert drawn_in == []


def test_where_that_process_is_killed_or_the_run_is_too_long_to_be_sent_they_are_drawn_here(
    result, drawn_here, drawn_in, monkeypatch, tmp_path
):
    with report.drawing_ahead(result.job, report.picture_window) as drawing:
        os.kill(drawing._child.process, signal.SIGKILL)
        assert files(result, tmp_path, drawing)["trace.png"] == drawn_here["trace.png"]
    monkeypatch.setattr(report, "_MOST_SENT_ROWS", len(result.timeline) - 1)
    with report.drawing_ahead(result.job, report.picture_window) as drawing:
        assert files(result, tmp_path, drawing)["memory.png"] == drawn_here["memory.png"]
    assert drawn_in == [os.getpid()] * 2


@pytest.fixture(scope="module")
def training():
    return load_job(SCENARIOS / "tutorial_step3_pipelining.yaml", ("steps=3", "pipeline.repeat_count=1"))


def sent(result, shown=None, timeline=None):
    return timeline or result.timeline, shown or report.picture_window(result.timeline), result.summary.waterfall


def test_files_of_a_training_are_those_that_are_made_where_the_run_is(training, drawn_in, tmp_path, monkeypatch):
    result = execute(training)
    here = files(result, tmp_path, None)
    assert {"weights.npz", "timeline.npz", "memory.npz", "trace.pftrace.gz", "trace.svg", "memory.png"} <= here.keys()
    with report.drawing_ahead(training, report.picture_window) as drawing:
        monkeypatch.setattr(report, "_files_of_time", lambda *_, **__: pytest.fail("made twice"))
        assert files(result, tmp_path, drawing) == here
    assert drawn_in == [os.getpid()]


@rarest
def test_what_that_process_has_not_made_of_a_training_is_made_here(training, drawn_in, tmp_path):
    result = execute(training)
    other = replace(result, timeline=result.timeline.with_info(replace(result.timeline.info, name="other")))
    expected = [files(run, tmp_path, None) for run in (other, result)]
    with report.drawing_ahead(training, report.picture_window) as drawing:
        assert files(other, tmp_path, drawing) == expected[0]
    with report.drawing_ahead(training, report.picture_window) as drawing:
        os.kill(drawing._child.process, signal.SIGKILL)
        assert files(result, tmp_path, drawing) == expected[1]
    assert drawn_in == [os.getpid()] * 3


def test_they_are_made_of_the_run_without_its_arithmetic_before_its_own_is_there(training, drawn_in, monkeypatch):
    """What the process draws is numbered, and says of which window and title."""
    drawn = []

    def noted(run, fit, busy=0):
        drawn.append(run)
        timeline, shown = run
        return {"trace.png": f"{len(drawn)}: {shown.name}, {timeline.info.title}".encode()}

    monkeypatch.setattr(pictures, "pictures_of", noted)
    result = execute(training)
    timeline, title = result.timeline, result.timeline.info.title
    others = (
        timeline.with_info(replace(timeline.info, title="another")),
        timeline.with_info(replace(timeline.info, name="x")),
    )
    for asked, content in (
        (sent(result), f"1: execution 0 of 3, {title}"),
        (sent(result, report.picture_window(timeline, ShownPart(execution=1))), f"2: execution 1 of 3, {title}"),
        (sent(result, timeline=others[0]), "2: execution 0 of 3, another"),
        (sent(result, timeline=others[1]), f"2: execution 0 of 3, {title}"),
    ):
        with report.drawing_ahead(training, report.picture_window) as drawing:
            assert drawing.send(asked)
            made = drawing.results()
        assert made["trace.png"] == content.encode()
        assert ("timeline.npz" in made) == content.startswith("1")
    assert drawn == []


def test_a_long_training_is_not_simulated_twice(training, drawn_in, monkeypatch):
    monkeypatch.setattr(pictures, "pictures_of", lambda run, fit, busy=0: {"trace.png": run[1].name.encode()})
    result = execute(training)
    monkeypatch.setattr(report, "execute", None)  # which nothing may call
    monkeypatch.setattr(report, "_MOST_PASSES", len(training.plan.kind) * training.executions - 1)
    with report.drawing_ahead(training, report.picture_window) as drawing:
        assert drawing.send(sent(result))
        assert drawing.results() == {"trace.png": b"execution 0 of 3"}
