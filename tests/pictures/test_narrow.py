"""What is narrower than a pixel: counted in the pixels of the picture that is drawn."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipusim.app.render.boxes import span_boxes
from ipusim.app.render.content import content
from ipusim.app.render.execution_trace import execution_trace
from ipusim.app.render.narrow import legible_boxes
from ipusim.app.render.picture import Picture
from ipusim.app.render.style import ALWAYS_SHOWN, DPI, LOOK_OF_KIND
from ipusim.app.render.window import window
from ipusim.app.scenario import load_job
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import LOOKS, SpanKind
from tests.drawn_pictures import pixels
from tests.effort import share
from tests.scenarios import SCENARIOS


def rows_of_pixels(figure, ipus):
    """The pixels of each IPU's row, each of shape (height, width, 3), without what is written beside them."""
    shown = pixels(figure).astype(int)
    axes = figure.axes[-1].get_window_extent()
    x0, x1 = round(axes.x0), round(axes.x1)
    # Pixels count from the top, matplotlib from the bottom.
    tops = [round(len(shown) - axes.y1 + (axes.height / ipus) * row) for row in range(ipus + 1)]
    return [shown[top:end, x0:x1] for top, end in itertools.pairwise(tops)]


def holds(row, look, apart):
    """Whether each column of a row holds a pixel of the look's colour, or apart from it by no more than so much."""
    wanted = np.array([int(look.face[place : place + 2], 16) for place in (1, 3, 5)])
    return (np.abs(row - wanted).max(axis=-1) <= apart).any(axis=0)


def stretches(held):
    """How many stretches of columns hold a colour."""
    return int(held[0]) + int(np.count_nonzero(held[1:] & ~held[:-1]))


def test_all_forward_passes_of_an_inference_can_be_seen():
    free = ("rates.compute_set_cycles=0", "rates.product_layout_cycles=0")
    timeline = execute(load_job(SCENARIOS / "inference.yaml", free)).timeline
    forward = timeline.rows(SpanKind.FORWARD)
    rows = rows_of_pixels(execution_trace(timeline, picture=Picture(size="9x4in")), 4)
    narrowest = (timeline.end - timeline.start)[forward].min()
    assert narrowest / window(timeline).cycles * rows[0].shape[1] < 0.5, "these passes are narrower than half a pixel"
    assert [stretches(holds(row, LOOKS[0], 24)) for row in rows] == [32] * 4


@settings(max_examples=share(12), deadline=None)
@given(
    st.lists(st.integers(1, 400), min_size=4, max_size=4),
    st.lists(st.integers(1, 400), min_size=4, max_size=4),
    st.integers(1, 12),
    st.integers(500, 40_000),
    st.sampled_from([0, 40, 20_000]),
)
def test_no_pass_of_any_run_vanishes(lock_step, forward, backward, turns, sync, exchange):
    """On every row, between the same two syncs, where there is a pass there are pixels of it."""
    timeline = lock_step(
        "grouped",
        mapping=(0, 1, 2, 3),
        count=8 * turns,
        forward=forward,
        backward=backward,
        sync=sync,
        exchange=exchange,
        update=3,
    )
    figure = execution_trace(timeline)
    rows = rows_of_pixels(figure, 4)
    for ipu, row in enumerate(rows):
        scale = row.shape[1] / window(timeline).cycles
        for kind in (SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.WEIGHT_UPDATE):
            near = np.flatnonzero(holds(row, LOOKS[LOOK_OF_KIND[kind]], 48))
            for span in timeline.rows(kind):
                if timeline.ipu[span] == ipu:
                    middle = (timeline.start[span] + timeline.end[span]) / 2 * scale
                    assert np.abs(near - middle).min() <= 16, (kind, middle)


def test_boxes_that_are_wide_enough_stay_as_they_are(lock_step):
    timeline = lock_step("grouped", mapping=(0, 1, 2), count=6, infeed=30, host_wait=9, outfeed=7)
    spans = span_boxes(timeline, window(timeline))
    boxes, stacked = legible_boxes(spans, window(timeline), 7, 0.06)
    assert not stacked
    assert sorted(zip(boxes.ipu, boxes.start, boxes.end, boxes.look, strict=True)) == sorted(
        zip(spans.ipu, spans.start, spans.end, spans.look, strict=True)
    )


@pytest.mark.parametrize("narrowest", [8, 15, 40, 90, 250, 900])
def test_boxes_are_wide_enough_and_neither_overlap_nor_leave_the_window(lock_step, narrowest):
    timeline = lock_step("grouped", mapping=(0, 1, 2), count=12, infeed=30, host_wait=9, outfeed=7, executions=2)
    shown = window(timeline)
    boxes, _ = legible_boxes(span_boxes(timeline, shown), shown, narrowest, 0.06)
    wide = np.where(np.isin(boxes.look, ALWAYS_SHOWN), narrowest, narrowest / 2)
    assert (boxes.end - boxes.start >= wide).all()
    assert boxes.start.min() >= shown.start
    assert boxes.end.max() <= shown.end
    assert (boxes.top - boxes.bottom).min() >= 0.06 - 1e-12
    for ipu in range(3):
        own = np.flatnonzero(boxes.ipu == ipu)
        for one, other in itertools.combinations(own, 2):
            beside = boxes.end[one] <= boxes.start[other] or boxes.end[other] <= boxes.start[one]
            above = min(boxes.top[one], boxes.top[other]) <= max(boxes.bottom[one], boxes.bottom[other]) + 1e-12
            assert beside or above


def test_what_is_far_too_narrow_is_left_out_everywhere_but_for_passes_and_updates(lock_step):
    timeline = lock_step("grouped", mapping=(0, 1), count=64, forward=20_000, backward=40_000, update=2, exchange=3)
    shown = content(timeline, window(timeline), 9.0)
    looks = {LOOKS[look].name for look in np.unique(shown.boxes.look)}
    assert looks == {"forward", "backward", "weight update", "sync wait"}
    assert {LOOKS[look].name for look in ALWAYS_SHOWN} >= {"forward", "backward", "weight update", "all-reduce"}


def test_an_ipu_without_a_stage_may_have_nothing_that_is_wide_enough_to_see(load):
    stages = ", ".join(f"{{name: {name}, forward: 1000000, backward: 2000000, output_bytes: 8}}" for name in "abc")
    text = "system: {name: m2000, auto_select_ipus: 4}\npipeline: {gradient_accumulation_count: 6, stages: [%s]}"
    timeline = execute(load(text % stages)).timeline
    assert set(span_boxes(timeline, window(timeline)).ipu.tolist()) == {0, 1, 2, 3}
    assert set(content(timeline, window(timeline), 10).boxes.ipu.tolist()) == {0, 1, 2}


def test_a_small_share_of_a_dense_run_is_seen(lock_step):
    timeline = lock_step("grouped", mapping=(0, 1, 2, 3), count=2048, forward=3, backward=5, sync=900)
    shown = content(timeline, window(timeline), 9.0)
    assert shown.shares
    forward = shown.boxes.look == 0
    assert set(shown.boxes.ipu[forward]) == {0, 1, 2, 3}
    tall = (shown.boxes.top - shown.boxes.bottom) * 0.4 * DPI
    assert tall[forward].min() >= 1.5
    assert (shown.boxes.top).max() <= 1 + 1e-12
