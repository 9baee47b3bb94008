"""Two rings in opposite directions, each with half of every chunk.

A ring that follows the links uses each of them in one direction only. Two rings
the opposite ways round, at the same time, use both (``bidirectional_ring_pair``
of Graphcore's collectives, PopLibs include/popops/Collectives.hpp).

So a larger pod may sum up faster than a smaller one. On a torus (POD64) the rings of
replicas close by links of their own (Graphcore's ``rung-ring``, which assumes a
wrap-around), and the pair halves the time. On a ladder with open ends (POD16) one ring comes
back by the rails that it went out on (``ring-on-line``): it fills both of their
directions alone, and the pair gains nothing. With R replicas of four IPUs, two
on each rail, a direction of a rail carries 2 (R - 1) / R of two buffers on the
ladder and half of that on the torus: 16 replicas on a POD64 take (15 / 16) / (3 / 2) =
0.625 of the time of 4 on a POD16.
"""

from __future__ import annotations

from collections.abc import Sequence

from ipusim.hardware.collectives.collective import Collective, chunks, side_by_side
from ipusim.hardware.collectives.ring import all_gather_rounds, reduce_scatter_rounds, ring_of_chunks
from ipusim.hardware.system import System


def bidirectional_all_reduce(system: System, participants: Sequence[int], elements: int, itemsize: int) -> Collective:
    """Return the all-reduce in two rings: 2(R - 1) rounds of ceil(elements / 2R) in both directions.

    The first half of each chunk is summed in the order of the ring from the position
    behind its owner to the owner, the second half in the opposite order.
    """
    collective = Collective("all_reduce", "bidirectional ring", tuple(participants), elements, itemsize)
    ways = _ways(system, collective)
    return collective.with_rounds(side_by_side([reduce_scatter_rounds(*way) + all_gather_rounds(*way) for way in ways]))


def bidirectional_reduce_scatter(
    system: System, participants: Sequence[int], elements: int, itemsize: int
) -> Collective:
    """Return the reduce-scatter in two rings: R - 1 rounds of ceil(elements / 2R) in both directions."""
    collective = Collective("reduce_scatter", "bidirectional ring", tuple(participants), elements, itemsize)
    return collective.with_rounds(side_by_side([reduce_scatter_rounds(*way) for way in _ways(system, collective)]))


def bidirectional_all_gather(system: System, participants: Sequence[int], elements: int, itemsize: int) -> Collective:
    """Return the all-gather in two rings: R - 1 rounds of ceil(elements / 2R) in both directions."""
    collective = Collective("all_gather", "bidirectional ring", tuple(participants), elements, itemsize)
    return collective.with_rounds(side_by_side([all_gather_rounds(*way) for way in _ways(system, collective)]))


def _ways(system: System, collective: Collective) -> list[tuple[tuple[int, ...], list[slice]]]:
    """Return both rings, and for each of their positions the half chunk that belongs to the IPU there."""
    ring, owned = ring_of_chunks(system, collective)
    first, second = zip(*(chunks(chunk.start, chunk.stop, 2) for chunk in owned), strict=True)
    return [(ring, list(first)), (ring[::-1], list(second[::-1]))]
