"""Micro-batch numbers in the boxes of a trace: all of a row's, or a regular selection with its ends."""

import re
from collections import defaultdict

import numpy as np
import pytest

from ipusim.app.render.execution_trace import execution_trace
from ipusim.app.render.window import Window, execution_window, phase_window
from ipusim.app.scenario import load_job
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind
from tests.effort import sampled, slowest
from tests.scenarios import SCENARIOS

PASSES = (SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.RECOMPUTE)


def written(timeline, shown):
    """For each row and kind of pass, rising: the micro-batches whose numbers are drawn, and those in the window."""
    drawn, there = defaultdict(set), defaultdict(set)
    passes = timeline.rows(*PASSES)
    for row in passes[(timeline.start[passes] >= shown.start) & (timeline.end[passes] <= shown.end)]:
        there[int(timeline.ipu[row]), int(timeline.kind[row])].add(int(timeline.micro_batch[row]))
    for text in execution_trace(timeline, shown.start, shown.end).axes[-1].texts:
        if re.fullmatch(r"(\d+\.)?\d+", text.get_text()):
            (x, y), number = text.get_position(), int(text.get_text().split(".")[-1])
            same = passes[(timeline.ipu[passes] == int(y)) & (timeline.micro_batch[passes] == number)]
            row = same[np.abs((timeline.start[same] + timeline.end[same]) / 2 - x).argmin()]
            drawn[int(y), int(timeline.kind[row])].add(number)
    return {key: (sorted(drawn[key] & held), sorted(held)) for key, held in there.items()}


def is_regular(drawn, there):
    """Whether all, every second, fifth, tenth and so on, always with the first and the last, are drawn; or none."""
    strides = [factor * power for power in (1, 10, 100) for factor in (1, 2, 5)]
    ends = {there[0], there[-1]}
    choices = [sorted({number for number in there if number % stride == 0} | ends) for stride in strides]
    return not drawn or drawn in choices


ALL = ("tutorial_step3_pipelining", "recomputation", "optimizer_state_offload", "overlapped_io", "concurrent_stages")


@pytest.mark.parametrize("name", ALL)
def test_numbers_do_not_stop_at_nine(name):
    timeline = execute(load_job(SCENARIOS / f"{name}.yaml", ["steps=1", "numerics=off"])).timeline
    found = written(timeline, execution_window(timeline))
    assert any(drawn for drawn, _ in found.values())
    for key, (drawn, there) in found.items():
        assert not drawn or drawn == there, key


@sampled(2)
@pytest.mark.parametrize(
    ("schedule", "count"),
    [
        ("grouped", 8),
        ("interleaved", 16),
        ("sequential", 24),
        ("interleaved", 40),
        ("grouped", 64),
        ("grouped", 104),
        ("sequential", 160),
        ("interleaved", 240),
        *(pytest.param("grouped", count, marks=slowest) for count in (16, 24, 40, 160, 240)),
        *(pytest.param("interleaved", count, marks=slowest) for count in (8, 24, 64, 104, 160)),
        *(pytest.param("sequential", count, marks=slowest) for count in (8, 16, 40, 64, 104, 240)),
    ],
)
def test_each_row_has_all_numbers_or_a_regular_selection_or_none(lock_step, schedule, count):
    timeline = lock_step(schedule, mapping=(0, 1, 2, 3), count=count, forward=[100, 60, 200, 30], backward=170)
    for shown in (execution_window(timeline), phase_window(timeline, "main")):
        for key, (drawn, there) in written(timeline, shown).items():
            assert is_regular(drawn, there), (key, drawn, there)


def test_of_too_many_numbers_there_is_a_selection(lock_step):
    timeline = lock_step("grouped", mapping=tuple(range(32)), count=160, training=False, sync=0, exchange=0)
    found = written(timeline, Window(5_000, 10_000))
    assert all(0 < len(drawn) < len(there) for drawn, there in found.values())
    assert all(is_regular(drawn, there) for drawn, there in found.values())
