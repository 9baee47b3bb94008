"""Boxes of pictures, and colours by number: contrast with what is behind them, and with each other for all eyes."""

import re
from importlib.resources import files
from itertools import combinations

import numpy as np
import pytest

from ipusim.app.render.boxes import bin_edges, share_boxes, span_boxes
from ipusim.app.render.content import content
from ipusim.app.render.page.fills import _FILLS, LANES, Shades, page_looks
from ipusim.app.render.theme import in_grey
from ipusim.app.render.window import Window, execution_window, phase_window, run_end, window
from ipusim.base.errors import OptionError, OutputError
from ipusim.pipeline.holders import LAYERS
from ipusim.timeline.kinds import LOOKS, SpanKind
from ipusim.timeline.time_parts import COMPUTES, RECOMPUTATION_WAITS, Idle, TimePart

#: What WCAG 2.1 asks of graphics (success criterion 1.4.11).
CONTRAST = 3.0
#: Colours of one table are at least so far apart in CIELAB, where 2.3 is what anyone just notices.
APART = 10.0
#: A colour of the page is no farther in CIELAB from that of pictures.
SAME = 36.0
#: What may lie beside each other: kinds of spans, layers of memory, and parts of the time.
TIME = dict.fromkeys(
    (COMPUTES, RECOMPUTATION_WAITS, *(each.value for each in (*TimePart, *Idle) if each is not TimePart.USEFUL))
)
TABLES = {"spans": LOOKS, "memory": LAYERS, "time": tuple(TIME)}
#: How eyes without green or red cones see linear RGB: Machado, Oliveira and Fernandes 2009, severity 1.
EYES = {
    "all cones": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
#: Linear RGB to CIE XYZ (IEC 61966-2-1).
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
EVERY = [(table, scheme) for table in TABLES for scheme in Shades._fields]


def linear(colour):
    part = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    darker, lighter = sorted(float(XYZ[1] @ linear(colour)) for colour in (one, other))
    return (lighter + 0.05) / (darker + 0.05)


def lab(colour, eyes):
    part = XYZ @ np.clip(EYES[eyes] @ linear(colour), 0, 1) / XYZ.sum(axis=1)
    x, y, z = np.where(part > 216 / 24389, np.cbrt(part), (24389 / 27 * part + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def apart(one, other):
    return min(float(np.linalg.norm(lab(one, eyes) - lab(other, eyes))) for eyes in EYES)


def behind(scheme):
    """The lane of spans and memory, and the page's paper, on which legends and bars lie."""
    style = files("ipusim.app.render.page").joinpath("page.css").read_text("utf-8")
    papers = dict(zip(Shades._fields, re.findall(r"--paper: (#\w{6});", style), strict=True))
    return getattr(LANES, scheme), papers[scheme]


@pytest.mark.parametrize(("table", "scheme"), EVERY)
def test_every_fill_or_edge_has_contrast_with_what_is_behind_it(table, scheme):
    low = {
        (look["name"], ground): round(contrast(look[scheme]["edge"] or look[scheme]["fill"], ground), 2)
        for look in page_looks(TABLES[table])
        for ground in behind(scheme)
    }
    assert {where: ratio for where, ratio in low.items() if ratio < CONTRAST} == {}


@pytest.mark.parametrize(("table", "scheme"), EVERY)
def test_a_part_has_the_colour_of_pictures_on_the_page(table, scheme):
    """Nobody takes a fill for that of another part: yellow is not brown on light paper."""
    faces = {look.name: look.face for look in TABLES[table]}
    others = {
        look["name"]: round(distance, 1)
        for look in page_looks(TABLES[table])
        if faces[look["name"]] in _FILLS  # hollow boxes have little of their colour
        and (distance := np.linalg.norm(lab(look[scheme]["fill"], "all cones") - lab(faces[look["name"]], "all cones")))
        > SAME
    }
    assert others == {}


@pytest.mark.parametrize(("table", "scheme"), EVERY)
def test_looks_of_one_table_can_be_told_apart_by_colour_blind_readers_too(table, scheme):
    alike = []
    for one, other in combinations(page_looks(TABLES[table]), 2):
        (fill, edge, _), (other_fill, other_edge, _) = (look[scheme].values() for look in (one, other))
        if edge and other_edge:  # by their hatch, or by what they are filled with
            same = (
                one["hatch"] == other["hatch"] and apart(edge, other_edge) < APART and apart(fill, other_fill) < APART
            )
        else:  # of one colour only where a hatch says which of the two it is
            same = apart(fill, other_fill) < APART and not (fill == other_fill and one["hatch"] != other["hatch"])
        if same:
            alike.append((one["name"], other["name"]))
    assert alike == []


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
    with pytest.raises(OptionError, match="start: expected a window of cycles within the run"):
        window(lock_step(), start, end)


def lightness(colour):
    """CIE L* of an sRGB colour, D65."""
    return lab(colour, "all cones")[0]


def test_looks_differ_in_grey_or_by_their_hatching():
    for one, other in combinations(LOOKS, 2):
        assert abs(lightness(one.face) - lightness(other.face)) >= 8 or one.hatch != other.hatch, (one, other)


def test_looks_differ_in_print_by_lightness_or_hatching_and_passes_by_lightness():
    greys = [lightness(in_grey(look.face, True)) for look in LOOKS]
    passes = {LOOKS.index(kind.row.look) for kind in SpanKind if kind.row.of_pass is not None}
    for one, other in combinations(range(len(LOOKS)), 2):
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
