"""Schedules as torch writes them, timed here: a longest path says how long, the unsplit model what they learn."""

from __future__ import annotations

import re

import networkx as nx
import numpy as np
import pytest

from ipusim.pipeline.plan import Sync
from ipusim.runs.execute import execute
from tests import torch_schedules
from tests.effort import seeds
from tests.torch_schedules import text_of

RANKS, COUNT = 4, 8
CASES = {
    "gpipe": (torch_schedules.gpipe(RANKS, COUNT), (0, 1, 2, 3)),
    "1f1b": (torch_schedules.one_forward_one_backward(RANKS, COUNT), (0, 1, 2, 3)),
    "interleaved": (torch_schedules.interleaved_1f1b(RANKS, 2, COUNT), (0, 1, 2, 3, 0, 1, 2, 3)),
    "zbv": (torch_schedules.zbv(RANKS, COUNT), (0, 1, 2, 3, 3, 2, 1, 0)),
    "zbv of few": (torch_schedules.zbv(RANKS, 3), (0, 1, 2, 3, 3, 2, 1, 0)),
}


@pytest.fixture(params=CASES)
def case(request, tmp_path):
    rows, mapping = CASES[request.param]
    (tmp_path / "torch.csv").write_bytes(text_of(rows).encode())
    return rows, mapping


def cells(rows):
    """Yield (rank, stage, kind, micro-batch) in the order of each rank."""
    for rank, row in enumerate(rows):
        for cell in filter(None, row):
            stage, kind, micro_batch = re.fullmatch(r"(\d+)([FBIW])(\d+)", cell).groups()
            yield rank, int(stage), kind, int(micro_batch)


def longest_path(rows, cycles):
    """The makespan of passes that wait for their rank and for what they consume; copies take no time."""
    graph = nx.DiGraph()
    passes = [each[1:] for each in cells(rows)]
    stages = 1 + max(stage for stage, _, _ in passes)
    known = set(passes)
    before = {}
    for rank, *what in cells(rows):
        stage, kind, micro_batch = node = tuple(what)
        graph.add_edge((node, "begin"), (node, "end"), cycles=cycles[kind][stage])
        needs = [(stage - 1, "F", micro_batch)] if kind == "F" else [(stage, "F", micro_batch)]
        if kind == "W":
            needs = [(stage, "I", micro_batch)]
        if kind in "BI" and stage < stages - 1:
            needs += [(stage + 1, each, micro_batch) for each in "BI"]
        for need in [*needs, before.get(rank)]:
            if need in known:
                graph.add_edge((need, "end"), (node, "begin"), cycles=0)
        before[rank] = node
    return nx.dag_longest_path_length(graph, weight="cycles")


def timed(rows, seed):
    """A scenario of stages that take different times, and these times."""
    rng = np.random.default_rng(seed)
    stages = 1 + max(stage for _, stage, _, _ in cells(rows))
    count = 1 + max(micro_batch for *_, micro_batch in cells(rows))
    drawn = rng.integers(10, 100, (3, stages)).tolist() if seed else [[10] * stages] * 3
    cycles = dict(zip("FIW", drawn, strict=True))
    cycles["B"] = [each + other for each, other in zip(cycles["I"], cycles["W"], strict=True)]
    lines = [
        f"    - {{name: s{stage}, forward: {cycles['F'][stage]}, backward: {cycles['B'][stage]}, "
        f"backward_input: {cycles['I'][stage]}, backward_weights: {cycles['W'][stage]}, output_bytes: 64}}"
        for stage in range(stages)
    ]
    head = "system: {name: free}\npipeline:\n  schedule: torch.csv\n"
    return "\n".join([f"{head}  gradient_accumulation_count: {count}\n  stages:", *lines]) + "\n", cycles


@pytest.mark.parametrize("seed", seeds(4))
def test_the_makespan_is_the_longest_path(load, case, seed):
    rows, mapping = case
    text, cycles = timed(rows, seed)
    job = load(text)
    assert job.plan.sync is Sync.POINT_TO_POINT
    assert job.program.shape.mapping == mapping
    assert [[str(op) for _, ipu, op in job.plan.ops() if ipu == rank] for rank in range(RANKS)] == [
        [f"{kind}{stage}.{micro_batch}" for at, stage, kind, micro_batch in cells(rows) if at == rank]
        for rank in range(RANKS)
    ]
    assert execute(job).summary.makespan_cycles == longest_path(rows, cycles)


def test_equal_passes_take_what_the_papers_say(load, tmp_path):
    """With n ranks, g micro-batches and I and W of 10 cycles like F, B twice as long.

    Under ZBV a rank that has begun does not pause: the last one begins n - 1 passes after the first.
    """
    forward, backward = 10, 20
    papers = {
        "gpipe": (COUNT + RANKS - 1) * (forward + backward),
        "1f1b": (COUNT + RANKS - 1) * (forward + backward),
        "interleaved": 2 * COUNT * (forward + backward) + (RANKS - 1) * (forward + backward),
        "zbv": 2 * COUNT * (forward + backward) + (RANKS - 1) * forward,
    }
    for name, makespan in papers.items():
        rows, _ = CASES[name]
        (tmp_path / "torch.csv").write_text(text_of(rows))
        text, _ = timed(rows, 0)
        assert execute(load(text)).summary.makespan_cycles == makespan


MODEL = """
system: {{name: free}}
precision: float64
data: {{type: synthetic, shape: [6], classes: 3, samples: 64, seed: 3}}
model:
  layers:
{layers}
    - {{name: loss, type: softmax_cross_entropy}}
pipeline: {{{pipeline}, micro_batch_size: 2, gradient_accumulation_count: {count}, repeat_count: 2}}
optimizer: {{type: momentum, learning_rate: 0.1, momentum: 0.9}}
steps: 2
"""


def test_the_training_is_that_of_the_unsplit_model(load, case):
    rows, mapping = case
    count = 1 + max(micro_batch for *_, micro_batch in cells(rows))
    names = [f"d{stage}" for stage in range(len(mapping))]
    layers = [f"    - {{name: {name}, type: dense, units: 5, activation: tanh}}" for name in names[:-1]]
    layers.append(f"    - {{name: {names[-1]}, type: dense, units: 3}}")
    split = f"schedule: torch.csv, splits: [{', '.join(names[1:])}]"
    mine, whole = (
        execute(load(MODEL.format(layers="\n".join(layers), pipeline=pipeline, count=count))).learning
        for pipeline in (split, "schedule: single")
    )
    assert len(mine.losses) == len(whole.losses) == 4 * count
    losses, right = ([each.loss for each in run.losses] for run in (mine, whole))
    np.testing.assert_allclose(losses, right, rtol=0, atol=1e-12)
    assert mine.weights.keys() == whole.weights.keys()
    for name, array in whole.weights.items():
        np.testing.assert_allclose(mine.weights[name], array, rtol=0, atol=1e-12)
    assert np.ptp(right) > 0.01  # it learns
