"""The colours of the page by number: contrast with what is behind them, and with each other for every reader's eyes."""

import re
from importlib.resources import files
from itertools import combinations

import numpy as np
import pytest

from ipusim.app.render.page.fills import _FILLS, LANES, Shades, page_looks
from ipusim.pipeline.holders import LAYERS
from ipusim.timeline.kinds import LOOKS
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
