"""Choose the fastest algorithm for collectives of replicas that communicate simultaneously."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Final, NamedTuple

from ipusim.hardware.collectives.across_pods import across_pods_all_reduce, by_pod
from ipusim.hardware.collectives.collective import Collective, Operation
from ipusim.hardware.collectives.cost import CollectiveCost, concurrent_cost, in_turn
from ipusim.hardware.collectives.ladder import ladder_all_reduce
from ipusim.hardware.collectives.pairwise import pairwise_all_to_all
from ipusim.hardware.collectives.ring import (
    in_both_directions,
    meeting_in_the_middle,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
)
from ipusim.hardware.system import System

#: Algorithm: function from system, participants, elements and itemsize to a collective.
Algorithm = Callable[[System, Sequence[int], int, int], Collective]


class Call(NamedTuple):
    """A requested collective, for which no algorithm is chosen yet.

    Attributes:
        operation: a key of :data:`ALGORITHMS`.
        group: participants.
        elements: length of a buffer.
        itemsize: bytes per element.
    """

    operation: Operation
    group: Sequence[int]
    elements: int
    itemsize: int


#: Algorithms of every operation, by name.
ALGORITHMS: Final[dict[Operation, dict[str, Algorithm]]] = {
    "all_reduce": {
        "ring": ring_all_reduce,
        "ladder": ladder_all_reduce,
        "bidirectional ring": partial(in_both_directions, "all_reduce"),
        "meet in the middle": partial(meeting_in_the_middle, "all_reduce"),
        "across pods": across_pods_all_reduce,
    },
    "reduce_scatter": {
        "ring": ring_reduce_scatter,
        "bidirectional ring": partial(in_both_directions, "reduce_scatter"),
        "meet in the middle": partial(meeting_in_the_middle, "reduce_scatter"),
    },
    "all_gather": {
        "ring": ring_all_gather,
        "bidirectional ring": partial(in_both_directions, "all_gather"),
        "meet in the middle": partial(meeting_in_the_middle, "all_gather"),
    },
    "all_to_all": {"pairwise": pairwise_all_to_all},
}


def fastest(
    operation: Operation, system: System, groups: Sequence[Sequence[int]], elements: Sequence[int], itemsize: int
) -> tuple[tuple[Collective, ...], CollectiveCost]:
    """Return collectives by the jointly fastest algorithm, one per group, and their cost.

    Args:
        operation: a key of :data:`ALGORITHMS`.
        system: the device.
        groups: participants per collective.
        elements: buffer length per group.
        itemsize: bytes per element.

    Algorithms unsuitable for a group are left out: the ladder needs an even number of participants, the algorithm
    across pods needs several pods with equal numbers of participants. Ties go to the first algorithm in
    :data:`ALGORITHMS`. Raises DeviceError for participants outside the system.
    """
    choices = []
    for name, algorithm in ALGORITHMS[operation].items():
        if all(_suits(name, system, group) for group in groups):
            sizes = zip(groups, elements, strict=True)
            collectives = tuple(algorithm(system, group, length, itemsize) for group, length in sizes)
            choices.append((collectives, concurrent_cost(system, collectives)))
    return min(choices, key=lambda choice: choice[1].total_cycles)


def fastest_all_reduce(
    system: System, groups: Sequence[Sequence[int]], elements: Sequence[int], itemsize: int
) -> tuple[tuple[Collective, ...], CollectiveCost]:
    """Return the :func:`fastest` all-reduces, for example of gradients before a weight update."""
    return fastest("all_reduce", system, groups, elements, itemsize)


def fastest_in_turn(system: System, batches: Sequence[Sequence[Call]]) -> tuple[str, CollectiveCost]:
    """Return the fastest common algorithm for consecutive batches of collectives, and the total cost.

    Args:
        system: the device.
        batches: one or more consecutive batches; collectives of a batch run simultaneously.

    Returns:
        Algorithm name present in :data:`ALGORITHMS` for every operation of the batches, and the total cost.

    Raises DeviceError like :func:`fastest`.
    """

    @cache
    def cost(name: str, *calls: Call) -> CollectiveCost:
        collectives = [
            ALGORITHMS[call.operation][name](system, call.group, call.elements, call.itemsize) for call in calls
        ]
        return concurrent_cost(system, collectives)

    calls = {call for batch in batches for call in batch}
    choices = [
        (name, in_turn([cost(name, *batch) for batch in batches]))
        for name in dict.fromkeys(name for algorithms in ALGORITHMS.values() for name in algorithms)
        if all(name in ALGORITHMS[call.operation] and _suits(name, system, call.group) for call in calls)
    ]
    return min(choices, key=lambda choice: choice[1].total_cycles)


def cycles_by_algorithm(system: System, call: Call) -> dict[str, int]:
    """Return the cycles of a collective under each algorithm that suits its participants."""
    return {
        name: concurrent_cost(system, [algorithm(system, call.group, call.elements, call.itemsize)]).total_cycles
        for name, algorithm in ALGORITHMS[call.operation].items()
        if _suits(name, system, call.group)
    }


def _suits(algorithm: str, system: System, group: Sequence[int]) -> bool:
    """Tell whether an algorithm can serve a group of participants."""
    match algorithm:
        case "ladder":
            return len(group) % 2 == 0
        case "across pods":
            member_counts = [len(members) for members in by_pod(system, group)]
            return len(member_counts) > 1 and len(set(member_counts)) == 1
    return True
