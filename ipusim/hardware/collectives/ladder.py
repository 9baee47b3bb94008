"""The ladder's own all-reduce: within the rungs, then along the rails, then within the rungs again.

The two IPUs of a rung reduce-scatter over their own four links, so that each
holds half of the sum of the two. Each rail then all-reduces its half in a ring,
both rails at the same time, and the rungs gather the halves. Only half of the
buffer ever leaves a rung, and R participants need R rounds, not 2(R - 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ipusim.base.errors import DeviceError
from ipusim.hardware.collectives.across_pods import within_then_across
from ipusim.hardware.collectives.collective import Collective, as_they_lie
from ipusim.hardware.collectives.ring import ring_order
from ipusim.hardware.system import System


def ladder_all_reduce(system: System, participants: Sequence[int], elements: int, itemsize: int) -> Collective:
    """Return the ladder all-reduce: R rounds, ceil(elements / 2) in the first and last, else ceil(elements / R).

    The rungs are the participants two by two as they lie in the machine, which are
    physical rungs when the participants are; the rule works for any others too.
    A sum is taken first within each rung and then in the order of the rail's ring,
    rounded to the buffers' type after each addition. Raises DeviceError for an odd
    number of participants other than one.
    """
    collective = Collective("all_reduce", "ladder", tuple(participants), elements, itemsize)
    if collective.count == 1:
        return collective
    if collective.count % 2:
        raise DeviceError(f"{collective.name}: expected an even number of participants, got {collective.count}")
    ordered = as_they_lie(system, participants)
    rungs = list(zip(ordered[::2], ordered[1::2], strict=True))
    return collective.with_rounds(within_then_across(rungs, slice(0, elements), partial(ring_order, system)))
