"""Gradients that replicas sum up one after the other: what waits for what, and what it takes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipusim.hardware.collectives.choose import ALGORITHMS
from ipusim.hardware.collectives.cost import CollectiveCost, concurrent_cost, in_turn
from ipusim.pricing.collectives import sum_buffers
from ipusim.runs.execute import execute
from tests.oracles.test_offload import LAYERS

#: Two IPUs a replica.
SPLIT = "system={name: pod16, auto_select_ipus: 16}", "pipeline.splits=[c]"
#: Elements of the variables of each IPU: weights and bias of two layers, and of one.
SIZES = {0: [240, 40, 1200, 30], 1: [90, 3]}
KEY = "system.maximum_cross_replica_sum_buffer_size"


@pytest.fixture
def load(load):
    return lambda size=None, *more: load(LAYERS, *SPLIT, *([] if size is None else [f"{KEY}={size}"]), *more)


@given(st.lists(st.tuples(st.integers(1, 50), st.sampled_from([2, 4])), max_size=12), st.integers(0, 300))
def test_gradients_of_a_type_wait_until_they_are_large_enough(tensors, least):
    """Each is summed up once, beside others of its type in their order; but for the last none waits too long."""
    buffers = list(sum_buffers(tensors, least))
    assert sorted(number for buffer in buffers for number in buffer) == list(range(len(tensors)))
    for itemsize in (2, 4):
        own = [buffer for buffer in buffers if tensors[buffer[0]][1] == itemsize]
        assert [number for buffer in own for number in buffer] == [
            number for number, (_, size) in enumerate(tensors) if size == itemsize
        ]
        for buffer in own:
            sizes = [math.prod(tensors[number]) for number in buffer]
            assert sum(sizes[:-1]) < max(least, 1)
            assert sum(sizes) >= least or buffer is own[-1]


@pytest.mark.parametrize(
    ("size", "buffers"),
    [
        (0, [(0, 240), (0, 40), (0, 1200), (0, 30), (1, 90), (1, 3)]),
        (960, [(0, 240), (0, 1240), (0, 30), (1, 93)]),
        (961, [(0, 280), (0, 1200), (0, 30), (1, 93)]),
        (10**6, [(0, 1510), (1, 93)]),
    ],
)
def test_one_sum_follows_the_other(load, size, buffers):
    """Each takes what it does by itself; the run takes that long, and records its rounds."""
    job = load(size)
    found, system = job.costs.gradient_sum, job.system
    alone = [
        concurrent_cost(
            system,
            [ALGORITHMS["all_reduce"][found.algorithm](system, range(ipu, system.count, system.shards), elements, 4)],
        )
        for ipu, elements in buffers
    ]
    assert found.cost.total_cycles == sum(each.total_cycles for each in alone)
    assert found.cost.rounds == tuple(round_ for each in alone for round_ in each.rounds)
    assert found.bytes == 4 * sum(map(sum, SIZES.values()))
    merged = load().costs.gradient_sum
    assert len(merged.cost.rounds) < len(found.cost.rounds)
    assert found.cost.total_cycles > merged.cost.total_cycles
    summary = execute(job).summary
    assert summary.gradient_sum.cycles == found.cost.total_cycles
    assert summary.run_use[0].cycles["all_reduce"] == summary.executions * found.cost.total_cycles


@pytest.mark.parametrize("name", ["ring", "ladder", "bidirectional ring"])
def test_the_fastest_algorithm_for_all_of_them_is_taken(load, name):
    job = load(0)
    found, system = job.costs.gradient_sum, job.system
    other = sum(
        concurrent_cost(
            system, [ALGORITHMS["all_reduce"][name](system, range(ipu, system.count, system.shards), elements, 4)]
        ).total_cycles
        for ipu, sizes in SIZES.items()
        for elements in sizes
    )
    assert found.cost.total_cycles <= other
    assert (found.cost.total_cycles == other) == (name == found.algorithm)


def test_costs_in_turn_leave_out_what_has_nothing_to_do(load):
    cost = load().costs.gradient_sum.cost
    nothing = CollectiveCost(cost.fixed, ())
    assert in_turn([nothing, cost, nothing]) == cost
    assert in_turn([nothing, nothing]) == nothing
    twice = in_turn([cost, cost])
    assert in_turn([twice, cost]) == in_turn([cost, twice]) == in_turn([cost] * 3)
    assert twice.total_cycles == 2 * cost.total_cycles
