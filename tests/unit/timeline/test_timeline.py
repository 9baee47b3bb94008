"""The recorder's columns become a Timeline, which saves and loads without loss."""

import io
import pickle
from dataclasses import replace

import numpy as np
import pytest

from ipusim.base.errors import TimelineError
from ipusim.pipeline.ops import Pass
from ipusim.timeline.kinds import KIND_OF_PASS, LOOKS, PASS_OF_KIND, USES, SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.timeline import ALL_IPUS, NONE, Span, Timeline, TimelineInfo

INFO = TimelineInfo(
    name="a",
    system="m2000",
    clock_hz=1_325_000_000,
    ipus=(0, 1),
    selection_order="SNAKE",
    schedule="grouped",
    training=True,
    stages=("s0", "s1"),
    mapping=(0, 1),
    count=4,
    overlap=4,
    time_steps=8,
    executions=2,
    executions_per_step=2,
    micro_batch_size=32,
    links=("0→1 rung", "1→0 rung"),
)


def recorded():
    recorder = Recorder(9)
    forward = recorder.describe(Description(SpanKind.FORWARD, 0, 0, 3), Description(SpanKind.FORWARD, 1, 1, 2))
    host = recorder.describe(Description(SpanKind.HOST, link=1, bytes=7))
    late = recorder.record(forward + 1, 10, 5, 9, NONE)
    recorder.record(host, NONE, 0, 12, late)
    recorder.record(forward, 9, 0, 3, NONE)
    return recorder.timeline(INFO)


def test_rows_are_sorted_by_start_and_end_and_causes_follow():
    assert list(recorded()) == [
        Span(0, 3, SpanKind.FORWARD, 0, 0, 3, 0, 1, NONE, 0, NONE, 0),
        Span(0, 12, SpanKind.HOST, NONE, NONE, NONE, NONE, NONE, 1, 7, 2, 0),
        Span(5, 9, SpanKind.FORWARD, 1, 1, 2, 1, 1, NONE, 0, NONE, 0),
    ]


def test_rows_of_the_same_cycles_have_one_order():
    """Whichever event came first; of those that take no time, causes come before what they bring about."""

    def rows(order):
        recorder, numbers = Recorder(9), {}
        passes = recorder.describe(*(Description(SpanKind.FORWARD, ipu, ipu, 0) for ipu in range(4)))
        links = {}
        recorder.record(passes, 0, 0, 1, NONE)
        for name in order:
            if name in "LM":  # as links are, which are described when they are first used
                links[name] = recorder.describe(Description(SpanKind.LINK, link="LM".index(name)))
        for name in order:
            if name in links:
                numbers[name] = recorder.record(links[name], 0, 0, 5, NONE)
            else:
                ipu = int(name)
                cause = numbers["3"] if name == "2" else NONE
                numbers[name] = recorder.record(passes + ipu, 0, 5, 5 if ipu > 1 else 9, cause)
        return list(recorder.timeline(INFO))

    orders = ["LM3201", "ML1302", "3M20L1", "01L32M"]
    assert len({tuple(rows(order)) for order in orders}) == 1
    assert [row.ipu for row in rows(orders[0])] == [0, NONE, NONE, 3, 2, 0, 1]
    assert rows(orders[0])[4].cause == 3


def test_saved_and_loaded_are_equal_and_so_are_the_bytes(tmp_path):
    timeline = recorded()
    buffers = io.BytesIO(), io.BytesIO()
    for buffer in buffers:
        timeline.save(buffer)
    assert buffers[0].getvalue() == buffers[1].getvalue()
    buffers[0].seek(0)
    assert Timeline.load(buffers[0]) == timeline
    path = tmp_path / "timeline.npz"
    timeline.save(path)
    loaded = Timeline.load(path)
    assert (loaded, loaded.info) == (timeline, INFO)


def test_a_timeline_is_read_only_and_compares():
    timeline = recorded()
    with pytest.raises(ValueError, match="read-only"):
        timeline.start[0] = 4
    other = np.array([tuple(span) for span in timeline])
    other[0, 1] += 1
    assert timeline != Timeline(INFO, other)
    assert timeline != "a timeline"
    assert repr(timeline) == "<Timeline of a: 3 spans, 12 cycles>"
    assert len(Timeline(INFO, np.empty((0, 11)))) == Timeline(INFO, np.empty((0, 11))).makespan_cycles == 0


def test_passes_and_their_spans_name_each_other():
    assert [SpanKind[each.name] for each in Pass] == KIND_OF_PASS.tolist()
    assert PASS_OF_KIND[KIND_OF_PASS].tolist() == list(Pass)
    assert (PASS_OF_KIND >= 0).sum() == len(Pass)


def test_the_numbers_of_the_kinds_leave_no_gap_and_their_names_are_their_own():
    assert sorted(SpanKind) == list(range(len(SpanKind)))
    assert all(kind.row.doc.endswith(".") and kind.row.category for kind in SpanKind)
    assert all((kind.row.look is not None) == kind.row.track.is_on_ipu for kind in SpanKind)
    assert len({use.name for use in USES}) == len(USES)
    assert len({look.name for look in LOOKS}) == len(LOOKS)


def test_a_file_has_one_number_for_all_ipus_and_for_none(tmp_path):
    recorder = Recorder(4)
    sync = recorder.describe(Description(SpanKind.SYNC, ALL_IPUS))
    link = recorder.describe(Description(SpanKind.LINK, link=0))
    recorder.record(link, 0, 3, 5, recorder.record(sync, 0, 0, 3, NONE))
    timeline = recorder.timeline(INFO)
    assert len(recorder.timeline(INFO)) == 0, "the log takes more memory than the Timeline, and is let go of"
    assert timeline.ipu.tolist() == [ALL_IPUS, NONE]
    assert ALL_IPUS != NONE
    timeline.save(tmp_path / "timeline.npz")
    with np.load(tmp_path / "timeline.npz") as arrays:
        assert arrays["ipu"].tolist() == [-1, -1]
    assert Timeline.load(tmp_path / "timeline.npz") == timeline


#: What an info counts: of each there is at least one.
COUNTED = [name for name, value in vars(INFO).items() if type(value) is int]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        *(({name: 0}, f"info has {name} 0") for name in COUNTED),
        ({"replicas": 3}, "info of IPUs, stages, mapping and replicas that do not go together"),
    ],
)
def test_a_file_of_a_run_that_cannot_be_is_refused(change, told):
    file = io.BytesIO()
    Timeline(replace(INFO, **change), recorded()._table).save(file)
    file.seek(0)
    with pytest.raises(TimelineError, match=f"got another format: {told}$"):
        Timeline.load(file)


def test_columns_are_written_when_they_are_read():
    """A column costs its writing when somebody reads it; a copy in another process has all of them."""
    timeline = recorded()
    assert vars(timeline).keys().isdisjoint(Span._fields)
    starts = timeline.start.tolist()
    assert vars(timeline).keys() & set(Span._fields) == {"start"}
    assert pickle.loads(pickle.dumps(timeline)) == timeline == recorded()
    assert timeline.start.tolist() == starts
    with pytest.raises(AttributeError, match="begin"):
        _ = timeline.begin
