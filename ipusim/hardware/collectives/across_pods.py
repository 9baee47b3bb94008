"""The all-reduce of several pods: each pod by itself, then a chunk of every IPU over the GW-Links, then each pod again.

Each pod reduce-scatters in two rings, the IPUs that then hold the same chunk, one
in each pod, all-reduce it in a ring over the GW-Links of their machines, and each
pod gathers. Only one chunk of each IPU goes over the GW-Links, which are slower
than IPU-Links. Half of the buffer goes the one way round, in the pods and across
them, and half the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ipusim.base.errors import DeviceError
from ipusim.hardware.collectives.collective import Collective, Round, as_they_lie, chunks, side_by_side
from ipusim.hardware.collectives.ring import all_gather_rounds, reduce_scatter_rounds, ring_order
from ipusim.hardware.pods import POD_IPUS
from ipusim.hardware.system import System


def by_pod(system: System, participants: Sequence[int]) -> list[list[int]]:
    """Return logical IPUs pod by pod, in each as they lie in the machine."""
    pods: dict[int, list[int]] = {}
    for ipu in as_they_lie(system, participants):
        pods.setdefault(system.ipus[ipu] // POD_IPUS, []).append(ipu)
    return list(pods.values())


def across_pods_all_reduce(system: System, participants: Sequence[int], elements: int, itemsize: int) -> Collective:
    """Return the all-reduce of P pods of M participants each.

    These are 2(M - 1) rounds of m = ceil(ceil(elements / 2) / M) in both directions
    within the pods and, half-way through them, 2(P - 1) rounds of ceil(m / P) in both
    directions across. A sum is taken along the ring of each pod and then along the
    pods, from the position behind the chunk's owner to the owner, and rounded to the
    buffers' type after each addition. Raises DeviceError when the pods have not
    equally many participants.
    """
    collective = Collective("all_reduce", "across pods", tuple(participants), elements, itemsize)
    pods = by_pod(system, participants)
    if len(set(map(len, pods))) > 1:
        shares = ", ".join(map(str, map(len, pods)))
        raise DeviceError(f"{collective.name}: expected equally many participants in every pod, got {shares}")
    rings = [ring_order(system, members) for members in pods]
    backwards = [ring[::-1] for ring in rings[::-1]]
    halves = chunks(0, elements, 2)
    ways = [within_then_across(order, half) for order, half in zip((rings, backwards), halves, strict=True)]
    return collective.with_rounds(side_by_side(ways))


def within_then_across(
    rings: Sequence[Sequence[int]], part: slice, order: Callable[[Sequence[int]], Sequence[int]] = tuple
) -> list[Round]:
    """Return the rounds that all-reduce ``part``, round each of some rings and then across these.

    Args:
        rings: of equally many IPUs, as a pod's.
        part: elements of the buffers.
        order: of the IPUs that hold the same chunk, one of each ring; by default that of the rings.
    """
    owned = chunks(part.start, part.stop, len(rings[0]))
    across = [
        (owners, chunks(chunk.start, chunk.stop, len(owners)))
        for owners, chunk in zip(map(order, zip(*rings, strict=True)), owned, strict=True)
    ]
    return [
        *side_by_side([reduce_scatter_rounds(ring, owned) for ring in rings]),
        *side_by_side([reduce_scatter_rounds(owners, shares) for owners, shares in across]),
        *side_by_side([all_gather_rounds(owners, shares) for owners, shares in across]),
        *side_by_side([all_gather_rounds(ring, owned) for ring in rings]),
    ]
