"""A measured step beside its simulation: each part of the difference is what was put into the measurements.

Two equal stages run GPipe with four micro-batches: F takes 10 us, B 20, an update 5. Rank 1 ends its last F at 50 and
its last B at 130, rank 0 ends its last B at 150. What a copy takes is on that way twice: before the first F of rank 1
and before the last B of rank 0. All else is put before or into backward passes of rank 1, which follow each other.
"""

from collections.abc import Iterator

import pytest

from ipusim.analysis.causes import idle_causes
from ipusim.analysis.critical_path import critical_path_of
from ipusim.analysis.idle_spans import CAUSES
from ipusim.base.errors import FileError
from ipusim.timeline.time_parts import Idle
from tests.trace_files import Event, replayed

COUNT, FORWARD, BACKWARD, UPDATE = 4, 10.0, 20.0, 5.0


def step(begin: float, copy: float, wait: float, jitter: float, slower: float, faster: float = 0.0) -> list[Event]:
    """Return a step by hand: what each pass waits for, one after the other."""
    events, made = [], {}
    at = begin
    for number in range(COUNT):
        events.append((0, f"PP:0F{number}", at, FORWARD))
        at = made[number] = at + FORWARD
    at = begin
    for number in range(COUNT):
        at = max(at, made[number] + copy)
        events.append((1, f"PP:1F{number}", at, FORWARD))
        at += FORWARD
    for number in range(COUNT):
        at += wait * (number == 2)
        length = BACKWARD + slower + jitter * (number == 1)
        events.append((1, f"PP:1B{number}", at, length))
        at = made[number] = at + length
    events.append((1, "Optimizer.step#SGD.step", at, UPDATE))
    at = 0.0
    for number in range(COUNT):
        at = max(at, made[number] + copy - faster * (number == COUNT - 1))
        events.append((0, f"PP:0B{number}", at, BACKWARD))
        at += BACKWARD
    events.append((0, "Optimizer.step#SGD.step", at, UPDATE))
    return events


def measured(copy: float, **parts: float) -> Iterator[Event]:
    """Yield five steps: two without the parts, one with them, and two in which rank 1 waits long before a pass."""
    none = dict.fromkeys(("wait", "jitter", "slower", "faster"), 0.0)
    for number, of in enumerate([none, none, none | parts, none | {"wait": 900.0}, none | {"wait": 950.0}]):
        yield from step(10_000.0 * number, copy, **of)


@pytest.mark.parametrize(
    ("copy", "parts", "expected"),
    [
        (0, {}, [0, 0, 0, 0, 0]),
        (3, {}, [6, 0, 0, 0, 0]),
        (3, {"wait": 7}, [6, 7, 0, 0, 0]),
        (3, {"jitter": 9}, [6, 0, 9, 0, 0]),
        (3, {"slower": 4}, [6, 0, 0, 16, 0]),
        (3, {"slower": 4, "faster": 2}, [6, 0, 0, 16, -2]),
        (3, {"wait": 7, "jitter": 9, "slower": 4, "faster": 2}, [6, 7, 9, 16, -2]),
    ],
)
def test_each_part_is_what_was_put_in(copy, parts, expected):
    found = replayed(measured(copy, **parts))
    hz = found.measured_run.timeline.info.clock_hz
    assert [cycles * 1_000_000 / hz for cycles in found.parts.values()] == pytest.approx(expected, abs=0.01)
    assert found.simulated_run.timeline.makespan_cycles * 1_000_000 / hz == pytest.approx(155, abs=0.01)
    times = [run.timeline.makespan_cycles for run in (found.measured_run, found.simulated_run)]
    assert sum(found.parts.values()) == times[0] - times[1]


def test_a_rank_waits_for_its_host_where_it_could_run_and_for_copies_where_tensors_come():
    timeline = replayed(measured(3, wait=7)).measured_run.timeline
    us = timeline.info.clock_hz / 1_000_000
    idle = dict(zip(CAUSES, idle_causes(timeline).cycles.T / us, strict=True))
    # Rank 0 waits for copies before its first B, and the one that rank 1 has begun late; rank 1 before its first F.
    assert idle[Idle.HOST] == pytest.approx([0, 7], abs=0.01)
    assert idle[Idle.COPIES] == pytest.approx([6, 3], abs=0.01)
    path = critical_path_of(timeline)
    assert int((timeline.end - timeline.start)[path.rows].sum()) == timeline.makespan_cycles


def test_clocks_that_differ_by_more_than_sends_are_shifted():
    events = [(rank, name, at + 1000 * rank, us) for rank, name, at, us in measured(3, wait=7)]
    found = replayed(events)
    hz = found.measured_run.timeline.info.clock_hz
    assert [cycles * 1_000_000 / hz for cycles in found.shifts.values()] == pytest.approx([0, -1000], abs=0.01)
    assert [cycles * 1_000_000 / hz for cycles in found.parts.values()] == pytest.approx([6, 7, 0, 0, 0], abs=0.01)
    said = "Tensors of IPU 1 usually arrive before the end of their pass: the IPU's clock is shifted by -1 ms. Sends"
    assert any(words.startswith(said) for words in found.words())


def test_a_send_in_the_span_of_a_pass_is_behind_that_pass():
    longer = [(rank, name, at, us + 2 * name.startswith("PP:0F")) for rank, name, at, us in measured(0)]
    late = [(rank, name, at * 2, us) for rank, name, at, us in longer]
    found = replayed(late)
    assert (
        sum(found.parts.values())
        == found.measured_run.timeline.makespan_cycles - found.simulated_run.timeline.makespan_cycles
    )


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([*measured(3), (0, "PP:0F0", 15.0, 1.0)], "expected passes side by side"),
        (
            [(0, "PP:0F0", 50, 9), (1, "PP:1F0", 20, 9), (0, "PP:0B0", 10, 9), (1, "PP:1B0", 35, 9)],
            "before the pass of stage",
        ),
        ([(0, "PP:0F0", 0, 9), (0, "PP:(0F1;1B0)OVERLAP_F_B", 10, 9), (0, "PP:0B0", 30, 9)], "overlapped pairs"),
        ([(0, "PP:0F0", 0, 9), (0, "PP:0F0", 10, 9), (0, "PP:0B0", 30, 9)], "once in a step to replay, got forward"),
        ([(0, "PP:0F0", 0, 9), (1, "PP:0F1", 0, 9)], "expected one rank of each stage to replay, got 2 of stage 0"),
    ],
)
def test_what_is_no_step_of_one_pipeline_is_refused(events, message):
    with pytest.raises(FileError, match=message):
        replayed(events)
