"""Peak memory against what a sweep varies: the curve in the picture, the limit across it, and where it is too much."""

import numpy as np
import pytest

from ipusim.analysis.fits import Fits
from ipusim.app.scenario.load import load_job, load_request
from ipusim.app.sweep.ceiling import ceilings
from ipusim.app.sweep.crew import Crew
from ipusim.app.sweep.measures import MEMORY, THROUGHPUT
from ipusim.app.sweep.report import chart_of, sweep_table, verdict
from ipusim.app.sweep.sweep import sweep
from ipusim.app.sweep.vary import axes_of
from ipusim.runs.request.request import Request
from tests.drawn_pictures import words as words_of
from tests.scenarios import SCENARIOS

COUNT = "pipeline.gradient_accumulation_count"
SIZE = "pipeline.micro_batch_size"
PATH = SCENARIOS / "memory_by_schedule.yaml"
MIB = 2**20
GPIPE = ("pipeline.schedule=gpipe", "expect=null")


def swept(changes, varied, path=PATH):
    return sweep(load_request(path, changes), axes_of(varied), crew=Crew(workers=1))


def drawn(found, measure=THROUGHPUT):
    return chart_of(found, ceilings(found), measure).get_axes()


def test_a_panel_has_the_peak_of_each_point_and_the_memory_of_an_ipu():
    """GPipe keeps all micro-batches of an execution: as many stashes of 96 MiB on IPU 0, and gradients that wait."""
    counts = [1, 2, 4, 8]
    found = swept((*GPIPE, "memory=report"), {COUNT: counts})
    peaks = [load_job(PATH, (*GPIPE, "memory=report", f"{COUNT}={count}")).memory.fullest.bytes for count in counts]
    assert [peak - peaks[0] for peak in peaks] == [(count - 1) * 100 * MIB for count in counts]
    *_, panel = drawn(found)
    assert panel.get_ylabel() == "fullest IPU, MiB"
    curve = panel.get_lines()[0]
    assert [*curve.get_xdata()] == counts
    assert [*curve.get_ydata()] == pytest.approx([peak / MIB for peak in peaks])
    assert [text.get_text() for text in panel.texts] == ["an IPU has 897 MiB"]
    level = [line for line in panel.get_lines() if len({*line.get_ydata()}) == 1 and line.get_linestyle() == ":"]
    assert [line.get_ydata()[0] for line in level] == [load_job(PATH).memory.sram_bytes / MIB]
    low, high = panel.get_ylim()
    assert low <= 0
    assert peaks[-1] / MIB < high
    (words,) = [line for line in verdict(found, (), THROUGHPUT) if line.startswith("The fullest")]
    first = next(count for count, peak in zip(counts, peaks, strict=True) if peak > load_job(PATH).memory.sram_bytes)
    assert words.endswith(f", too much from gradient_accumulation_count {first} on.")


@pytest.mark.parametrize("varied", [{COUNT: [4, 8, 16]}, {"pipeline.schedule": ["grouped", "sequential"]}])
def test_the_chart_says_the_answer_of_points_that_only_fit_without_estimated_code(varied):
    layers = [{"name": "d", "type": "dense", "units": 8}, {"name": "loss", "type": "softmax_cross_entropy"}]
    data = {"type": "synthetic", "shape": [8], "classes": 2, "samples": 64}
    pipeline = {"splits": ["loss"], "gradient_accumulation_count": 4}
    options = {"system": {"name": "m2000"}, "numerics": "off", "data": data, "model": {"layers": layers}}
    options |= {"pipeline": pipeline, "rates": {"program_code": 700_000}}
    found = sweep(Request.from_dict(options), axes_of(varied), crew=Crew(workers=1))
    assert {outcome.fits for _, outcome in found.finished_points} == {Fits.WITHOUT_CODE}
    shown = [text for text in words_of(chart_of(found, (), MEMORY)) if "fits" in text]
    assert (len(shown), shown[0].removeprefix("hollow: ")) == (1, "fits only without the estimated code")


def test_points_that_are_refused_have_their_peak_too():
    found = swept((*GPIPE, "memory=error"), {COUNT: [1, 2, 8]})
    assert [outcome.has_run for outcome in found.outcomes] == [True, True, False]
    throughput, *_, memory = drawn(found)
    assert [*throughput.get_lines()[0].get_xdata()] == [1, 2, 8]
    assert [*np.isnan(throughput.get_lines()[0].get_ydata())] == [False, False, True]
    assert [*memory.get_lines()[0].get_xdata()] == [1, 2, 8]
    row = dict(zip(sweep_table(found, THROUGHPUT).header, sweep_table(found, THROUGHPUT).rows[2], strict=True))
    assert (row["samples per s"], row["fits"]) == ("-", "does not fit")
    assert row["peak memory"] != "-"


def test_two_numbers_make_a_map_of_each_figure():
    changes = ("numerics=off", "memory=report", "steps=1", "pipeline.repeat_count=1", "evaluate=null", "expect=null")
    found = swept(changes, {SIZE: [4, 8, 16], COUNT: [8, 16, 24]}, SCENARIOS / "digits_training.yaml")
    panels = [axes for axes in drawn(found) if axes.images]
    assert len(panels) == 3
    peaks = panels[-1].images[0].get_array()
    by_size = {point: outcome.peak_bytes for point, outcome in found.finished_points}
    for row, count in enumerate((8, 16, 24)):
        for column, size in enumerate((4, 8, 16)):
            assert peaks[row][column] == pytest.approx(by_size[size, count] / MIB)
    assert [axes.get_xlabel() for axes in panels] == ["", "", "micro_batch_size"]
    assert any(line.startswith("The fullest IPU holds from ") for line in verdict(found, (), THROUGHPUT))


def test_where_all_points_hold_the_same_no_panel_and_no_sentence_says_so():
    found = swept(("memory=report", "expect=null"), {COUNT: [8, 16, 24]})
    assert all(axes.get_ylabel() != "fullest IPU, MiB" for axes in drawn(found))
    assert not any(line.startswith("The fullest") for line in verdict(found, (), THROUGHPUT))


def test_a_level_far_above_all_values_is_left_out():
    found = swept((*GPIPE, "memory=report", "pipeline.stages.0.stash_bytes=1 MiB"), {COUNT: [1, 2, 4]})
    small = [line for stage in range(4) for line in (f"pipeline.stages.{stage}.{key}=1 KiB" for key in KEYS)]
    tiny = swept((*GPIPE, "memory=report", *small), {COUNT: [1, 2, 4]})
    assert drawn(found)[-1].texts
    assert not drawn(tiny)[-1].texts


KEYS = ("parameter_bytes", "state_bytes", "stash_bytes")


def test_the_measure_itself_is_one_panel():
    found = swept((*GPIPE, "memory=report"), {COUNT: [1, 2, 4]})
    (panel,) = drawn(found, MEMORY)
    assert panel.get_ylabel() == "fullest IPU, MiB"
    assert [text.get_text() for text in panel.texts] == ["an IPU has 897 MiB"]
