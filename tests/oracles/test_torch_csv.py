"""Schedules as torch 2.13.0 and Megatron-LM have them: orders, copies, and groups of micro-batches.

Files are what _dump_csv of torch's schedules writes, in the format "compute_only" and, with copies, by default; those
of ours are what _PipelineScheduleRuntime writes once its _load_csv has read the CSV of
`ipusim schedule NAME --stages 4 --count 8 --as torch`.
"""

import csv
import hashlib
import random
import re
from collections import Counter

import pytest

from ipusim.base.errors import CountError, UnsupportedProgramError
from ipusim.pipeline.instructions import Code
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.assemble.plans import nearest_counts, plan_of
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from ipusim.schedules.features import Feature
from ipusim.schedules.registry import find, names
from ipusim.schedules.torch_csv import read_schedule, write_torch_csv
from tests.effort import draws_everything, sampled
from tests.scenarios import GOLDEN

FOLDER = GOLDEN / "torch_schedules"
TORCHS = sorted(path.stem for path in FOLDER.glob("*.csv") if not path.stem.startswith("ours"))
OURS = sorted(path.stem.removeprefix("ours_") for path in FOLDER.glob("ours_*.csv"))
#: torch's with their copies, of which all else is that of those without.
COPIES = [name for name in TORCHS if name.endswith("_copies")]
BARE = [name for name in TORCHS if name not in COPIES]
#: The house's names of those that it has, with which torch's begin.
HOUSE = {
    "1F1B": "1f1b",
    "DualPipeV": "dualpipe_v",
    "GPipe": "gpipe",
    "Interleaved1F1B": "interleaved_1f1b",
    "InterleavedZeroBubble_4_": "zero_bubble_h1",
    "LoopedBFS": "breadth_first",
    "ZBVZeroBubble": "zbv",
}
Slot = list[tuple[int, str, int]]


def slots_of(name: str) -> list[list[Slot]]:
    """Return of each rank its slots: the passes that are one cell, as (stage, kind, micro-batch)."""
    ranks = []
    with (FOLDER / f"{name}.csv").open(newline="") as file:
        for row in csv.reader(file):
            cells = [re.findall(r"(\d+)([FBIW])(\d+)(?=[;)]|$)", cell) for cell in row]
            ranks.append([[(int(stage), kind, int(number)) for stage, kind, number in cell] for cell in cells if cell])
    if name.startswith("1F1B"):  # whose last rank torch numbers from 1
        ranks[-1] = [[(stage, kind, number - (kind == "F"))] for ((stage, kind, number),) in ranks[-1]]
    return ranks


def test_there_is_a_file_of_each_of_torchs_schedules():
    known = {"1F1B", "DualPipeV", "GPipe", "Interleaved1F1B", "InterleavedZeroBubble", "LoopedBFS", "ZBVZeroBubble"}
    assert {name.split("_")[0] for name in BARE} == known
    assert {name.split("_")[0] for name in COPIES} == known - {"1F1B"}


@pytest.mark.parametrize("name", BARE)
def test_the_slots_of_a_file_are_those_of_its_order(name):
    of_file = read_schedule(FOLDER / f"{name}.csv", name)
    order = of_file.order(of_file.written)
    slots: dict[int, list[Slot]] = {}
    goes_on = False
    for (ipu, kind, stage, number), joined in zip(order.passes.tolist(), order.joined.tolist(), strict=True):
        of_ipu = slots.setdefault(ipu, [])
        of_ipu += [] if goes_on else [[]]
        of_ipu[-1].append((stage, "FBRIW"[kind], number))
        goes_on = joined
    assert [*slots.values()] == slots_of(name)
    assert plan_of(of_file, of_file.written).sync is Sync.POINT_TO_POINT


@pytest.mark.parametrize("name", [name for name in BARE if name.startswith(tuple(HOUSE))])
def test_the_orders_of_the_house_are_torchs(name):
    """Torch's idle cells say nothing: they are where it pads a row, not where a pass would wait."""
    of_file = read_schedule(FOLDER / f"{name}.csv", name)
    order = of_file.order(of_file.written)
    (own,) = (house for begin, house in HOUSE.items() if name.startswith(begin))
    right = find(own).lay_out(PlanShape(mapping=order.shape.mapping, micro_batches=int(name.split("_")[3])))
    assert order.passes.tolist() == right.passes.tolist()
    assert order.joined.tolist() == right.joined.tolist()


@pytest.mark.parametrize("name", COPIES)
def test_the_copies_of_torchs_default_dump_are_ours(name):
    """Each send and receive of a file, by rank, stage, way and micro-batch, is an instruction, and the reverse."""
    of_file = read_schedule(FOLDER / f"{name}.csv", name)
    bare = read_schedule(FOLDER / f"{name.removesuffix('_copies')}.csv", name)
    plan = plan_of(of_file, of_file.written)
    assert (plan.instructions == plan_of(bare, bare.written).instructions).all()
    torchs, ours = Counter(), Counter()
    with (FOLDER / f"{name}.csv").open(newline="") as file:
        for rank, row in enumerate(csv.reader(file)):
            for cell in row:
                for stage, copy, number in re.findall(r"^(\d+)(SEND_F|SEND_B|RECV_F|RECV_B)(\d+)$", cell):
                    torchs[rank, copy, int(stage), int(number)] += 1
    for ipu, code, stage, number, other in plan.instructions.tolist():
        if code == Code.RECEIVE:
            ours[ipu, "RECV_F" if other < stage else "RECV_B", stage, number] += 1
        elif code in (Code.SEND, Code.BLOCKING_SEND) and plan.shape.mapping[other] != ipu:
            ours[ipu, "SEND_F" if other > stage else "SEND_B", stage, number] += 1
    assert ours == torchs
    assert ours.total() > 0


def test_torch_has_loaded_all_schedules_of_one_copy_and_of_whole_micro_batches():
    """A further one of these wants a file of its own."""
    known = (find(name) for name in names() if Feature.SEVERAL_IPUS in find(name).supports)
    assert set(OURS) == {one.name for one in known if not one.mirrored and Feature.SEGMENTS not in one.supports}


@pytest.mark.parametrize("name", OURS)
def test_torch_has_loaded_what_is_written_here(name):
    """A file is what torch made of an Order's text, with its own copies; its passes are those of the text today."""
    of_file = read_schedule(FOLDER / f"ours_{name}.csv", name)
    order = find(name).lay_out(of_file.written)
    written = [[cell for cell in row if cell] for row in csv.reader(write_torch_csv(order).splitlines())]
    with (FOLDER / f"ours_{name}.csv").open(newline="") as file:
        passes = [[cell for cell in row if not re.search("SEND|RECV|SHARD|REDUCE", cell)] for row in csv.reader(file)]
    assert passes == written


with (GOLDEN / "interleaved_digests.csv").open(newline="") as file:
    #: By ranks and stages of a rank the digest of each count that torch 2.13.0 has: of ScheduleInterleaved1F1B's passes
    #: of each rank in a line, as its _calculate_single_rank_operations gives them.
    DIGESTS = {(int(row[0]), int(row[1])): dict(cell.split(":") for cell in row[2:]) for row in csv.reader(file)}
COUNTS = range(1, 41)


def shape_of(ipus, chunks, count, size=0):
    return PlanShape(mapping=(*range(ipus),) * chunks, micro_batches=count, group_size=size)


def words_of(order, ipus):
    """Return of each IPU its passes as torch writes them."""
    words = [[] for _ in range(ipus)]
    for ipu, kind, stage, micro_batch in order.passes.tolist():
        words[ipu].append(f"{stage}{'FB'[kind]}{micro_batch}")
    return words


@sampled(4)
@pytest.mark.parametrize("ipus", range(2, 17))
def test_each_count_that_torch_has_is_laid_out_as_torch_does_and_no_other(ipus):
    """Of ranks 2 to 16, 2 to 8 stages of a rank and counts up to 40, by default every other one in turn."""
    schedule = find("interleaved_1f1b")
    for chunks in range(2, 9):
        torchs = DIGESTS[ipus, chunks]
        assert [int(count) for count in torchs] == [n for n in COUNTS if n % max(1, n // ipus) == 0]
        for count in COUNTS:
            if (ipus + chunks + count) % 2 and not draws_everything():
                continue
            shape = shape_of(ipus, chunks, count)
            if str(count) in torchs:
                text = "\n".join(map(" ".join, words_of(schedule.lay_out(shape), ipus)))
                assert hashlib.sha256(text.encode()).hexdigest()[:12] == torchs[str(count)]
            else:
                with pytest.raises(CountError):
                    schedule.order(shape)
                below = max(int(each) for each in torchs if int(each) < count)
                above = next(n for n in range(count, 2 * count) if n % (n // ipus) == 0)
                assert chunks > 2 or nearest_counts(schedule, shape) == (below, above)


def megatron_has(ipus, count, size):
    """Whether Megatron-LM runs it: ``size`` from its ranks to the count, and what is left over none or as many."""
    return ipus <= size <= count and not 0 < count % size < ipus


def megatrons(rank, ipus, chunks, count, size):
    """Return the passes of a rank, as Megatron-LM's documentation of microbatch_group_size_per_vp_stage says.

    A table has the micro-batches of a group, chunk by chunk, before those of the next. Forward passes go down it, and
    backward passes too, with the last chunk for the first. A rank runs 2 (ranks - rank - 1) + (chunks - 1) size forward
    passes, or all, then a forward and a backward pass in turn, then what is left.
    """
    table = []
    for first in range(0, count, size):
        table += [(chunk, first + n) for chunk in range(chunks) for n in range(size) if first + n < count]
    forward = [f"{chunk * ipus + rank}F{n}" for chunk, n in table]
    backward = [f"{(chunks - 1 - chunk) * ipus + rank}B{n}" for chunk, n in table]
    warm_up = min(len(table), 2 * (ipus - rank - 1) + (chunks - 1) * size)
    pairs = [*zip(forward[warm_up:], backward[: len(table) - warm_up], strict=True)]
    return [*forward[:warm_up], *(one for pair in pairs for one in pair), *backward[len(pairs) :]]


def test_megatrons_tables_are_those_that_it_documents():
    """Two ranks of two chunks: groups of three, five micro-batches, and groups of two, four."""
    for count, size, right in ((5, 3, "0 1 2 0 1 2 3 4 3 4"), (4, 2, "0 1 0 1 2 3 2 3")):
        (forward, _) = words_of(find("interleaved_1f1b").order(shape_of(2, 2, count, size)), 2)
        assert " ".join(word.split("F")[1] for word in forward if "F" in word) == right
    stages = [word.split("F")[0] for word in megatrons(0, 2, 2, 5, 3) if "F" in word]
    assert " ".join(stages) == "0 0 0 2 2 2 0 0 2 2"


@sampled(4)
@pytest.mark.parametrize("ipus", range(2, 17))
def test_groups_of_any_size_are_laid_out_as_megatron_does(ipus):
    rng, schedule = random.Random(ipus), find("interleaved_1f1b")
    for chunks in range(2, 9):
        for count in COUNTS:
            for size in rng.sample(range(1, 42), 3 if draws_everything() else 1):
                shape = shape_of(ipus, chunks, count, size)
                if megatron_has(ipus, count, size):
                    right = [megatrons(rank, ipus, chunks, count, size) for rank in range(ipus)]
                    assert words_of(schedule.lay_out(shape), ipus) == right
                else:
                    with pytest.raises(UnsupportedProgramError if size < ipus else CountError):
                        schedule.order(shape)


def test_a_group_that_is_too_small_is_refused_at_its_key_and_without_effect_elsewhere():
    stages = [{"name": f"s{number}", "forward": 100, "backward": 200} for number in range(8)]
    pipeline = {"schedule": "interleaved_1f1b", "virtual_stages": 2, "stages": stages, "micro_batch_group_size": 3}
    asked = {"system": {"name": "free"}, "pipeline": {**pipeline, "gradient_accumulation_count": 9}}
    with pytest.raises(RequestError, match="groups with at least one micro-batch for each IPU, 4") as caught:
        assemble(Request.from_dict(asked, name="groups"))
    assert [problem.path for problem in caught.value.problems] == [("pipeline", "micro_batch_group_size")]
    asked["pipeline"] |= {"micro_batch_group_size": 5}
    assert assemble(Request.from_dict(asked, name="groups")).program.shape.group_size == 5
    asked["pipeline"] |= {"schedule": "gis", "gradient_accumulation_count": 8, "authors_order": True}
    notes = " ".join(assemble(Request.from_dict(asked, name="groups")).notes)
    assert "micro_batch_group_size will have no effect since gis" in notes
    assert "authors_order will have no effect since gis" in notes
