"""Blocks of rows that happen several times: what they stand for, and which of a file are refused."""

import numpy as np
import pytest

from ipusim.base.errors import FileError, TimelineError
from ipusim.timeline.file import read_repeats
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.repeats import block_between, with_copies
from ipusim.timeline.timeline import NONE, Span, Timeline
from tests.timelines import folded, lay_out_timeline


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
