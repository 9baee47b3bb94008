import itertools

import numpy as np
import pytest

from ipusim.app.render.boxes import bin_edges, share_boxes, span_boxes
from ipusim.app.render.content import content
from ipusim.app.render.theme import in_grey
from ipusim.app.render.window import Window, execution_window, phase_window, run_end, window
from ipusim.base.errors import OutputError
from ipusim.timeline.kinds import LOOKS, SpanKind
from tests.unit.render.test_fills import lab


def test_bins_do_not_mix_phases():
    edges = bin_edges(np.arange(0, 10_000, 10), Window(0, 10_000), 400.0, [1130, 1140, 9990])
    assert {1130, 9990} <= set(edges.tolist())
    assert 1140 not in edges
    assert np.diff(edges)[:-1].min() >= 100


def test_equal_bins_melt_into_one_box(lock_step):
    timeline = lock_step("grouped", mapping=(0, 1), count=400, sync=0, exchange=0)
    main = phase_window(timeline, "main")
    inside = Window(main.start + 2000 - main.start % 300, main.start + 2000 - main.start % 300 + 90_000)
    edges = np.arange(inside.start, inside.end + 1, 300)
    boxes = share_boxes(span_boxes(timeline, inside), 2, edges)
    assert len(boxes) == 4  # forward and backward of two IPUs
    assert sorted(boxes.top - boxes.bottom) == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3])


def test_a_run_too_dense_for_boxes_becomes_shares_and_a_zoom_into_it_has_a_box_for_every_span(lock_step):
    timeline = lock_step("grouped", mapping=tuple(range(8)), count=2048)
    shown, zoomed = (content(timeline, of, 9.0) for of in (window(timeline), phase_window(timeline, "ramp-up")))
    assert len(timeline) > 30_000
    assert len(shown.boxes) < 5_000
    assert (shown.shares, len(shown.syncs)) == (True, 0)
    assert (zoomed.shares, len(zoomed.syncs)) == (False, 15)


def test_boxes_end_at_the_window(lock_step):
    timeline = lock_step("grouped", mapping=(0, 1), count=4)
    boxes = span_boxes(timeline, Window(50, 620))
    assert (boxes.start.min(), boxes.end.max()) == (50, 620)


@pytest.mark.parametrize(
    ("phase", "start", "end"),
    [
        ("ramp-up", 0, 590),
        ("main", 590, 4880),
        ("ramp-down", 4880, 5700),
        ("weight-update", 5700, 5850),
        ("weight update", 5700, 5850),
    ],
)
def test_windows_of_phases_hold_them_with_a_little_around(lock_step, phase, start, end):
    timeline = lock_step("grouped", mapping=(0, 1), count=16, executions=2)
    step = execution_window(timeline, 1).start
    assert step == 5850
    shown = phase_window(timeline, phase, execution=1)
    margin = round((end - start) * 0.04)
    assert (shown.start, shown.end) == (start + step - margin, min(end + step + margin, run_end(timeline)))


def test_a_phase_that_is_not_there(lock_step):
    timeline = lock_step("sequential", mapping=(0, 1), count=2)
    with pytest.raises(OutputError, match=r"'sequential' in lock-step \(main, weight update\), got 'ramp-up'"):
        phase_window(timeline, "ramp-up")


@pytest.mark.parametrize(("start", "end"), [(5, 5), (-1, 10), (10_000, None), (400, 300)])
def test_a_window_outside_the_run(lock_step, start, end):
    with pytest.raises(OutputError, match="expected a window of cycles within the run"):
        window(lock_step(), start, end)


def lightness(colour):
    """CIE L* of an sRGB colour, D65."""
    return lab(colour, "all cones")[0]


def test_looks_differ_in_grey_or_by_their_hatching():
    for one, other in itertools.combinations(LOOKS, 2):
        assert abs(lightness(one.face) - lightness(other.face)) >= 8 or one.hatch != other.hatch, (one, other)


def test_looks_differ_in_print_by_lightness_or_hatching_and_passes_by_lightness():
    greys = [lightness(in_grey(look.face, True)) for look in LOOKS]
    passes = {LOOKS.index(kind.row.look) for kind in SpanKind if kind.row.of_pass is not None}
    for one, other in itertools.combinations(range(len(LOOKS)), 2):
        is_distinct = abs(greys[one] - greys[other]) >= 8
        assert is_distinct or LOOKS[one].hatch != LOOKS[other].hatch, (LOOKS[one], LOOKS[other])
        assert is_distinct or not {one, other} <= passes, (LOOKS[one], LOOKS[other])


def test_hatches_stand_out_in_print():
    for look in LOOKS:
        if look.hatch:
            greys = [lightness(in_grey(colour, is_face)) for colour, is_face in ((look.face, True), (look.ink, False))]
            assert abs(greys[0] - greys[1]) >= 8, look


def test_numbers_stand_out_from_their_boxes():
    for look in LOOKS[:3]:
        assert abs(lightness(look.face) - lightness(look.number)) >= 45
