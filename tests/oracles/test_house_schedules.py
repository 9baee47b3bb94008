"""The GPU world's schedules against closed forms, rows and tables of the papers and of torch that have them."""

import csv
import hashlib
import re
from itertools import product

import numpy as np
import pytest

from ipusim.analysis.effects import effects_of
from ipusim.base.errors import CountError, PlanError, ProgramError, UnsupportedProgramError
from ipusim.hardware.collectives.choose import fastest_all_reduce
from ipusim.lowering.lower import lower
from ipusim.pipeline.check import violations
from ipusim.pipeline.holders import Holder
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.request.request import Request
from ipusim.runs.time_alone import timeline_of
from ipusim.schedules import v_1f1b
from ipusim.schedules.placement import zigzag
from ipusim.schedules.registry import find
from ipusim.timeline.kinds import SpanKind
from tests.effort import sampled
from tests.oracles.test_point_to_point import free, most_kept
from tests.orders import passes_of
from tests.scenarios import GOLDEN, run
from tests.schedules import shape_of

SIZES = [(2, 4), (4, 8), (8, 24), (16, 48)]
#: Cycles of forward, of the whole backward pass, and of its halves.
EQUAL = (1, 2, 1, 1)


SEQ_1F1B = {  # micro-batch and segment, of 3 micro-batches in 2 segments on 4 IPUs
    0: "F0-0 F0-1 F1-0 F1-1 F2-0 B0-1 F2-1 B0-0 B1-1 B1-0 B2-1 B2-0",
    3: "F0-0 F0-1 B0-1 F1-0 B0-0 F1-1 B1-1 F2-0 B1-0 F2-1 B2-1 B2-0",
}


def test_seq_1f1b_has_its_authors_order():
    order = find("seq_1f1b").lay_out(shape_of("seq_1f1b", (0, 1, 2, 3), 3))
    for ipu, words in SEQ_1F1B.items():
        own = order.passes[order.passes[:, 0] == ipu, 1:].tolist()
        assert " ".join(f"{'FB'[kind]}{micro // 2}-{micro % 2}" for kind, _, micro in own) == words


@pytest.mark.parametrize(
    ("ipus", "count", "segments"), [(4, 8, 2), (4, 8, 4), (8, 16, 2), (8, 16, 4), (4, 8, 1), (5, 3, 3), (2, 1, 8)]
)
def test_seq_1f1b_has_ramps_as_short_as_its_segments(ipus, count, segments):
    """Sun et al. 2024, the code's order: (m k + N - 1)(F + B) of a segment; N - 1 - r + k segments kept."""
    mapping = tuple(range(ipus))
    for forward, backward in ((1, 2), (3, 3), (5, 2)):
        right = (count * segments + ipus - 1) * (forward + backward)
        assert free("seq_1f1b", mapping, count, (forward, backward), segments=segments) == right
    kept = [min(ipus - 1 - rank + segments, count * segments) for rank in range(ipus)]
    assert most_kept("seq_1f1b", mapping, count, "B", segments=segments) == kept
    if segments == 1:
        shapes = (shape_of(name, mapping, count, segments=1) for name in ("seq_1f1b", "1f1b"))
        one, other = (find(name).order(shape) for name, shape in zip(("seq_1f1b", "1f1b"), shapes, strict=True))
        assert (one.table == other.table).all()


def test_the_last_micro_batch_leaves_in_all_its_segments():
    stages = [{"name": name, "forward": 100, "backward": 200} for name in "abcd"]
    pipeline = {"schedule": "seq_1f1b", "segments": 4, "gradient_accumulation_count": 8, "stages": stages}
    outfeed = {"mode": "LAST", "element_bytes": 4000}
    job = assemble(Request.from_dict({"system": {"name": "m2000"}, "pipeline": pipeline, "outfeed": outfeed}))
    sent = job.program.outfeed_elements.count_sent(1)
    assert (sent, sent * job.program.outfeed.element_bytes) == (4, 4000)


@pytest.mark.parametrize(
    ("cycles", "right"), [((2, 4, 3, 1), (52, 108, 316, 636)), ((3, 6, 4, 2), (76, 156, 460, 924))]
)
def test_zbv_of_passes_of_unequal_length_waits_as_long_for_every_count(cycles, right):
    """An IPU waits 4 (N - 1) cycles with either, whatever the count."""
    for (ipus, count), makespan in zip(SIZES, right, strict=True):
        assert free("zbv", zigzag(2 * ipus, 2), count, cycles) == makespan


@sampled(2)
@pytest.mark.parametrize(
    ("cycles", "half", "third"),
    [
        ((3, 6, 4, 2), (29, 29, 29), (82, 130, 226)),
        ((4, 5, 3, 2), (31, 31, 31), None),
        ((3, 4, 3, 1), (25, 25, 25), None),
        ((2, 5, 3, 2), (19, 19, 19), None),
        ((3, 7, 5, 2), (46, 62, 94), None),
        ((5, 5, 3, 2), (44, 60, 92), None),
    ],
)
def test_the_bubble_of_controllable_memory_repeats_itself_where_passes_differ_too_much(cycles, half, third):
    """Each adds max(0, 2I - W - 2F, 2F - W - 2I) to V-Half's, max(0, 6 max(F, I) - 2 (F + I + W)) to V-Min's."""
    forward, _, first, second = cycles
    counts, busy = (8, 16, 32), 2 * (forward + first + second)
    for schedule, idle in (("v_half", half), ("v_min", third)):
        waited = [free(schedule, zigzag(8, 2), count, cycles) - busy * count for count in counts]
        assert idle is None or tuple(waited) == idle
        more = {
            "v_half": max(0, 2 * first - second - 2 * forward, 2 * forward - second - 2 * first),
            "v_min": max(0, 6 * max(forward, first) - busy),
        }[schedule]
        assert [waited[1] - waited[0], waited[2] - waited[1]] == [8 * more, 16 * more]


#: Of four IPUs and eight micro-batches the first two, as their authors' code gives them: copy.stage.micro-batch of the
#: copy, x+y for two passes in one slot.
DUALPIPE = {
    0: "F0.0.0 F0.0.1 F0.0.2 F1.3.0 I1.3.0 W1.3.0 F1.3.1 F0.0.3+B1.3.1 F1.3.2+B0.0.0 B1.3.2 F1.3.3+B0.0.1 B1.3.3 "
    "I0.0.2 W0.0.2 I0.0.3 W0.0.3",
    1: "F0.1.0 F1.2.0 F0.1.1 F1.2.1 F0.1.2 B1.2.0 F1.2.2+B0.1.0 F0.1.3+B1.2.1 F1.2.3+B0.1.1 B1.2.2 B0.1.2 I1.2.3 "
    "I0.1.3 W1.2.3 W0.1.3",
}
#: Of four and four micro-batches: a unit.
CHIMERA = {
    0: "F0.0.0 F0.0.1 F1.3.0 B1.3.0 F1.3.1 B1.3.1 B0.0.0 B0.0.1",
    1: "F0.1.0 F1.2.0 F0.1.1 F1.2.1 B1.2.0 B0.1.0 B1.2.1 B0.1.1",
}


@pytest.mark.parametrize(("schedule", "count", "rows"), [("dualpipe", 8, DUALPIPE), ("chimera", 4, CHIMERA)])
def test_two_copies_have_their_authors_order(schedule, count, rows):
    order = find(schedule).lay_out(shape_of(schedule, (0, 1, 2, 3), count))
    found = dict.fromkeys(range(4), "")
    for (ipu, kind, stage, micro), joined in zip(order.passes.tolist(), order.joined.tolist(), strict=True):
        found[ipu] += f"{'FBRIW'[kind]}{micro % 2}.{stage}.{micro // 2}{'+' if joined else ' '}"
    assert {ipu: found[ipu].split() for ipu in rows} == {ipu: text.split() for ipu, text in rows.items()}
    # The other half has the same passes of the other copies.
    for ipu, text in rows.items():
        other = re.sub(r"([FBIW])([01])", lambda word: f"{word[1]}{1 - int(word[2])}", text)
        assert found[3 - ipu].strip() == other


def test_two_copies_are_refused_where_stages_have_no_mirror_image():
    with pytest.raises(ProgramError, match=r"on two IPUs at equal distances from the ends.*got stages on 0, 1, 2$"):
        shape_of("chimera", (0, 1, 2), 6)
    with pytest.raises(ProgramError, match=r"got stages on 0, 0, 0, 1$"):
        shape_of("dualpipe", (0, 0, 0, 1), 6)
    with pytest.raises(UnsupportedProgramError, match="needs two copies of each stage"):
        find("dualpipe").order(PlanShape(mapping=(0, 1), micro_batches=4))
    with pytest.raises(UnsupportedProgramError, match="needs the stages of an IPU one after the other"):
        find("dualpipe").order(shape_of("dualpipe", (0, 1, 0, 1), 8))
    with pytest.raises(CountError, match="must be a multiple of 2, but it is 9"):
        find("dualpipe").order(shape_of("dualpipe", (0, 1, 2, 3), 9))
    with pytest.raises(CountError, match="needs twice as many micro-batches as IPUs, 8 or more, got 6"):
        find("dualpipe").order(shape_of("dualpipe", (0, 1, 2, 3), 6))
    with pytest.raises(CountError, match="must be a multiple of 4, but it is 6"):
        find("chimera").order(shape_of("chimera", (0, 1, 2, 3), 6))


def test_copies_of_stages_sum_up_their_gradients_over_the_links():
    """Each IPU has the weights of two stages; the sum is the all-reduce of what both accumulate, two IPUs at a time."""
    stage = {"forward": 1000, "backward": 2000, "parameter_bytes": 4 << 20, "accumulator_bytes": 8 << 20}
    found = {}
    for schedule in ("1f1b", "chimera"):
        stages = [{"name": f"s{number}", **stage} for number in range(4)]
        pipeline = {"schedule": schedule, "gradient_accumulation_count": 8, "stages": stages}
        request = Request.from_dict({"system": {"name": "m2000"}, "pipeline": pipeline}, name="copies")
        found[schedule] = assemble(request)
    held = {name: dict(job.memory.footprint.ipus[1].resident) for name, job in found.items()}
    for holder in (Holder.PARAMETERS, Holder.ACCUMULATORS):
        assert held["chimera"][holder] == 2 * held["1f1b"][holder] > 0
    job = found["chimera"]
    assert found["1f1b"].costs.copy_sum is None
    _, cost = fastest_all_reduce(job.system, [(0, 3), (1, 2)], [(16 << 20) // 4] * 2, 4)
    assert job.costs.copy_sum.cost == cost
    timeline = timeline_of(job)
    (row,) = timeline.rows(SpanKind.ALL_REDUCE)
    assert timeline.end[row] - timeline.start[row] == cost.total_cycles
    assert job.costs.copy_sum.bytes == 4 * (16 << 20)


def test_a_pass_that_shares_a_slot_needs_one_behind_it_on_its_ipu():
    passes = {0: ["F0.0", "B0.0"], 1: ["F1.0", "B1.0"]}
    with pytest.raises(PlanError, match="joined: expected a pass of the same IPU after each"):
        Order.from_passes("mine", PlanShape(mapping=(0, 1), micro_batches=1), passes, [Op(Pass.BACKWARD, 0, 0)])


@pytest.mark.parametrize("ipus", [1, 2, 3, 4, 7, 9, 12])
def test_a_long_execution_of_1f1b_v_is_laid_out_as_one_that_is_moved_together_whole(ipus):
    count = 4 * ipus + 9
    order = find("1f1b_v").order(PlanShape(mapping=zigzag(2 * ipus, 2), micro_batches=count))
    for ipu, lane in enumerate(v_1f1b._lay_out(ipus, count)):
        stages = (ipu, 2 * ipus - 1 - ipu)
        right = [f"{kind.letter}{stages[chunk]}.{micro_batch}" for kind, chunk, micro_batch in lane]
        assert passes_of(order)[ipu] == right


def test_waves_run_in_slots_of_which_an_ipu_has_one_pass_each():
    """Chimera's slots on the joined way, of all micro-batches at once; the last unit may be a part of one."""
    for ipus, waves, count in ((2, 1, 4), (3, 1, 3), (4, 2, 11), (3, 3, 9)):
        mapping = zigzag(2 * ipus * waves, 2 * waves)
        stages = len(mapping)
        right = {ipu: {} for ipu in range(ipus)}
        for micro_batch, (stage, ipu) in product(range(count), enumerate(mapping)):
            enters = 2 * (micro_batch % ipus) + 2 * stages * (micro_batch // ipus)
            for letter, slot in (("F", enters + stage), ("B", enters + 2 * stages - 1 - stage)):
                assert slot not in right[ipu]
                right[ipu][slot] = f"{letter}{stage}.{micro_batch}"
        right = {ipu: [slots[slot] for slot in sorted(slots)] for ipu, slots in right.items()}
        assert passes_of(find("hanayo").order(PlanShape(mapping=mapping, micro_batches=count))) == right


def test_poparts_cycles():
    """The table of PopART's notes on pipelining, three IPUs and five micro-batches; ``.`` joins an IPU's two stages."""
    order = find("popart").order(PlanShape(mapping=(0, 1, 2), micro_batches=5))
    cells = {}
    for cycle, ipu, kind, stage, micro_batch in order.table.tolist():
        number = stage if kind == Pass.FORWARD else 4 - stage
        cells.setdefault((ipu, cycle), []).append(f"PS{number}({micro_batch})")
    rows = [[".".join(cells.get((ipu, cycle), ["-"])) for cycle in range(9)] for ipu in range(2)]
    assert rows == [
        ["PS0(0)", "PS0(1)", "PS0(2)", "PS0(3)", "PS0(4).PS4(0)", "PS4(1)", "PS4(2)", "PS4(3)", "PS4(4)"],
        ["-", "PS1(0)", "PS1(1)", "PS1(2).PS3(0)", "PS1(3).PS3(1)", "PS1(4).PS3(2)", "PS3(3)", "PS3(4)", "-"],
    ]
    assert [cells[2, cycle] for cycle in range(2, 7)] == [[f"PS2({batch})"] * 2 for batch in range(5)]
    assert order.emitted == 9


def test_popart_refuses_a_pipeline_that_is_never_full_in_its_own_words():
    text = "^Pipeline mainCycles should not be less than 1. Current value is -1. It is the count, 3, less 4: expected "
    with pytest.raises(CountError, match=text):
        find("popart").order(PlanShape(mapping=(0, 1, 2), micro_batches=3))
    inference = PlanShape(mapping=(0, 1, 2), micro_batches=3, training=False)
    assert find("popart").order(inference).emitted == 5


@pytest.mark.parametrize(("kept", "right"), [(True, []), (False, ["dependency"])])
def test_only_the_last_stage_may_turn_round_in_a_time_step(kept, right):
    """And only behind its forward pass: tensors move between IPUs at the end of a time-step."""
    rows = [[0, 0, 0, 0, 0], [1, 1, 0, 1, 0], [1, 1, 1, 1, 0], [2, 0, 1, 0, 0]]
    if not kept:
        rows[1:3] = rows[2:0:-1]
    order = Order("mine", PlanShape(mapping=(0, 1), micro_batches=1), table=np.array(rows), offsets=(0,), emitted=3)
    assert [violation.rule for violation in violations(lower(order, Sync.LOCK_STEP))] == right


NO_V = product(("zbv", "hanayo"), ((0, 1, 0, 1), (0, 1, 0), (0, 1, 0, 0, 1, 0)))


@pytest.mark.parametrize(
    ("schedule", "mapping", "way"),
    [
        ("1f1b", (0, 1, 0, 1), "the stages of an IPU one after the other"),
        ("zero_bubble_h1", (0, 1, 0), "round all IPUs in one order"),
        ("breadth_first", (0, 1, 1, 0), "round all IPUs in one order"),
        ("interleaved_1f1b", (0, 1, 0), "round all IPUs in one order"),
        *((schedule, mapping, r"over all IPUs and back, such as 0, 1, 1, 0 ") for schedule, mapping in NO_V),
    ],
)
def test_stages_that_do_not_go_the_way_of_a_schedule_are_refused(schedule, mapping, way):
    with pytest.raises(UnsupportedProgramError, match=f"{way}.*the mapping is {', '.join(map(str, mapping))}"):
        find(schedule).order(PlanShape(mapping=mapping, micro_batches=4))


with (GOLDEN / "authors_orders.csv").open(newline="") as file:
    #: Schedule, IPUs, and the digest of each count from 1 up: of the rows that create_schedule gives in zbv_greedy.py
    #: and zbv.py of sail-sg/zero-bubble-pipeline-parallelism, commit 39f2c186, where each pass takes a time of 1,
    #: copies none, and a forward pass keeps 2, of which input and weight gradients let go of 1 each.
    ROWS = [(name, int(ipus), digests) for name, ipus, *digests in csv.reader(file)]


def digest_of(name, ipus, count):
    """Return the digest of an Order with its authors' letters and chunks."""
    lines = [[] for _ in range(ipus)]
    for ipu, kind, stage, micro_batch in (
        find(name).order(shape_of(name, zigzag(2 * ipus, 2), count, authors=True)).passes.tolist()
    ):
        lines[ipu].append(f"{'F  BW'[kind]}{int(stage >= ipus)}.{micro_batch}")
    return hashlib.sha256("\n".join(map(" ".join, lines)).encode()).hexdigest()[:12]


@sampled(4)
@pytest.mark.parametrize(("name", "ipus", "digests"), ROWS)
def test_few_micro_batches_run_in_the_order_of_the_authors_code(name, ipus, digests):
    assert [digest_of(name, ipus, count) for count in range(1, len(digests) + 1)] == digests


def test_there_are_digests_of_every_count_that_the_authors_have_another_order_for():
    assert {name for name, _, _ in ROWS} == {"v_half", "v_min", "zbv"}
    for name, ipus, digests in ROWS:
        assert len(digests) == (2 * ipus - 2 if name == "zbv" else ipus + 3)


@sampled(4)
@pytest.mark.parametrize("ipus", range(2, 10))
@pytest.mark.parametrize("name", ["v_half", "v_min", "zbv"])
def test_authors_orders_keep_as_much_and_take_longer_or_shorter_of_few_micro_batches_alone(name, ipus):
    """Where all passes take equally long: those of V-Half and V-Min never shorter, that of ZB-V never longer."""
    mapping, differ = zigzag(2 * ipus, 2), set()
    for count in range(1, 2 * ipus + 2):
        own, authors = (free(name, mapping, count, EQUAL, authors=asked) for asked in (False, True))
        assert own >= authors if name == "zbv" else own <= authors
        kept = [max(most_kept(name, mapping, count, "W", authors=asked)) for asked in (False, True)]
        assert kept[0] == kept[1]
        orders = [find(name).order(shape_of(name, mapping, count, authors=asked)) for asked in (False, True)]
        differ |= {count} if orders[0].passes.tolist() != orders[1].passes.tolist() else set()
    assert differ
    assert max(differ) <= (2 * ipus - 2 if name == "zbv" else ipus + 1)


@pytest.mark.parametrize(("name", "said"), [("zbv", True), ("v_half", True), ("gpipe", False)])
def test_a_run_says_that_its_order_is_the_authors(name, said):
    job = run(name, mapping=(0, 1, 1, 0), count=2, authors_order=True).job
    assert job.program.shape.authors is said
    assert ("order of passes" in effects_of(job.program, job.system)) is said
    assert any("authors_order will have no effect" in note for note in job.notes) is not said
