"""The memory chart: every word legible, every byte in its place, the same bytes each time."""

import itertools
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest

from ipusim.analysis.fit import fit
from ipusim.analysis.memory import memory_curves, moment, product_steps
from ipusim.app.render.figures import to_png
from ipusim.app.render.memory import memory_chart
from ipusim.app.render.memory_layers import ipu_layers
from ipusim.app.render.style import luminance
from ipusim.app.render.window import Window, phase_window, window
from ipusim.app.scenario import load_job
from ipusim.model.profile import StageProfile
from ipusim.pipeline.feeds import Infeed, Outfeed
from ipusim.pipeline.footprint import footprint
from ipusim.pipeline.holders import LAYERS, Holder
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.runs.execute import execute
from ipusim.schedules.registry import find
from ipusim.timeline.kinds import PASSES
from tests.drawn_pictures import assert_legible, drawn_texts
from tests.effort import sampled, slowest
from tests.scenarios import SCENARIOS

KIB = 1024


def run(lock_step, schedule="grouped", ipus=4, count=16, sram_bytes=900 * KIB, executions=1, factor=KIB, **changes):
    """A hand-made Timeline, and what a program of as many stages holds."""
    mapping = tuple(range(ipus)) if ipus > 1 else (0, 0)
    shape = PlanShape(mapping=mapping, micro_batches=count, **changes)
    sizes = {
        "output_bytes": 4,
        "gradient_bytes": 4,
        "parameter_bytes": 90,
        "state_bytes": 180,
        "accumulator_bytes": 90,
        "input_bytes": 4,
        "stash_bytes": 60,
        "weight_gradient_bytes": 20,
        "code_bytes": 7,
    }
    held = {name: size * factor for name, size in sizes.items()}
    profiles = tuple(StageProfile(f"s{index}", 1, 2, 1, **held) for index in range(shape.stages))
    program = PipelineProgram(profiles, shape, schedule, infeed=Infeed(4 * factor), outfeed=Outfeed(factor))
    plan = plan_of(find(schedule), shape)
    repeated = {"executions": executions} if executions > 1 else {}  # as other tests say it, laid out once for all
    timeline = lock_step(schedule, mapping=mapping, count=count, **repeated, **changes)
    return timeline, fit(plan, footprint(plan, program), sram_bytes)


CHARTS = {
    "1 IPU": {"schedule": "single", "ipus": 1},
    "2 IPUs": {"ipus": 2},
    "4 IPUs": {},
    "4 IPUs, all of it too much": {"sram_bytes": 100 * KIB},
    "4 IPUs without a limit": {"sram_bytes": None},
    "4 IPUs far below the limit": {"sram_bytes": 900 * KIB * KIB},
    "4 IPUs of which none holds a byte": {"factor": 0},
    "recomputation": {"recompute": True},
    "interleaved": {"schedule": "interleaved"},
    "inference": {"training": False},
    "ten executions": {"executions": 10},
    "16 IPUs": {"ipus": 16, "count": 32, "sram_bytes": 2_000 * KIB},
    "64 IPUs": {"ipus": 64, "count": 128, "sram_bytes": None},
}


def chart(lock_step, name):
    timeline, found = run(lock_step, **CHARTS[name])
    return memory_chart(timeline, found, window(timeline))


@sampled(2)
@pytest.mark.parametrize("name", CHARTS)
def test_no_text_overlaps_another_or_is_cut_off(lock_step, name):
    figure = chart(lock_step, name)
    found = drawn_texts(figure)
    assert len(found) > 8
    assert_legible(figure, found)


def test_it_says_what_is_held_and_what_there_is_room_for(lock_step):
    words = [text for text, _ in drawn_texts(chart(lock_step, "4 IPUs"))]
    # 90 + 180 + 90 + 7, FIFO 6 x 60, copies 4 x 2, infeed 4; in a backward 60 + 4 + 20
    assert "823 KiB" in words
    for text in ("IPU 0", "IPU 3", "ramp-up", "main", "ramp-down", "parameters", "FIFO buffers: empty"):
        assert text in words
    assert "Memory: every IPU fits; the fullest is IPU 0 with 823 KiB of 900 KiB." in words
    assert "an IPU's memory, 900 KiB" in words
    assert "separate scale" not in " ".join(words)
    far = [text for text, _ in drawn_texts(chart(lock_step, "4 IPUs far below the limit"))]
    assert "Each row over time has a separate scale." in " ".join(far)
    assert "recomputation" not in " ".join(words)


def test_what_is_seen_in_the_bars_of_low_rows_is_in_the_legend(lock_step):
    words = [text for text, _ in drawn_texts(chart(lock_step, "64 IPUs"))]
    assert {"parameters", "optimizer state", "gradient accumulators", "FIFO buffers: empty"} <= {*words}


def test_the_limit_is_drawn_where_it_is_within_reach(lock_step):
    def lines(name):
        figure = chart(lock_step, name)
        return [line for axes in figure.axes for line in axes.lines if line.is_dashed()]

    assert len(lines("4 IPUs")) == 2 * 4
    assert not lines("4 IPUs far below the limit")
    assert not lines("4 IPUs without a limit")


@pytest.mark.parametrize("most_steps", [10**6, 40, 7])
def test_layers_add_up_to_what_is_allocated(lock_step, most_steps):
    timeline, found = run(lock_step, executions=3)
    whole = window(timeline)
    for shown in (whole, phase_window(timeline, "main", 1), Window(whole.end // 3, whole.end // 2)):
        footprint = found.footprint
        curves = memory_curves(timeline, footprint)
        for curve, each, peak in zip(curves, footprint.ipus, found.peaks, strict=True):
            products = product_steps(timeline, footprint, each)
            row = ipu_layers(curve, products, peak, moment(timeline, peak), shown, most_steps)
            assert list(row.heights) == list(LAYERS) == list(row.peak)
            assert row.peak_bytes == peak.bytes
            assert row.edges[0] == shown.start
            assert row.edges[-1] == shown.end
            assert (np.diff(row.edges) > 0).all()
            assert len(row.edges) <= most_steps + 1
            assert all((heights >= 0).all() for heights in row.heights.values())
            total = sum(row.heights.values())
            # The most of each step, by looking at every cycle that something changes in.
            for index, (start, end) in enumerate(itertools.pairwise(row.edges)):
                changes = [start, *curve.time[(curve.time > start) & (curve.time < end)]]
                entries = np.searchsorted(curve.time, changes, side="right") - 1
                assert total[index] == curve.allocated_bytes[entries].max()
                assert row.heights[Holder.FIFOS.look][index] == curve.fifo_bytes[entries].max()


@pytest.mark.parametrize("name", ["gpt2", "bert_large"])  # the second loads its optimizer's state for the update
def test_the_room_for_products_is_drawn_as_used_while_a_pass_runs_and_as_free_else(name):
    changes = ["pipeline.gradient_accumulation_count=20", "pipeline.repeat_count=2"]
    result = execute(load_job(SCENARIOS / f"{name}.yaml", changes))
    timeline, found = result.timeline, result.memory
    shown = window(timeline)
    used, free = Holder.TEMPORARY.look, Holder.TEMPORARY.empty
    curves = memory_curves(timeline, found.footprint)
    for curve, each, peak in zip(curves, found.footprint.ipus, found.peaks, strict=True):
        room = dict(each.resident)[Holder.TEMPORARY]
        products = product_steps(timeline, found.footprint, each)
        row = ipu_layers(curve, products, peak, moment(timeline, peak), shown, 10**6)
        assert room > 0
        assert (row.heights[used] + row.heights[free] == room).all(), "as tables and the summary have it"
        assert row.peak[used] + row.peak[free] == dict(peak.holders)[Holder.TEMPORARY]
        own = [span for span in timeline if span.ipu == each.ipu and span.end > span.start]
        passes = [span for span in own if span.kind in PASSES]
        for span in passes[:: max(len(passes) // 40, 1)]:
            inside = (row.edges[:-1] >= span.start) & (row.edges[:-1] < span.end)
            assert (row.heights[used][inside] == found.footprint.stages[span.stage].temporary_bytes).all()
        at_work = np.zeros(len(row.edges) - 1, dtype=bool)
        for span in own:
            if span.kind in PASSES or span.time_step == timeline.info.time_steps:
                at_work |= (row.edges[:-1] >= span.start) & (row.edges[:-1] < span.end)
        assert np.count_nonzero(~at_work) > 0
        assert not row.heights[used][~at_work].any(), "between passes nothing of a product is there"


@pytest.mark.parametrize("name", ["2 IPUs", pytest.param("16 IPUs", marks=slowest)])
def test_equal_charts_are_equal_bytes_under_any_settings(lock_step, name):
    first = to_png(chart(lock_step, name))
    with mpl.rc_context({"font.size": 20, "lines.linewidth": 7, "hatch.linewidth": 4, "axes.facecolor": "red"}):
        assert to_png(chart(lock_step, name)) == first


def test_no_two_layers_look_alike():
    faces = [layer.face for layer in LAYERS]
    assert len(set(faces)) == len(faces)
    # Neighbours in a stack differ in grey print, or one of the two is hatched.
    for one, other in itertools.pairwise(LAYERS):
        assert abs(luminance(one.face) - luminance(other.face)) > 0.1 or one.hatch != other.hatch


def test_an_ipu_without_a_stage_has_no_row(lock_step):
    timeline, found = run(lock_step, ipus=3, count=12)
    timeline = type(timeline)(replace(timeline.info, ipus=(0, 1, 3, 2)), np.array([tuple(span) for span in timeline]))
    figure = memory_chart(timeline, found, window(timeline))
    words = [text for text, _ in drawn_texts(figure)]
    assert "IPU 2" in words
    assert not [text for text in words if text.startswith("IPU 3")]
