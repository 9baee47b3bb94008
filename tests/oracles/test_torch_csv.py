"""Schedules as torch 2.13.0 writes them, run here: their orders and copies, how long they take, what they learn.

A longest path says how long, the unsplit model what is learnt. Files are what _dump_csv of torch's schedules writes, in
the format "compute_only" and, with copies, by default; those of ours are what _PipelineScheduleRuntime writes once its
_load_csv has read the CSV of `ipusim schedule NAME --stages 4 --count 8 --as torch`.
"""

import csv
import re
from collections import Counter

import networkx as nx
import numpy as np
import pytest

from ipusim.pipeline.instructions import Code
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.runs.execute import execute
from ipusim.schedules.features import Feature
from ipusim.schedules.registry import find, names
from ipusim.schedules.torch_csv import read_schedule, write_torch_csv
from tests.effort import sampled, slowest
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
#: Ranks and micro-batches of those that the papers' formulas are held against.
RANKS, COUNT = 4, 8
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


def sizes(name: str) -> tuple[int, ...]:
    """Return how many stages, ranks and micro-batches a file has."""
    return tuple(map(int, name.split("_")[1:4]))


@pytest.fixture
def load_torchs(load, tmp_path):
    """Return a function from a file of torch's, and a scenario of the schedule torch.csv, to its Job."""

    def of(name, text):
        (tmp_path / "torch.csv").write_bytes((FOLDER / f"{name}.csv").read_bytes())
        return load(text)

    return of


def longest_path(ranks: list[list[Slot]], cycles: dict[str, list[int]]) -> int:
    """Return the makespan of slots that wait for their rank and for what their passes consume; copies take no time."""
    graph = nx.DiGraph()
    slot_of = {one: (rank, turn) for rank, slots in enumerate(ranks) for turn, slot in enumerate(slots) for one in slot}
    last = max(stage for stage, *_ in slot_of)
    for rank, slots in enumerate(ranks):
        for turn, slot in enumerate(slots):
            own = rank, turn
            graph.add_edge((own, "begin"), (own, "end"), cycles=sum(cycles[kind][stage] for stage, kind, _ in slot))
            before = [(rank, turn - 1)] if turn else []
            for stage, kind, number in slot:
                needs = [(stage - 1, "F", number)] if kind == "F" else [(stage, "F", number)]
                if kind == "W":
                    needs = [(stage, "I", number)]
                if kind in "BI" and stage < last:
                    needs += [(stage + 1, half, number) for half in "BI"]
                before += [slot_of[need] for need in needs if need in slot_of]
            graph.add_edges_from((((other, "end"), (own, "begin")) for other in before), cycles=0)
    return nx.dag_longest_path_length(graph, weight="cycles")


def timed(name, seed):
    """Return a scenario of stages that take different times, and these times; without a seed they are alike."""
    rng = np.random.default_rng(seed)
    stages, _, count = sizes(name)
    drawn = rng.integers(10, 100, (3, stages)).tolist() if seed else [[10] * stages] * 3
    cycles = dict(zip("FIW", drawn, strict=True))
    cycles["B"] = [first + second for first, second in zip(cycles["I"], cycles["W"], strict=True)]
    lines = [
        f"    - {{name: s{stage}, forward: {cycles['F'][stage]}, backward: {cycles['B'][stage]}, "
        f"backward_input: {cycles['I'][stage]}, backward_weights: {cycles['W'][stage]}, output_bytes: 64}}"
        for stage in range(stages)
    ]
    head = "system: {name: free}\npipeline:\n  schedule: torch.csv\n"
    return "\n".join([f"{head}  gradient_accumulation_count: {count}\n  stages:", *lines]) + "\n", cycles


def test_there_is_a_file_of_each_of_torchs_schedules():
    known = {"1F1B", "DualPipeV", "GPipe", "Interleaved1F1B", "InterleavedZeroBubble", "LoopedBFS", "ZBVZeroBubble"}
    assert {name.split("_")[0] for name in BARE} == known
    assert {name.split("_")[0] for name in COPIES} == known - {"1F1B"}


@sampled(2)
@pytest.mark.parametrize("seed", [pytest.param(0, marks=slowest), 1])
@pytest.mark.parametrize("name", BARE)
def test_the_makespan_is_the_longest_path(load_torchs, name, seed):
    ranks = slots_of(name)
    text, cycles = timed(name, seed)
    job = load_torchs(name, text)
    assert job.plan.sync is Sync.POINT_TO_POINT
    assert [[str(op) for _, ipu, op in job.plan.ops() if ipu == rank] for rank in range(len(ranks))] == [
        [f"{kind}{stage}.{number}" for slot in slots for stage, kind, number in slot] for slots in ranks
    ]
    assert execute(job).summary.makespan_cycles == longest_path(ranks, cycles)


def test_equal_passes_take_what_the_papers_say(load_torchs):
    """With n ranks, g micro-batches and I and W of 10 cycles like F, B twice as long.

    Under ZBV a rank that has begun does not pause: the last one begins n - 1 passes after the first.
    """
    forward, backward = 10, 20
    papers = {
        "GPipe_4": (COUNT + RANKS - 1) * (forward + backward),
        "1F1B_4": (COUNT + RANKS - 1) * (forward + backward),
        "LoopedBFS_8": 2 * COUNT * (forward + backward) + (RANKS - 1) * (forward + backward),
        "Interleaved1F1B_8": 2 * COUNT * (forward + backward) + (RANKS - 1) * (forward + backward),
        "InterleavedZeroBubble_4": COUNT * (forward + backward) + (RANKS - 1) * forward,
        "ZBVZeroBubble_8": 2 * COUNT * (forward + backward) + (RANKS - 1) * forward,
        "DualPipeV_8": 2 * COUNT * (forward + backward) + 2 * (RANKS - 1) * forward,
    }
    for begin, makespan in papers.items():
        name = f"{begin}_{RANKS}_{COUNT}"
        assert execute(load_torchs(name, timed(name, 0)[0])).summary.makespan_cycles == makespan


@pytest.mark.parametrize("name", [name for name in BARE if name.startswith(tuple(HOUSE))])
def test_the_orders_of_the_house_are_torchs(name):
    """Torch's idle cells say nothing: they are where it pads a row, not where a pass would wait."""
    of_file = read_schedule(FOLDER / f"{name}.csv", name)
    order = of_file.order(of_file.written)
    (own,) = (house for begin, house in HOUSE.items() if name.startswith(begin))
    right = find(own).lay_out(PlanShape(mapping=order.shape.mapping, micro_batches=sizes(name)[2]))
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
