"""Lay out an all-reduce over several pods: within pods, across GW-Links, then within pods again.

Every pod reduce-scatters in two rings. IPUs with the same chunk, one per pod, then all-reduce the chunk in a ring over
GW-Links. Finally every pod gathers. Only one chunk per IPU crosses the GW-Links, which are slower than IPU-Links. The
two halves of the buffer travel in opposite directions, within and across pods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ipusim.base.errors import DeviceError
from ipusim.hardware.collectives.collective import Collective, Round, chunks, in_physical_order, side_by_side
from ipusim.hardware.collectives.ring import all_gather_rounds, reduce_scatter_rounds, ring_order
from ipusim.hardware.pods import POD_IPUS
from ipusim.hardware.system import System


def by_pod(system: System, participants: Sequence[int]) -> list[list[int]]:
    """Return logical IPUs pod by pod, in physical order."""
    pods: dict[int, list[int]] = {}
    for ipu in in_physical_order(system, participants):
        pods.setdefault(system.ipus[ipu] // POD_IPUS, []).append(ipu)
    return list(pods.values())


def across_pods_all_reduce(system: System, participants: Sequence[int], elements: int, itemsize: int) -> Collective:
    """Return the all-reduce of P pods with M participants per pod.

    The collective has 2(M - 1) rounds of m = ceil(ceil(elements / 2) / M) elements in both directions within the pods.
    Half-way through, 2(P - 1) rounds of ceil(m / P) elements run in both directions across pods. A chunk is summed
    around the ring of each pod, then over the pods; either sum begins one position behind the chunk's owner and ends at
    the owner. Every addition rounds to the buffers' type. Raises DeviceError for pods with unequal numbers of
    participants.
    """
    collective = Collective("all_reduce", "across pods", tuple(participants), elements, itemsize)
    pods = by_pod(system, participants)
    if len(set(map(len, pods))) > 1:
        counts = ", ".join(map(str, map(len, pods)))
        raise DeviceError(f"{collective.name}: expected equally many participants in every pod, got {counts}")
    rings = [ring_order(system, members) for members in pods]
    reversed_rings = [ring[::-1] for ring in rings[::-1]]
    halves = chunks(0, elements, 2)
    rounds_of_directions = [
        within_then_across(order, half) for order, half in zip((rings, reversed_rings), halves, strict=True)
    ]
    return collective.with_rounds(side_by_side(rounds_of_directions))


def within_then_across(
    rings: Sequence[Sequence[int]], part: slice, order: Callable[[Sequence[int]], Sequence[int]] = tuple
) -> list[Round]:
    """Return the rounds that all-reduce ``part`` around several rings and then across the rings.

    Args:
        rings: rings with equal numbers of IPUs, for example pods.
        part: elements of the buffers.
        order: function that orders the IPUs holding the same chunk, one per ring; default: the order of the rings.
    """
    owned = chunks(part.start, part.stop, len(rings[0]))
    owners_and_shares = [
        (owners, chunks(chunk.start, chunk.stop, len(owners)))
        for owners, chunk in zip(map(order, zip(*rings, strict=True)), owned, strict=True)
    ]
    return [
        *side_by_side([reduce_scatter_rounds(ring, owned) for ring in rings]),
        *side_by_side([reduce_scatter_rounds(owners, shares) for owners, shares in owners_and_shares]),
        *side_by_side([all_gather_rounds(owners, shares) for owners, shares in owners_and_shares]),
        *side_by_side([all_gather_rounds(ring, owned) for ring in rings]),
    ]
