"""Collectives in a ring: each participant sends to the next, all at the same time.

In a reduce-scatter over R participants every chunk starts one position behind its
owner, travels once round, and is added to at each position; after R - 1 rounds it
arrives complete at its owner. An all-gather sends the complete chunks round once
more. The two together are the ring all-reduce (P. Patarasuk and X. Yuan,
Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009).

The sum of a chunk is therefore taken in the order of the ring, from the position
behind its owner to the owner itself, and is rounded to the buffers' type after
each addition; an all-gather copies, so all participants get the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from ipusim.hardware.collectives.collective import Collective, Round, Transfer
from ipusim.hardware.collectives.positions import as_they_lie
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


def ring_of_chunks(system: System, collective: Collective) -> tuple[tuple[int, ...], list[slice]]:
    """Return the ring, and for each of its positions the chunk that belongs to the IPU there."""
    ring = ring_order(system, collective.participants)
    rank = {ipu: number for number, ipu in enumerate(collective.participants)}
    return ring, [collective.chunk_of(rank[ipu]) for ipu in ring]


def ring_all_reduce(system: System, participants: Sequence[int], elements: int, itemsize: int) -> Collective:
    """Return the ring all-reduce: 2(R - 1) rounds of ceil(elements / R)."""
    collective = Collective("all_reduce", "ring", tuple(participants), elements, itemsize)
    ring, parts = ring_of_chunks(system, collective)
    return collective.with_rounds(reduce_scatter_rounds(ring, parts) + all_gather_rounds(ring, parts))


def ring_reduce_scatter(system: System, participants: Sequence[int], elements: int, itemsize: int) -> Collective:
    """Return the ring reduce-scatter: R - 1 rounds of ceil(elements / R)."""
    collective = Collective("reduce_scatter", "ring", tuple(participants), elements, itemsize)
    return collective.with_rounds(reduce_scatter_rounds(*ring_of_chunks(system, collective)))


def ring_all_gather(system: System, participants: Sequence[int], elements: int, itemsize: int) -> Collective:
    """Return the ring all-gather of chunks that are ``elements`` together: R - 1 rounds of ceil(elements / R)."""
    collective = Collective("all_gather", "ring", tuple(participants), elements, itemsize)
    return collective.with_rounds(all_gather_rounds(*ring_of_chunks(system, collective)))


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
