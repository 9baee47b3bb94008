"""Schedules as torch 2.13.0 writes them: their orders and copies, read and written here.

How long Orders take is held in test_point_to_point. Files are what _dump_csv of torch's schedules writes, in the format
"compute_only" and, with copies, by default; those of ours are what _PipelineScheduleRuntime writes once its _load_csv
has read the CSV of `ipusim schedule NAME --stages 4 --count 8 --as torch`.
"""

import csv
import re
from collections import Counter

import pytest

from ipusim.pipeline.instructions import Code
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.features import Feature
from ipusim.schedules.registry import find, names
from ipusim.schedules.torch_csv import read_schedule, write_torch_csv
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
