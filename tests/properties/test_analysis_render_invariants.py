"""What holds of every Timeline, of every table, and of labels wherever they want to be."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipusim.analysis.run_times import run_times_of
from ipusim.app.render.boxes import bin_edges, share_boxes, span_boxes
from ipusim.app.render.lettering import space_out
from ipusim.app.render.narrow import legible_boxes
from ipusim.app.render.style import ALWAYS_SHOWN
from ipusim.app.render.tables import Table
from ipusim.app.render.window import window
from tests.effort import share
from tests.printed_tables import assert_whole


@st.composite
def arguments(draw):
    """Arguments of the builder of hand-made Timelines."""
    stages = draw(st.integers(2, 4))
    schedule = draw(st.sampled_from(["grouped", "interleaved", "sequential", "sharded"]))
    training = draw(st.booleans())
    overlap = {"grouped": 2 * stages if training else stages, "interleaved": stages}.get(schedule, 1)
    cycles = st.lists(st.integers(1, 900), min_size=stages, max_size=stages)
    return {
        "schedule": schedule,
        "mapping": tuple(draw(st.permutations(range(stages)))),
        "count": overlap * draw(st.integers(1, 3)),
        "training": training,
        "recompute": training and schedule in ("grouped", "interleaved") and draw(st.booleans()),
        "forward": draw(cycles),
        "backward": draw(cycles),
        "update": draw(st.integers(0, 400)),
        "sync": draw(st.integers(0, 50)),
        "exchange": draw(st.integers(0, 300)),
        "infeed": draw(st.integers(0, 80)),
        "host_wait": draw(st.integers(0, 80)),
        "outfeed": draw(st.integers(0, 80)),
        "executions": draw(st.integers(1, 3)),
        "ipus": tuple(range(4)) if stages == 3 else None,
        "clock_hz": draw(st.sampled_from([1_330_000_000, 1_600_000_000, 1_850_000_000])),
    }


@settings(max_examples=share(60), deadline=None)
@given(arguments())
def test_bubbles_agree_with_each_other(lock_step, chosen):
    found = run_times_of(lock_step(**chosen))
    bubble, stages = found.bubble, len(chosen["mapping"])
    assert 0 <= bubble.span_idle_fraction <= bubble.idle_fraction + 1e-12
    assert bubble.idle_fraction < 1
    assert bubble.idle_fraction + found.utilisation == pytest.approx(1)
    assert bubble.ideal_cycles <= bubble.rank_cost_cycles <= found.makespan_cycles
    assert bubble.overhead >= bubble.rank_cost_rate >= 0
    assert bubble.idle_cycles >= stages * (found.makespan_cycles - bubble.ideal_cycles)


def part_of(timeline, from_part, length):
    """Return a window on a part of a run, and its boxes."""
    whole = window(timeline)
    start = int(whole.end * from_part)
    shown = window(timeline, start, start + max(int((whole.end - start) * length), 1))
    return shown, span_boxes(timeline, shown)


@settings(max_examples=share(40), deadline=None)
@given(arguments(), st.floats(1, 3000), st.floats(0, 0.9), st.floats(0.05, 1))
def test_shares_keep_every_area_in_every_window(lock_step, chosen, narrowest, from_part, length):
    timeline = lock_step(**chosen)
    shown, spans = part_of(timeline, from_part, length)
    boxes = share_boxes(spans, len(timeline.info.ipus), bin_edges(np.unique(timeline.start), shown, narrowest))
    for ipu in range(len(timeline.info.ipus)):
        for look in range(9):
            exact = (spans.end - spans.start)[(spans.ipu == ipu) & (spans.look == look)].sum()
            mine = (boxes.ipu == ipu) & (boxes.look == look)
            area = ((boxes.end - boxes.start) * (boxes.top - boxes.bottom))[mine].sum()
            assert area == pytest.approx(exact, rel=1e-9, abs=1e-6)


@settings(max_examples=share(80), deadline=None)
@given(arguments(), st.floats(1e-4, 0.06), st.floats(0, 0.9), st.floats(0.05, 1))
def test_what_is_made_wide_enough_stays_in_its_window_and_covers_nothing(
    lock_step, chosen, narrowest, from_part, length
):
    timeline = lock_step(**chosen)
    shown, spans = part_of(timeline, from_part, length)
    boxes, _ = legible_boxes(spans, shown, max(int(shown.cycles * narrowest), 1), 0.04)
    assert boxes.start.min() >= shown.start
    assert boxes.end.max() <= shown.end
    for ipu in range(len(timeline.info.ipus)):
        mine = np.flatnonzero(boxes.ipu == ipu)
        kept = set(boxes.look[mine]) & set(ALWAYS_SHOWN)
        assert kept == set(spans.look[spans.ipu == ipu]) & set(ALWAYS_SHOWN)
        left, right, low, high = (getattr(boxes, side)[mine] for side in ("start", "end", "bottom", "top"))
        beside = np.minimum(right[:, None], right) - np.maximum(left[:, None], left)
        above = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
        covered = (beside > 1e-6) & (above > 1e-9)
        np.fill_diagonal(covered, val=False)
        assert not covered.any()


labels = st.lists(st.tuples(st.floats(0, 1000), st.floats(1, 200)), min_size=1, max_size=8)


@given(labels)
def test_labels_keep_apart_and_inside(wanted):
    wanted.sort()
    centres, widths = zip(*wanted, strict=True)
    placed = space_out(centres, widths, 0.0, 1000.0)
    if placed is None:
        assert sum(widths) > 1000
        return
    left = [at - width / 2 for at, width in zip(placed, widths, strict=True)]
    right = [at + width / 2 for at, width in zip(placed, widths, strict=True)]
    assert left[0] >= -1e-6
    assert right[-1] <= 1000 + 1e-6
    assert all(end <= start + 1e-6 for end, start in zip(right, left[1:], strict=False))


@given(labels, st.lists(st.floats(0, 1), min_size=8, max_size=8))
def test_no_other_place_is_nearer(wanted, parts):
    wanted.sort()
    centres, widths = zip(*wanted, strict=True)
    placed = space_out(centres, widths, 0.0, 1000.0)
    if placed is None:
        return
    # Any other way to share the free room out: gaps before each label.
    gaps = sorted(part * (1000 - sum(widths)) for part in parts[: len(widths)])
    other, behind = [], 0.0
    for gap, width in zip(gaps, widths, strict=True):
        other.append(behind + gap + width / 2)
        behind += width
    cost = sum((at - centre) ** 2 for at, centre in zip(placed, centres, strict=True))
    assert cost <= sum((at - centre) ** 2 for at, centre in zip(other, centres, strict=True)) + 1e-3


WORDS = st.text("ab, →測.%", max_size=30).map(str.strip)

NUMBERS = st.from_regex(r"[-+]?[1-9][0-9,]{0,14}( cycles|%|)", fullmatch=True)


@st.composite
def tables(draw):
    count = draw(st.integers(2, 12))
    kinds = [draw(st.sampled_from([WORDS, NUMBERS])) for _ in range(count)]
    header = tuple(draw(st.text("abc ", min_size=1, max_size=25).filter(str.strip)).strip() for _ in range(count))
    rows = draw(st.lists(st.tuples(*kinds).filter(any), min_size=1, max_size=5))
    return Table("Rows", header, tuple(rows))


@settings(max_examples=share(50))
@given(tables(), st.integers(60, 160))
def test_every_cell_of_any_table_is_printed_whole_at_any_width(table, width):
    assert_whole(table, width)
