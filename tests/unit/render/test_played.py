"""One execution as a page plays it: boxes, stashes, what moves, steps, and what is left out."""

import numpy as np
import pytest

from ipusim.analysis.executions import find_execution
from ipusim.analysis.phases import execution_phases
from ipusim.app.render.page import played
from ipusim.base.errors import OutputError
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.timeline import Timeline
from tests.pages import data_of, rows
from tests.timelines import folded, timeline_by_hand


def test_two_stages_and_four_micro_batches_under_grouped_are_played_as_they_ran():
    timeline = timeline_by_hand(mapping=(0, 1), count=4)
    data, columns = data_of(timeline, kept_bytes=(8, 16))
    boxes = rows(columns, "kind", "lane", "stage", "micro_batch", "start", "end")
    passes = [(kind, lane, stage, batch) for kind, lane, stage, batch, *_ in boxes if kind <= SpanKind.BACKWARD]
    forward, backward = int(SpanKind.FORWARD), int(SpanKind.BACKWARD)
    assert sorted(passes) == [
        (kind, lane, lane, batch) for kind in (forward, backward) for lane in (0, 1) for batch in range(4)
    ]
    assert [(each["label"], each["detail"]) for each in data["lanes"]] == [("IPU 0", "stage 0"), ("IPU 1", "stage 1")]
    assert data["kept_bytes"] == [8, 16]
    times = {row[:4]: row[4:] for row in boxes}
    slots = rows(columns, "slot.lane", "slot.micro_batch", "slot.start", "slot.filled", "slot.used", "slot.end")
    assert sorted(slots) == [
        (lane, batch, *times[forward, lane, lane, batch], *times[backward, lane, lane, batch])
        for lane in (0, 1)
        for batch in range(4)
    ]


def test_tensors_move_in_the_copy_behind_the_time_step_that_made_them():
    timeline = timeline_by_hand(mapping=(0, 1), count=4)
    _, columns = data_of(timeline)
    copies = [
        (int(start), int(end))
        for start, end, kind in zip(timeline.start, timeline.end, timeline.kind, strict=True)
        if kind == SpanKind.EXCHANGE
    ]
    moves = rows(columns, "move.kind", "move.from", "move.to", "move.leaves", "move.arrives")
    assert {move[:3] for move in moves} == {(int(SpanKind.FORWARD), 0, 1), (int(SpanKind.BACKWARD), 1, 0)}
    assert len(moves) == 8
    assert {move[3:] for move in moves} <= set(copies)


def test_a_step_ends_behind_each_time_step_the_pipeline_and_the_execution():
    timeline = timeline_by_hand(mapping=(0, 1), count=4, executions=3)
    data, _ = data_of(timeline, number=1)
    execution = find_execution(timeline, 1)
    assert data["time_steps"]["number"] == list(range(timeline.info.time_steps))
    assert data["time_steps"]["start"][0] == 0
    assert data["steps"] == [*data["time_steps"]["start"], data["pipeline_end"], data["end"]]
    assert (data["pipeline_end"], data["end"]) == (execution.makespan_cycles, execution.execution_cycles)
    assert [(phase["name"], phase["end"] - phase["start"]) for phase in data["phases"]] == [
        (phase.name, phase.cycles) for phase in execution_phases(timeline, 1)
    ]


def test_the_lanes_of_an_ipu_with_several_stages_name_them_and_waits_are_no_boxes():
    data, columns = data_of(timeline_by_hand(mapping=(0, 1, 0), count=6))
    assert data["lanes"][0] == {"label": "IPU 0", "detail": "stages 0, 2", "several": True}
    assert not data["lanes"][1]["several"]
    assert int(SpanKind.SYNC_WAIT) not in columns["kind"]


def test_in_inference_nothing_waits():
    data, columns = data_of(timeline_by_hand(mapping=(0, 1), count=4, training=False, update=0))
    assert not data["training"]
    assert not len(columns["slot.start"])
    assert len(columns["start"])


def test_what_repeats_itself_is_left_out_and_counted(monkeypatch):
    monkeypatch.setattr(played, "_MOST_SPANS", 0)
    data, _ = data_of(folded(timeline_by_hand(mapping=(0, 1, 2), count=60)))
    (gap,) = data["gaps"]
    assert data["notes"] == [f"Left out: {gap['words']}, each like the parts before and after."]


def test_what_cannot_be_played_is_refused(monkeypatch):
    some = timeline_by_hand(mapping=(0, 1), count=4)
    columns = some.columns | {"start": np.zeros(len(some)), "end": np.zeros(len(some))}
    nothing = Timeline(some.info, np.stack([*columns.values()]).T.astype(np.int64))
    with pytest.raises(OutputError, match="expected an execution that takes time, got execution 0 of 0 cycles"):
        data_of(nothing)
    monkeypatch.setattr(played, "_MOST_PLAYED_SPANS", 10)
    with pytest.raises(OutputError, match="expected an execution of at most 10 spans to play, got an execution of "):
        data_of(timeline_by_hand(mapping=(0, 1), count=4))
