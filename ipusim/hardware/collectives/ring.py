"""Lay out collectives in a ring, where every participant sends to the next simultaneously.

In a reduce-scatter over R participants a chunk starts one position behind its owner and travels once round the ring.
On the way, every participant adds its values. After R - 1 rounds the complete sum arrives at the owner. An all-gather
sends complete chunks round once more. Both together are the ring all-reduce (P. Patarasuk and X. Yuan, Bandwidth
optimal all-reduce algorithms for clusters of workstations, 2009). Every addition rounds to the buffers' type. All
participants get identical bits, as an all-gather only copies.

A ring along the links uses only one direction of a link. Two simultaneous rings in opposite directions, with half of
every chunk per ring, use both (``bidirectional_ring_pair`` of Graphcore's collectives, PopLibs
include/popops/Collectives.hpp). A pod is a ladder of rungs (pairs of linked IPUs) on two rails, or a torus if the rails
close. On a torus (POD64) two rings halve the time (Graphcore's ``rung-ring``, which assumes a wrap-around). On a ladder
with open ends (POD16) a ring returns along the same rails (``ring-on-line``), so a single ring already uses both
directions. A larger pod may therefore sum faster. For R replicas of four IPUs, a rail direction carries 2 (R - 1) / R
times two buffers on the ladder, and half of this amount on the torus. So 16 replicas on a POD64 take (15 / 16) / (3 /
2) = 0.625 of the time of 4 replicas on a POD16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from itertools import zip_longest
from typing import Final

from ipusim.hardware.collectives.collective import (
    Collective,
    Operation,
    Round,
    Transfer,
    chunks,
    in_physical_order,
    side_by_side,
)
from ipusim.hardware.copies import bytes_by_direction
from ipusim.hardware.pods import PodRing
from ipusim.hardware.rates import Rates
from ipusim.hardware.system import System
from ipusim.hardware.topology import Topology


def ring_order(system: System, participants: Sequence[int]) -> tuple[int, ...]:
    """Return logical IPUs in ring order on the links of ``system``.

    Two rings are compared. The first goes up the even rail and down the odd rail; for whole rungs this is Graphcore's
    selection order HOOF, with hops over a single link. The second goes up over every other participant and down over
    the rest, which avoids a long way back if all participants are on one rail of a ladder. The ring whose busiest link
    needs less time wins; in a tie the ring with the shorter longest route, then the ring with fewer hops, then the
    first ring.
    """
    return _ring_order(system.topology, system.ipus, system.rates, tuple(in_physical_order(system, participants)))


@lru_cache(maxsize=1024)  # buffers of every size, in every cut of a model, share an order
def _ring_order(
    topology: Topology | PodRing, ipus: tuple[int, ...], rates: Rates, ordered_ipus: tuple[int, ...]
) -> tuple[int, ...]:
    """Return :func:`ring_order` of participants in physical order."""
    even_ipus = tuple(ipu for ipu in ordered_ipus if ipus[ipu] % 2 == 0)
    odd_ipus = tuple(ipu for ipu in ordered_ipus if ipus[ipu] % 2 == 1)

    def cost_of_ring(ring: Sequence[int]) -> tuple[Fraction, int, int]:
        routes = [topology.route(ipus[source], ipus[target]) for source, target in _hops(ring)]
        loads = bytes_by_direction((route, 1) for route in routes)
        slowest = max((count / direction.bytes_per_s(rates) for direction, count in loads), default=Fraction(0))
        return slowest, max(map(len, routes)), sum(map(len, routes))

    return min((even_ipus + odd_ipus[::-1], ordered_ipus[::2] + ordered_ipus[1::2][::-1]), key=cost_of_ring)


def _in_a_ring(
    operation: Operation, system: System, participants: Sequence[int], elements: int, itemsize: int
) -> Collective:
    collective = Collective(operation, "ring", tuple(participants), elements, itemsize)
    return collective.with_rounds(_ROUNDS[operation](*_ring_of_chunks(system, collective)))


def in_both_directions(
    operation: Operation, system: System, participants: Sequence[int], elements: int, itemsize: int
) -> Collective:
    """Return a collective in two rings: rounds of a single ring with ceil(elements / 2R) in both directions.

    The first half of a chunk is summed in ring order, from the position behind the owner to the owner. The second half
    is summed in the opposite order.
    """
    collective = Collective(operation, "bidirectional ring", tuple(participants), elements, itemsize)
    ring, owned = _ring_of_chunks(system, collective)
    first, second = zip(*(chunks(chunk.start, chunk.stop, 2) for chunk in owned), strict=True)
    rounds = _ROUNDS[operation]
    return collective.with_rounds(side_by_side([rounds(ring, first), rounds(ring[::-1], second[::-1])]))


def meeting_in_the_middle(
    operation: Operation, system: System, participants: Sequence[int], elements: int, itemsize: int
) -> Collective:
    """Return a collective in which each chunk travels half-way round the ring in either direction.

    Partial sums from both directions meet at the chunk's owner, and copies leave the owner in both directions:
    R / 2 rounds of ceil(elements / R) in both directions. PopLibs prefers this collective on a torus
    (MEET_IN_MIDDLE_RING, lib/popops/ReplicatedCollectives.cpp before 887b9d3a).
    """
    collective = Collective(operation, "meet in the middle", tuple(participants), elements, itemsize)
    ring, owned = _ring_of_chunks(system, collective)
    half = len(ring) // 2
    shorter_half = len(ring) - 1 - half
    scattered = reduce_scatter_rounds(ring, owned)[shorter_half:], reduce_scatter_rounds(ring[::-1], owned[::-1])[half:]
    gathered = all_gather_rounds(ring, owned)[:half], all_gather_rounds(ring[::-1], owned[::-1])[:shorter_half]
    phases = {"reduce_scatter": [scattered], "all_gather": [gathered]}.get(operation, [scattered, gathered])
    rounds = [first + second for way in phases for first, second in zip_longest(*way, fillvalue=())]
    return collective.with_rounds(rounds)


def _ring_of_chunks(system: System, collective: Collective) -> tuple[tuple[int, ...], list[slice]]:
    """Return the ring, and the chunk of the IPU at every ring position."""
    ring = ring_order(system, collective.participants)
    rank = {ipu: number for number, ipu in enumerate(collective.participants)}
    return ring, [collective.chunk_of(rank[ipu]) for ipu in ring]


#: Ring all-reduce of R participants: 2(R - 1) rounds of ceil(elements / R).
ring_all_reduce: Final = partial(_in_a_ring, "all_reduce")
#: Ring reduce-scatter of R participants: R - 1 rounds of ceil(elements / R).
ring_reduce_scatter: Final = partial(_in_a_ring, "reduce_scatter")
#: Ring all-gather of R participants: R - 1 rounds; ``elements`` is the total of the chunks.
ring_all_gather: Final = partial(_in_a_ring, "all_gather")


def _all_reduce_rounds(ring: Sequence[int], parts: Sequence[slice]) -> list[Round]:
    return reduce_scatter_rounds(ring, parts) + all_gather_rounds(ring, parts)


def reduce_scatter_rounds(ring: Sequence[int], parts: Sequence[slice]) -> list[Round]:
    """Return the rounds that sum the elements of every part at the part's ring position."""
    return _rounds(ring, [*parts[-1:], *parts[:-1]], reduce=True)


def all_gather_rounds(ring: Sequence[int], parts: Sequence[slice]) -> list[Round]:
    """Return the rounds that copy the elements of every part to every IPU."""
    return _rounds(ring, parts, reduce=False)


def _rounds(ring: Sequence[int], parts: Sequence[slice], reduce: bool) -> list[Round]:
    """Return rounds that pass the parts round the ring, starting with the local part."""
    hops, ends, count = _hops(ring), [(part.start, part.stop) for part in parts], len(parts)
    twice = [*ends, *ends]
    return [
        tuple(
            [
                Transfer(source, target, start, stop, reduce)
                for (source, target), (start, stop) in zip(
                    hops, twice[count - number : 2 * count - number], strict=True
                )
            ]
        )
        for number in range(len(ring) - 1)
    ]


def _hops(ring: Sequence[int]) -> list[tuple[int, int]]:
    return [(source, ring[(position + 1) % len(ring)]) for position, source in enumerate(ring)]


#: By operation, the function that returns the rounds of a ring; it takes the ring and the elements at ring positions.
_ROUNDS: Final[dict[Operation, Callable[[Sequence[int], Sequence[slice]], list[Round]]]] = {
    "all_reduce": _all_reduce_rounds,
    "reduce_scatter": reduce_scatter_rounds,
    "all_gather": all_gather_rounds,
}
