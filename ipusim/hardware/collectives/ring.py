"""Collectives in a ring: each participant sends to the next, all at the same time.

In a reduce-scatter over R participants every chunk starts one position behind its
owner, travels once round, and is added to at each position; after R - 1 rounds it
arrives complete at its owner. An all-gather sends the complete chunks round once
more. The two together are the ring all-reduce (P. Patarasuk and X. Yuan,
Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009).

The sum of a chunk is therefore taken in the order of the ring, from the position
behind its owner to the owner itself, and is rounded to the buffers' type after
each addition; an all-gather copies, so all participants get the same bits.

A ring that follows the links uses each of them in one direction only. Two rings
the opposite ways round, at the same time, each with half of every chunk, use both
(``bidirectional_ring_pair`` of Graphcore's collectives, PopLibs include/popops/Collectives.hpp).

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

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Final

from ipusim.hardware.collectives.collective import (
    Collective,
    Operation,
    Round,
    Transfer,
    as_they_lie,
    chunks,
    side_by_side,
)
from ipusim.hardware.copies import bytes_by_direction
from ipusim.hardware.pods import PodRing
from ipusim.hardware.rates import Rates
from ipusim.hardware.system import System
from ipusim.hardware.topology import Topology


def ring_order(system: System, participants: Sequence[int]) -> tuple[int, ...]:
    """Return logical IPUs in the order of a ring on the links of ``system``, the last one's next being the first.

    Two rings are compared: up the even rail and down the odd one, which is the
    HOOF order when the participants are whole rungs, all of its hops over one
    link; and every other participant up, the rest down, which spares participants
    on one rail of a ladder the long way back. The one whose busiest link is
    faster wins, then the one with the shorter longest route, then the fewer hops,
    then the first.
    """
    return _ring_order(system.topology, system.ipus, system.rates, tuple(as_they_lie(system, participants)))


@lru_cache(maxsize=1024)  # for buffers of any size, of many cuts of a model
def _ring_order(
    topology: Topology | PodRing, ipus: tuple[int, ...], rates: Rates, ordered: tuple[int, ...]
) -> tuple[int, ...]:
    """Return :func:`ring_order` of participants as they lie."""
    even = tuple(ipu for ipu in ordered if ipus[ipu] % 2 == 0)
    odd = tuple(ipu for ipu in ordered if ipus[ipu] % 2 == 1)

    def burden(ring: Sequence[int]) -> tuple[Fraction, int, int]:
        routes = [topology.route(ipus[source], ipus[target]) for source, target in _hops(ring)]
        loads = bytes_by_direction((route, 1) for route in routes)
        slowest = max((count / direction.bytes_per_s(rates) for direction, count in loads), default=Fraction(0))
        return slowest, max(map(len, routes)), sum(map(len, routes))

    return min((even + odd[::-1], ordered[::2] + ordered[1::2][::-1]), key=burden)


def _in_a_ring(
    operation: Operation, system: System, participants: Sequence[int], elements: int, itemsize: int
) -> Collective:
    collective = Collective(operation, "ring", tuple(participants), elements, itemsize)
    return collective.with_rounds(_ROUNDS[operation](*_ring_of_chunks(system, collective)))


def in_both_directions(
    operation: Operation, system: System, participants: Sequence[int], elements: int, itemsize: int
) -> Collective:
    """Return a collective in two rings: as many rounds as in one, of ceil(elements / 2R) in both directions.

    The first half of each chunk is summed in the order of the ring from the position
    behind its owner to the owner, the second half in the opposite order.
    """
    collective = Collective(operation, "bidirectional ring", tuple(participants), elements, itemsize)
    ring, owned = _ring_of_chunks(system, collective)
    first, second = zip(*(chunks(chunk.start, chunk.stop, 2) for chunk in owned), strict=True)
    rounds = _ROUNDS[operation]
    return collective.with_rounds(side_by_side([rounds(ring, first), rounds(ring[::-1], second[::-1])]))


def _ring_of_chunks(system: System, collective: Collective) -> tuple[tuple[int, ...], list[slice]]:
    """Return the ring, and for each of its positions the chunk that belongs to the IPU there."""
    ring = ring_order(system, collective.participants)
    rank = {ipu: number for number, ipu in enumerate(collective.participants)}
    return ring, [collective.chunk_of(rank[ipu]) for ipu in ring]


#: In a ring of R participants: 2(R - 1) rounds of ceil(elements / R).
ring_all_reduce: Final = partial(_in_a_ring, "all_reduce")
#: The same with R - 1 rounds.
ring_reduce_scatter: Final = partial(_in_a_ring, "reduce_scatter")
#: The same, of chunks that are ``elements`` together.
ring_all_gather: Final = partial(_in_a_ring, "all_gather")


def _all_reduce_rounds(ring: Sequence[int], parts: Sequence[slice]) -> list[Round]:
    return reduce_scatter_rounds(ring, parts) + all_gather_rounds(ring, parts)


def reduce_scatter_rounds(ring: Sequence[int], parts: Sequence[slice]) -> list[Round]:
    """Return the rounds after which each IPU of ``ring`` holds the sum of the elements at its position in ``parts``."""
    return _rounds(ring, [*parts[-1:], *parts[:-1]], reduce=True)


def all_gather_rounds(ring: Sequence[int], parts: Sequence[slice]) -> list[Round]:
    """Return the rounds after which every IPU of ``ring`` holds what each had at its position in ``parts``."""
    return _rounds(ring, parts, reduce=False)


def _rounds(ring: Sequence[int], parts: Sequence[slice], reduce: bool) -> list[Round]:
    """Return the rounds in which each IPU of ``ring`` sends its part first, and then what came in the round before."""
    hops, ends, first = _hops(ring), [(part.start, part.stop) for part in parts], len(parts)
    twice = [*ends, *ends]
    return [
        tuple(
            [
                Transfer(source, target, start, stop, reduce)
                for (source, target), (start, stop) in zip(
                    hops, twice[first - number : 2 * first - number], strict=True
                )
            ]
        )
        for number in range(len(ring) - 1)
    ]


def _hops(ring: Sequence[int]) -> list[tuple[int, int]]:
    return [(source, ring[(position + 1) % len(ring)]) for position, source in enumerate(ring)]


#: The rounds of each operation, by a ring and the elements at its positions.
_ROUNDS: Final[dict[Operation, Callable[[Sequence[int], Sequence[slice]], list[Round]]]] = {
    "all_reduce": _all_reduce_rounds,
    "reduce_scatter": reduce_scatter_rounds,
    "all_gather": all_gather_rounds,
}
