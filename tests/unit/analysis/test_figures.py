"""The table of figures: each name leads to a number of ``summary.json``, the same for whoever asks by it."""

import math

import pytest

from ipusim.analysis.figures import FIGURES, SCHEMA_VERSION, figure, known_figures
from ipusim.app.compare.compare import compare
from ipusim.app.study.figures import MEASURES
from ipusim.app.sweep.measures import measure_of
from ipusim.app.sweep.outcome import outcome_of
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.request.request import Request
from tests.properties.test_disturbed_runs import LEARNING

HELD_OUT = LEARNING | {"data": LEARNING["data"] | {"hold_out": 0.25}, "evaluate": {"every": 1}}


@pytest.fixture(scope="module")
def run():
    return execute(assemble(Request.from_dict(HELD_OUT)))


def test_every_figure_is_a_value_of_the_summary(run):
    summary = run.summary.to_dict()
    assert list(known_figures(summary)) == [each.name for each in FIGURES]
    assert summary["schema_version"] == SCHEMA_VERSION
    assert figure("slowest_stage").value_in(summary) == "stage1"
    assert figure("memory").value_in(summary) == "fits"
    losses = run.learning.mean_loss_by_step
    assert [figure("mean_loss").value_in(summary, item) for item in ("", "first", "last", "least", "1")] == [
        losses[2],
        losses[0],
        losses[2],
        min(losses.values()),
        losses[1],
    ]
    peaks = {peak.ipu: peak.bytes for peak in run.memory.peaks}
    assert {ipu: figure("peak").value_in(summary, str(ipu)) for ipu in peaks} == peaks
    assert figure("peak").value_in(summary) == max(peaks.values())


def test_stages_that_tie_are_all_the_slowest(run):
    slowest, summary = figure("slowest_stage"), run.summary.to_dict()
    tied = slowest.value_in({**summary, "verdict": {"slowest_stages": [0, 1]}})
    assert (tied, slowest.text(tied)) == (["stage0", "stage1"], "stage0 and stage1 tie")


def test_what_a_run_does_not_have_is_not_there(run):
    summary = {**run.summary.to_dict(), "learning": None, "time_steps": None}
    assert {each.name for each in FIGURES} - set(known_figures(summary)) == {"time_steps", "mean_loss", "accuracy"}
    with pytest.raises(LookupError):
        figure("peak").value_in(summary, "7")
    diverged = {"learning": {"mean_loss_by_step": [0.5, None]}}
    assert math.isnan(figure("mean_loss").value_in(diverged))
    assert all(math.isnan(figure("mean_loss").value_in(diverged, item)) for item in ("most", "least", "last"))


def test_sweep_and_compare_measure_by_the_same_figures(run):
    summary = run.summary.to_dict()
    outcome = outcome_of(Request.from_dict(HELD_OUT), {})
    right = {each.name: each.value_in(summary) for each in MEASURES}
    assert {each.name: outcome.value(each) for each in MEASURES} == right
    assert {each.name: getattr(outcome, each.column) for each in MEASURES} == right
    for each in MEASURES:
        assert measure_of(each.name, losses=True) is measure_of(each.measure, losses=True) is each
    first, *_ = compare(Request.from_dict(HELD_OUT), ["grouped"], losses=True)
    told = first.figures
    assert {"throughput", "bubble", "peak", "mean_loss", "accuracy", "memory"} < set(told)
    assert told == {name: value for name, value in known_figures(summary).items() if name in told}
