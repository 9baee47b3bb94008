"""torch.distributed.pipelining's CSV: written as torch writes it, read back, and refused cell by cell."""

import re

import pytest

from ipusim.base.errors import CountError, FileError, PlanError, UnsupportedProgramError
from ipusim.pipeline.check import check_plan
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.features import Feature
from ipusim.schedules.named import schedule_of
from ipusim.schedules.registry import find
from ipusim.schedules.torch_csv import hang_when_blocking, write_torch_csv


@pytest.fixture
def read(tmp_path):
    """Return the Schedule of a file with some text."""

    def of(text):
        path = tmp_path / "mine.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return schedule_of("mine.csv", tmp_path)

    return of


@pytest.mark.parametrize(
    ("name", "mapping", "count", "text"),
    [
        ("zero_bubble_h1", (0, 1), 2, "0F0,0F1,,0I0,0W0,0I1,0W1\r\n,1F0,1I0,1F1,1I1,1W0,1W1\r\n"),
        ("gpipe", (0, 2), 1, "0F0,,,0B0\r\n\r\n,1F0,1B0\r\n"),
    ],
    ids=["idle cells are empty", "an IPU without stages is a rank without passes"],
)
def test_a_cell_is_what_torch_writes(name, mapping, count, text):
    assert write_torch_csv(find(name).order(PlanShape(mapping=mapping, micro_batches=count))) == text


@pytest.mark.parametrize("count", [1, 4, 9])
def test_inference_is_forward_passes_alone(read, count):
    shape = PlanShape(mapping=(0, 1, 2), micro_batches=count, training=False)
    found = read(write_torch_csv(find("gpipe").order(shape)))
    assert found.written == shape
    assert plan_of(found, shape).order.fifo_depths == ()
    with pytest.raises(UnsupportedProgramError, match=r"'mine\.csv' does not support training"):
        plan_of(found, PlanShape(mapping=(0, 1, 2), micro_batches=count))


def test_it_runs_point_to_point_or_in_lock_step_and_nothing_else_is_promised(read):
    whole, halves = read("0F0,,,0B0\n,1F0,1B0\n"), read("0F0,,,0I0,0W0\n,1F0,1I0,1W0\n")
    assert whole.syncs == (Sync.POINT_TO_POINT, Sync.LOCK_STEP)
    plain = {Feature.TRAINING, Feature.SEVERAL_IPUS, Feature.SEVERAL_STAGES}
    assert whole.supports == plain | {Feature.RECOMPUTE_INTERLEAVED}
    assert halves.supports == plain
    shape = PlanShape(mapping=(0, 1), micro_batches=1)
    assert [plan_of(whole, shape, sync).sync for sync in (None, *whole.syncs)] == [Sync.POINT_TO_POINT, *whole.syncs]
    with pytest.raises(CountError, match=r"^expected the number of micro-batches of mine\.csv, 1, got 2$"):
        plan_of(whole, PlanShape(mapping=(0, 1), micro_batches=2))
    with pytest.raises(UnsupportedProgramError, match=r"^expected stages on IPUs 0, 1, as in mine\.csv, got 1,"):
        plan_of(whole, PlanShape(mapping=(1, 0), micro_batches=1))


def test_torch_has_no_recomputation():
    order = find("grouped").order(PlanShape(mapping=(0, 1), micro_batches=4, recompute=True))
    with pytest.raises(PlanError, match=r"the passes F, B, I and W of torch, got R0\.0: leave out recomp"):
        write_torch_csv(order)


def test_copies_of_torchs_default_dump_are_those_of_the_passes_and_left_out(read):
    text = (
        "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
        "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1RESHARD,1REDUCE_GRAD\n"
    )
    found = read(text)
    shape = PlanShape(mapping=(0, 1), micro_batches=2)
    assert found.order(shape) == read("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n").order(shape)
    assert found.notes == (
        "mine.csv has 8 cells that send and receive: each copy runs where passes need the tensor, not at the place of "
        "its cell.",
        "mine.csv has cells UNSHARD, REDUCE_GRAD, RESHARD, which are skipped: the collectives of replicas follow from "
        "the scenario.",
    )


def test_forward_passes_that_torchs_1f1b_numbers_from_1_are_read_as_from_0(read):
    """Its last rank is the only one: a file in which a micro-batch is left out or comes too often stays as it is."""
    found = read("0F0,0F1,0B0,0B1\n1F1,1B0,1F2,1B1\n")
    shape = PlanShape(mapping=(0, 1), micro_batches=2)
    assert found.order(shape) == read("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n").order(shape)
    assert found.notes == (
        "mine.csv numbers the forward passes of stage 1 from 1, as torch's 1F1B does: read as from 0.",
    )
    for broken in ("0F1,0F2,0B0", "0F1,0F3,0B0,0B1", "0F1,0B1", "0F1,0F2"):
        assert read(broken).notes == ()
    with pytest.raises(FileError, match=r"expected each pass once, got 0F1 as in row 1, column 1$"):
        read("0F1,0F1,0B0,0B1")


EXPECTED = "expected a pass such as 0F0, 0B0, 1I3 or 1W3, or an empty cell, got"
TOGETHER = ": a forward and a full backward pass run in one slot, as in (0F7;7B3)OVERLAP_F_B"
FOLLOW = ': waits follow from the passes here; leave it out, as format="compute_only" does'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "0F0,0SEND_F0\n1RECV_F0",
            ", row 1, column 2: expected copies between the rows of a stage and its neighbour, got '0SEND_F0'",
        ),
        (
            "0F0,0F1\n,(1F0;1F1)OVERLAP_F_B",
            f", row 2, column 2: {EXPECTED} '(1F0;1F1)OVERLAP_F_B'{TOGETHER}",
        ),
        ("0F0,0F٣", f", row 1, column 2: {EXPECTED} '0F٣'"),
        ("0F0,٠SEND_F0", f", row 1, column 2: {EXPECTED} '٠SEND_F0'{FOLLOW}"),
        ("0F0,0SEND_F0,0WAIT_SEND_F0", f", row 1, column 3: {EXPECTED} '0WAIT_SEND_F0'{FOLLOW}"),
        (
            "0F0,0SEND_F0\n1RECV_F0,1F0,1RECV_F0",
            ", row 2, column 3: expected each copy once, got '1RECV_F0' again",
        ),
        (
            "0SEND_F0,0F0\n1RECV_F0,1F0",
            ", row 1, column 1: expected '0SEND_F0' after its pass F0.0 in row 1",
        ),
        (
            "1RECV_F0,0F0,0SEND_F0\n1F0",
            ", row 1, column 1: expected '1RECV_F0' before its pass F1.0 in row 2",
        ),
        (
            "0F0,0SEND_F0\n1F0,1RECV_F0",
            ", row 2, column 2: expected '1RECV_F0' before its pass F1.0 in row 2",
        ),
        (
            "0F0,0SEND_F0\n1F0",
            ": expected every copy that passes need, or none; got no '1RECV_F0' for F1.0",
        ),
        (
            "0F0\n1F0,(1F1;x;0B0)OVERLAP_F_B",
            f", row 2, column 2: {EXPECTED} '(1F1;x;0B0)OVERLAP_F_B'{TOGETHER}",
        ),
        ("0R0", f", row 1, column 1: {EXPECTED} '0R0'"),
        ("0F", f", row 1, column 1: {EXPECTED} '0F'"),
        ("0F" + "9" * 5000, f", row 1, column 1: {EXPECTED} '0F{'9' * 55}...'"),
        ("0F0,0F1,0F0", ", row 1, column 3: expected each pass once, got 0F0 as in row 1, column 1"),
        ("0F0\n1F0,0B0", ", row 2, column 2: expected stage 0 in one row, got a second row besides row 1"),
        ("0F0\n2F0", ": expected passes of stages 0 to 2, got none of stage 1"),
        ("999999999F0", ": expected passes of stages 0 to 999999999, got none of stage 0"),
        ("", ": expected a row of passes such as 0F0 for each rank, got none"),
        (",,\n\n", ": expected a row of passes such as 0F0 for each rank, got none"),
        (b"0F0,\xff", ": expected text in UTF-8: invalid start byte at byte 4"),
        ('0F0\n"0F1', ": line 2: expected cells separated by commas: unexpected end of data"),
    ],
)
def test_what_is_no_pass_is_refused_with_its_row_and_column(read, text, message, refused):
    refused(FileError, f"'mine.csv'{message}", lambda: read(text))


def test_spaces_a_byte_order_mark_and_any_end_of_line_are_taken(read):
    found = read(b"\xef\xbb\xbf0F0, ,0B0\r1F0 ,1B0,\r\r")
    assert found.written == PlanShape(mapping=(0, 1), micro_batches=1)


def test_a_file_that_is_not_there_and_one_that_is_too_large(tmp_path, monkeypatch):
    with pytest.raises(FileError, match=r"^'no\.csv': cannot read .*no\.csv: No such file or directory$"):
        schedule_of("no.csv", tmp_path)
    (tmp_path / "mine.csv").write_text("0F0" + "," * 100)
    monkeypatch.setattr("ipusim.schedules.torch_csv._MOST_BYTES", 100)
    with pytest.raises(FileError, match=r"^'mine\.csv': expected a file of at most 100 bytes, got a larger one$"):
        schedule_of("mine.csv", tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "[0F0, 0F1, 0B0, 0B1]\n[1F0, 1F1, 1B0, 1B1]\n",
        "[['0F0', '0F1', None, '0B0', '0B1'],\n ['1F0', '1F1', '1B0', '1B1']]\n",
        "F0_s0,F1_s0,,B0_s0,B1_s0\nF0_s1,F1_s1,B0_s1,B1_s1\n",
    ],
    ids=["list", "nested lists", "torch 2.4"],
)
def test_rows_as_python_prints_lists_and_cells_of_older_versions(read, text):
    usual = read("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n")
    found = read(text)
    assert found.written == usual.written
    shape = PlanShape(mapping=(0, 1), micro_batches=2)
    assert write_torch_csv(found.order(shape)) == write_torch_csv(usual.order(shape))


ONE_F_ONE_B = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
HANG = "rank 0 waits in 0SEND_F1 ({}) for 1RECV_F1 of rank 1; rank 1 waits in 1SEND_B0 ({}) for 0RECV_B0 of rank 0"


@pytest.mark.parametrize(
    ("text", "hang"),
    [
        ("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n", ""),
        (ONE_F_ONE_B, HANG.format("after F0.1", "after B1.0")),
        ("0F0,0F1,0B0,0B1\n1F1,1B0,1F2,1B1\n", HANG.format("after F0.1", "after B1.0")),
        (
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n",
            HANG.format("'mine.csv', row 1, column 4", "'mine.csv', row 2, column 4"),
        ),
        (
            "0F0,0SEND_F0,0F1,0RECV_B0,0SEND_F1,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n",
            "",
        ),
    ],
    ids=["gpipe", "1f1b", "1f1b as torch numbers it", "1f1b with copies", "receive before send"],
)
def test_a_hang_of_sends_that_block_names_each_rank(tmp_path, text, hang):
    """The second order of 1F1B posts the receive of the gradient before the next send, as one rank of a pair has to."""
    (tmp_path / "mine.csv").write_text(text)
    found = hang_when_blocking(tmp_path / "mine.csv", "mine.csv")
    assert found == hang


REFUSED = {
    "before what it needs": (
        "0F0,,0F1,0B0,0B1\n,1B0,1F0,1F1,1B1\n",
        "IPU 1: B1.0 runs before the pass of its stage that the pass needs (mine.csv: B1.0 in row 2, column 2)",
        [">B1.0<"],
    ),
    "deadlock": (
        "0F0,,0B0,0F1,0B1\n,1F1,1F0,1B1,1B0\n",
        "a deadlock: IPU 0 waits at 'receive 1->0.0' for IPU 1, which waits at 'receive 0->1.1' for IPU 0 "
        "(mine.csv: B0.0 in row 1, column 3, F1.1 in row 2, column 2)",
        [">B0.0<", ">F1.1<"],
    ),
    "two in one slot": (
        "0F0,1F0,1B0,(0F1;0B0)OVERLAP_F_B,1B1,0B1,1F1\n",
        "IPU 0: B1.1 runs before the pass of its stage that the pass needs (mine.csv: B1.1 in row 1, column 5)",
        [">B1.1<", ">F1.1<", ">B0.1<"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_order_is_a_grid_with_its_cells_marked_and_where_they_stand_in_the_file(read, name):
    text, first, marked = REFUSED[name]
    schedule = read(text)
    with pytest.raises(PlanError) as caught:
        check_plan(plan_of(schedule, schedule.written))
    head, *grid = str(caught.value).splitlines()
    assert head.split(": ", 1)[1] == first
    found = [word for line in grid for word in re.findall(r">[A-Z]\S+<", line)]
    assert found[0] in marked
    assert all("<-- ERROR HERE" in line for line in grid if re.search(r">[A-Z]\S+<", line))
    assert {*found} <= {*marked}
    assert {*re.findall(r"[A-Z]\d+\.\d+(?= in row)", head)} <= {word.strip("<>") for word in found}
