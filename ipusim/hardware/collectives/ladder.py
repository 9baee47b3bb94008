"""Lay out the ladder all-reduce: within rungs, along the two rails that join them, then within rungs.

A rung is a pair of linked IPUs. The two IPUs of a rung reduce-scatter over the rung's four links, and hold half of the
sum afterwards. The two rails then all-reduce their halves in rings simultaneously, and the rungs gather the halves.
Only half of the buffer leaves a rung, and R participants need R rounds instead of 2(R - 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ipusim.base.errors import DeviceError
from ipusim.hardware.collectives.across_pods import within_then_across
from ipusim.hardware.collectives.collective import Collective, in_physical_order
from ipusim.hardware.collectives.ring import ring_order
from ipusim.hardware.system import System


def ladder_all_reduce(system: System, participants: Sequence[int], elements: int, itemsize: int) -> Collective:
    """Return the ladder all-reduce of R participants, in R rounds.

    The first and last round send ceil(elements / 2) elements, other rounds ceil(elements / R).

    Participants form pairs in physical order, usually the rungs; other pairs work as well, over longer routes. Sums
    are taken within a rung first, then in the order of the rail's ring. Every addition rounds to the buffers' type.
    Raises DeviceError for an odd number of participants above one.
    """
    collective = Collective("all_reduce", "ladder", tuple(participants), elements, itemsize)
    if collective.count == 1:
        return collective
    if collective.count % 2:
        raise DeviceError(f"{collective.name}: expected an even number of participants, got {collective.count}")
    ordered_ipus = in_physical_order(system, participants)
    rungs = list(zip(ordered_ipus[::2], ordered_ipus[1::2], strict=True))
    return collective.with_rounds(within_then_across(rungs, slice(0, elements), partial(ring_order, system)))
