"""Plans of collectives as data, what the check refuses, how they run, and which algorithm is chosen."""

import numpy as np
import pytest

from ipusim.base.errors import DeviceError, ModelError, PlanError, QuantityError
from ipusim.hardware.build import build_system
from ipusim.hardware.collectives.choose import ALGORITHMS, fastest, fastest_all_reduce
from ipusim.hardware.collectives.collective import Collective, Transfer
from ipusim.hardware.collectives.cost import CollectiveCost, concurrent_cost
from ipusim.hardware.collectives.ladder import ladder_all_reduce
from ipusim.hardware.collectives.pairwise import pairwise_all_to_all
from ipusim.hardware.collectives.ring import ring_all_reduce, ring_order
from ipusim.hardware.collectives.run import run
from ipusim.hardware.copies import FixedParts
from tests.machine_costs import collective_cost, replica_groups


def ladder(count=16, order="ZIGZAG", machine="c2_server"):
    return build_system(machine, mapping=range(min(count, 64)), ipus=count, selection_order=order)


def test_a_ring_in_words():
    assert str(ring_all_reduce(ladder(4), range(4), 10, 4)) == (
        "all_reduce (ring) of 10 x 4 bytes over IPUs 0 1 2 3\n"
        "round 0: 0→2 +[3:6], 2→3 +[0:3], 3→1 +[6:9], 1→0 +[9:10]\n"
        "round 1: 0→2 +[9:10], 2→3 +[3:6], 3→1 +[0:3], 1→0 +[6:9]\n"
        "round 2: 0→2 +[6:9], 2→3 +[9:10], 3→1 +[3:6], 1→0 +[0:3]\n"
        "round 3: 0→2 [0:3], 2→3 [6:9], 3→1 [9:10], 1→0 [3:6]\n"
        "round 4: 0→2 [3:6], 2→3 [0:3], 3→1 [6:9], 1→0 [9:10]\n"
        "round 5: 0→2 [9:10], 2→3 [3:6], 3→1 [0:3], 1→0 [6:9]"
    )


def test_an_all_to_all_in_words():
    assert str(pairwise_all_to_all(ladder(4), range(4), 8, 4)) == (
        "all_to_all (pairwise) of 8 x 4 bytes over IPUs 0 1 2 3\n"
        "round 0: 0→1 [2:4]@0, 1→0 [0:2]@2, 2→3 [6:8]@4, 3→2 [4:6]@6\n"
        "round 1: 0→2 [4:6]@0, 1→3 [6:8]@2, 2→0 [0:2]@4, 3→1 [2:4]@6\n"
        "round 2: 0→3 [6:8]@0, 1→2 [4:6]@2, 2→1 [2:4]@4, 3→0 [0:2]@6"
    )


def test_of_three_participants_one_pauses_in_each_round_of_an_all_to_all():
    collective = pairwise_all_to_all(ladder(4), (0, 1, 2), 7, 4)
    assert [[str(each) for each in transfers] for transfers in collective.rounds] == [
        ["1→2 [6:7]@3", "2→1 [3:6]@6"],
        ["0→1 [3:6]@0", "1→0 [0:3]@3"],
        ["0→2 [6:7]@0", "2→0 [0:3]@6"],
    ]


@pytest.mark.parametrize(
    ("system", "participants", "ring"),
    [
        (ladder(8), range(8), (0, 2, 4, 6, 7, 5, 3, 1)),
        (ladder(8, "SNAKE"), range(8), (0, 3, 4, 7, 6, 5, 2, 1)),
        (ladder(8, "HOOF"), range(8), (0, 1, 2, 3, 4, 5, 6, 7)),
        (ladder(16), (0, 4, 8, 12), (0, 8, 12, 4)),
        (ladder(16), (12, 8, 0, 4), (0, 8, 12, 4)),
        (ladder(16), (4, 5, 8, 9), (4, 8, 9, 5)),
        (ladder(16), (0, 4, 9, 13), (0, 4, 13, 9)),
        (ladder(64, machine="pod64"), range(0, 64, 16), (0, 16, 32, 48)),
        (ladder(16), (5,), (5,)),
    ],
)
def test_rings_follow_the_links(system, participants, ring):
    assert ring_order(system, participants) == ring


@pytest.mark.parametrize(("operation", "name"), [(op, name) for op, names in ALGORITHMS.items() for name in names])
def test_nothing_to_do_has_no_rounds_and_no_cost(operation, name):
    for participants, elements in (((0,), 10), (range(4), 0)):
        collective = ALGORITHMS[operation][name](ladder(), participants, elements, 4)
        assert collective.rounds == ()
        assert collective_cost(ladder(), collective) == CollectiveCost(FixedParts(), ())
    assert concurrent_cost(ladder(), []).total_cycles == 0


@pytest.mark.parametrize(
    ("participants", "elements", "itemsize", "error", "message"),
    [
        ((), 5, 4, DeviceError, "all_reduce (ring): expected one or more different IPUs from 0 up, got ()"),
        (
            (0, 1, 0),
            5,
            4,
            DeviceError,
            "all_reduce (ring): expected one or more different IPUs from 0 up, got (0, 1, 0)",
        ),
        ((0, 1), -5, 4, QuantityError, "all_reduce (ring): expected a number of elements from 0 up, got -5"),
        ((0, 1), 5, 0, QuantityError, "all_reduce (ring): expected elements of 1 byte or more, got 0"),
        ((0, 4), 5, 4, DeviceError, "c2_server: no IPU 4 in a device of 4 IPUs"),
    ],
)
def test_collectives_that_cannot_be(participants, elements, itemsize, error, message, refused):
    refused(error, message, lambda: ring_all_reduce(ladder(4), participants, elements, itemsize))


def test_a_ladder_has_no_half_rungs():
    with pytest.raises(DeviceError, match=r"all_reduce \(ladder\): expected an even number of participants, got 3"):
        ladder_all_reduce(ladder(4), (0, 1, 2), 5, 4)


def test_running_leaves_the_buffers_alone_and_keeps_shapes():
    collective = ring_all_reduce(ladder(4), range(4), 6, 8)
    buffers = [np.full((2, 3), 10.0**place) for place in range(4)]
    before = [each.copy() for each in buffers]
    results = run(collective, buffers)
    assert all(np.array_equal(one, other) for one, other in zip(buffers, before, strict=True))
    assert all(np.array_equal(each, np.full((2, 3), 1111.0)) for each in results)
    assert not any(
        np.shares_memory(one, other) for one in results for other in [*buffers, *results] if one is not other
    )


@pytest.mark.parametrize(
    ("buffers", "message"),
    [
        ([np.zeros(4)], "all_reduce (ring): expected 2 buffers, one per participant, got 1"),
        ([np.zeros(4), np.zeros(5)], "all_reduce (ring): expected 4 elements of 8 bytes on IPU 1, got 5 of 8"),
        ([np.zeros(4), np.zeros(4, "f4")], "all_reduce (ring): expected 4 elements of 8 bytes on IPU 1, got 4 of 4"),
        ([np.zeros(4), np.zeros(4, "i8")], "all_reduce (ring): expected float64 on IPU 1, got int64"),
    ],
)
def test_buffers_that_are_not_the_plan_s(buffers, message, refused):
    refused(ModelError, message, lambda: run(ring_all_reduce(ladder(2), (0, 1), 4, 8), buffers))


@pytest.mark.parametrize(
    ("transfer", "message"),
    [
        (Transfer(0, 1, 3, 5), "0→1 [3:5] goes beyond the 4 elements on IPU 0"),
        (Transfer(0, 1, 0, 1, shift=-1), "0→1 [0:1]@-1 goes beyond the 4 elements on IPU 1"),
        (Transfer(0, 7, 0, 1), "0→7 [0:1] is with IPU 7, which takes no part"),
    ],
)
def test_plans_that_cannot_run(transfer, message, refused):
    collective = Collective("all_reduce", "by hand", (0, 1), 4, 8, ((transfer,),))
    refused(PlanError, f"all_reduce (by hand): round 0: {message}", lambda: run(collective, [np.zeros(4), np.zeros(4)]))


def test_on_the_free_system_collectives_carry_bytes_in_no_time():
    system = build_system("free", mapping=[0], ipus=4)
    cost = collective_cost(system, ring_all_reduce(system, range(4), 10**9, 4))
    assert cost.total_cycles == 0
    assert sum(count for _, count in cost.link_bytes) == 2 * 3 * 10**9 * 4


@pytest.mark.parametrize(
    ("machine", "count", "replicas", "elements", "algorithm"),
    [
        ("c2_server", 2, 2, 10**6, "ring"),  # a rung alone: all the same
        ("c2_server", 4, 4, 10**6, "bidirectional ring"),
        ("c2_server", 4, 4, 100, "ladder"),  # 4 rounds instead of 6
        ("pod64", 64, 64, 100, "meet in the middle"),  # 64 rounds instead of 126
        ("c2_server", 16, 16, 10**6, "meet in the middle"),
        ("c2_server", 16, 4, 10**6, "meet in the middle"),  # a line is used both ways by one ring, in more rounds
        ("pod64", 64, 16, 10**6, "meet in the middle"),
        ("free", 16, 16, 10**6, "ring"),
    ],
)
def test_the_fastest_all_reduce(machine, count, replicas, elements, algorithm):
    system = build_system(machine, mapping=range(min(count, 64)), ipus=count, selection_order="SNAKE")
    groups = replica_groups(count, replicas)
    collectives, cost = fastest_all_reduce(system, groups, [elements] * len(groups), 4)
    assert [collective.algorithm for collective in collectives] == [algorithm] * len(groups)
    assert [collective.participants for collective in collectives] == list(groups)
    assert cost == concurrent_cost(system, collectives)
    others = [
        concurrent_cost(system, [make(system, group, elements, 4) for group in groups])
        for make in ALGORITHMS["all_reduce"].values()
    ]
    assert cost.total_cycles == min(each.total_cycles for each in others)


@pytest.mark.parametrize("operation", ["reduce_scatter", "all_gather"])
def test_half_of_an_all_reduce_takes_half_of_its_rounds(operation):
    (collective,), cost = fastest(operation, ladder(16), [range(16)], [16 * 10**6], 1)
    (_,), whole = fastest_all_reduce(ladder(16), [range(16)], [16 * 10**6], 1)
    assert collective.operation == operation
    assert 2 * cost.rounds_cycles == whole.rounds_cycles
