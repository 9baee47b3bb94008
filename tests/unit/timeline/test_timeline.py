"""The recorder's columns become a Timeline, saved and loaded without loss, with blocks of rows that repeat."""

import io
import pickle
from dataclasses import replace

import numpy as np
import pytest

from ipusim.base.errors import FileError, TimelineError
from ipusim.pipeline.ops import Pass
from ipusim.timeline.file import read_repeats
from ipusim.timeline.kinds import KIND_OF_PASS, LOOKS, PASS_OF_KIND, USES, SpanKind
from ipusim.timeline.recorder import Description, Recorder
from ipusim.timeline.repeats import block_between, with_copies
from ipusim.timeline.timeline import ALL_IPUS, NONE, Span, Timeline, TimelineInfo
from tests.timelines import folded, lay_out_timeline

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


def starts(timeline):
    """When the first stage begins each micro-batch of the first execution."""
    rows = timeline.rows(SpanKind.FORWARD)
    rows = rows[(timeline.stage[rows] == 0) & (timeline.execution[rows] == 0)]
    return dict(zip(timeline.micro_batch[rows].tolist(), timeline.start[rows].tolist(), strict=True))


@pytest.fixture(scope="module")
def run():
    """A run of 40 micro-batches in each of 6 executions, and the same with blocks."""
    whole = lay_out_timeline(count=40, executions=6)
    return whole, folded(whole)


@pytest.fixture(scope="module")
def long():
    """A run of 64 micro-batches, and four of them as a block of its copies; the row where that begins."""
    whole = lay_out_timeline(count=64)
    begin = starts(whole)
    once = block_between(whole.columns, begin[40], begin[44], micro_batches=4, time_steps=4, executions=0)
    return whole, with_copies(whole.columns, once), once.first


def test_rows_with_causes_far_back_in_a_block_are_not_folded(long):
    whole, block, first = long
    cause = whole.columns["cause"].copy()
    cause[-1] = first
    other = Timeline(whole.info, np.stack([*(whole.columns | {"cause": cause}).values()], axis=1))
    assert other.fold_copies([block]) is None
    assert other.fold_copies([block._replace(times=1)]).expanded() == other


def test_a_block_is_where_the_next_spans_are_the_same_and_nowhere_else():
    timeline = lay_out_timeline(count=16)
    begin = starts(timeline)
    every = {"micro_batches": 1, "time_steps": 1, "executions": 0}
    assert block_between(timeline.columns, begin[4], begin[5], **every) is not None
    assert block_between(timeline.columns, begin[0], begin[1], **every) is None, "the pipeline fills"
    assert block_between(timeline.columns, begin[4], begin[5], **every | {"micro_batches": 2}) is None
    assert block_between(timeline.columns, begin[4], begin[4], **every) is None, "of no spans"
    other = timeline.columns
    last = block_between(other, begin[4], begin[5], **every).last
    for name in Span._fields:
        changed = {**other, name: other[name].copy()}
        changed[name][last] += 1
        assert block_between(changed, begin[4], begin[5], **every) is None, name


def test_causes_of_a_window_are_rows_of_it(run):
    whole = run[0]
    causes = np.arange(len(whole)) - 1
    table = np.stack([causes if name == "cause" else getattr(whole, name) for name in Span._fields], axis=1)
    some = Timeline(whole.info, table).spans(1_000, 2_000)
    assert some.cause.tolist() == [NONE, *range(len(some) - 1)]


def test_a_run_with_block_ends_expanded_is_the_same_with_rows_at_both_ends(run):
    whole, short = run
    with_ends = short.with_block_ends_expanded()
    assert with_ends.expanded() == whole
    assert len(short) < len(with_ends) < len(whole)
    present = set(with_ends.execution[with_ends.weights_of_executions == 1].tolist())
    assert {0, 4, 5} <= present
    chosen = next(number for number in range(6) if number not in present)
    other = short.with_block_ends_expanded(chosen)
    assert other.expanded() == whole
    assert (other.weights_of_executions[other.execution == chosen] == 1).all()
    assert short.with_block_ends_expanded(0) is with_ends, "there as it is"
    assert whole.with_block_ends_expanded() is whole


@pytest.mark.parametrize(("most_spans", "rows"), [(0, False), (10_000, True)])
def test_around_a_window_copies_are_rows_up_to_a_number_of_spans(run, most_spans, rows):
    whole, short = run
    some = short.expanded_around(0, whole.makespan_cycles, most_spans, 3)
    assert some.expanded() == whole
    assert (some == whole) is rows
    for block in some.repeats:
        if not block.executions:
            assert set(range(3)) < set(some.micro_batch[: block.first].tolist())


BLOCKS = [
    ([(0, 10, 1, 5, 1, 1, 0)], "a block of rows 0 to 10, 1 times"),
    ([(4, 4, 3, 5, 1, 1, 0)], "a block of rows 4 to 4, 3 times"),
    ([(0, 101, 3, 5, 1, 1, 0)], "a block of rows 0 to 101, 3 times"),
    ([(-1, 10, 3, 5, 1, 1, 0)], "a block of rows -1 to 10, 3 times"),
    ([(0, 10, 3, -5, 1, 1, 0)], "a block of rows 0 to 10, 3 times"),
    ([(0, 10, 3, 5, 1, 1, 0), (5, 15, 3, 5, 1, 1, 0)], "blocks that overlap in row 5"),
    ([(0, 10, 3, 5, 1, 1, 0), (0, 10, 3, 5, 1, 1, 0)], "blocks that overlap in row 0"),
    ([(20, 30, 3, 5, 1, 1, 0), (0, 10, 3, 5, 1, 1, 0)], "blocks out of order"),
    ([(0, 10, 2**62, 5, 1, 1, 0)], f"a block of {2**62} copies"),
    ([(0, 10, 2**40, 2**40, 1, 1, 0)], f"a block of {2**40} copies"),
    ([(0, 10, 2**31, 1, 0, 0, 1), (0, 5, 2**31, 1, 1, 1, 0)], f"a block of {2**31} copies"),
    ([(number, number + 1, 2, 1, 0, 0, 0) for number in range(4097)], "4097 blocks, expected 1 to 4096"),
    ([], "blocks of float64 and shape (0,)"),
]


@pytest.mark.parametrize(("blocks", "text"), BLOCKS)
def test_blocks_that_cannot_be_are_refused(blocks, text, refused):
    rows = 5000 if len(blocks) > 4096 else 100
    refused(FileError, text, lambda: read_repeats(np.array(blocks), rows))


FORGED = {
    "cycles": (1, "copies of the block of rows 22 to 30 that overlap"),
    "times": (38, "a block from row 22 on that does not end before row 30"),
    "micro_batches": (40, "blocks whose copies point outside the run: micro_batch"),
    "time_steps": (40, "blocks whose copies point outside the run: time_step"),
    "executions": (7, "blocks whose copies point outside the run: execution"),
    "last": (55, "a block of rows 22 to 55, 37 times"),
}


@pytest.fixture(scope="module")
def one_execution():
    """A run of 40 micro-batches with blocks."""
    return folded(lay_out_timeline(count=40))


@pytest.mark.parametrize("name", FORGED)
def test_files_whose_blocks_lie_are_refused(name, one_execution, tmp_path):
    number, text = FORGED[name]
    timeline = one_execution
    (block,) = timeline.repeats
    table = np.array(list(timeline))
    path = tmp_path / "timeline.npz"
    Timeline(timeline.info, table, [block]).save(path)
    assert Timeline.load(path) == timeline
    Timeline(timeline.info, table, [block._replace(**{name: number})]).save(path)
    with pytest.raises(TimelineError) as refused:
        Timeline.load(path)
    assert str(refused.value).endswith(f"got another format: {text}")


def test_a_file_of_rows_that_begin_within_the_copies_before_them_is_refused(one_execution, tmp_path):
    timeline = one_execution
    (block,) = timeline.repeats
    table = np.array(list(timeline))
    table[block.last :, Span._fields.index("micro_batch")] = 0
    path = tmp_path / "timeline.npz"
    Timeline(timeline.info, table, [block]).save(path)
    with pytest.raises(TimelineError, match=r"rows after a block with micro_batch inside the block$"):
        Timeline.load(path)
