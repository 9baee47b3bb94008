"""All-to-all by exchange in pairs: in each round every participant swaps chunks with one other."""

from __future__ import annotations

from collections.abc import Sequence

from ipusim.hardware.collectives.places import as_they_lie
from ipusim.hardware.collectives.plan import CollectivePlan, Round, Transfer
from ipusim.hardware.system import System


def pairwise_all_to_all(system: System, participants: Sequence[int], elements: int, itemsize: int) -> CollectivePlan:
    """Return the all-to-all by pairs: each round moves ceil(elements / R) both ways between the IPUs of each pair.

    Of R participants in the order in which they lie in the machine, two whose
    places differ in the bits of the round's number swap (R - 1 rounds) when R is a
    power of two, so that the first round stays within the rungs; else those whose
    places add up to the round's number, modulo R (R rounds, in which one or two
    have nobody to swap with).
    """
    plan = CollectivePlan("all_to_all", "pairwise", tuple(participants), elements, itemsize)
    placed = as_they_lie(system, participants)
    power_of_two = plan.count & (plan.count - 1) == 0
    numbers = range(1 if power_of_two else 0, plan.count)
    partners = (
        [place ^ number if power_of_two else (number - place) % plan.count for place in range(plan.count)]
        for number in numbers
    )
    return plan.with_rounds(
        _swaps(plan, [(ipu, placed[partner]) for ipu, partner in zip(placed, each, strict=True)]) for each in partners
    )


def _swaps(plan: CollectivePlan, pairs: Sequence[tuple[int, int]]) -> Round:
    """Return the transfers in which each first IPU sends the second its chunk, into the slot of the sender."""
    rank = {ipu: number for number, ipu in enumerate(plan.participants)}
    transfers = []
    for source, target in pairs:
        if source != target:
            part, slot = plan.shard(rank[target]), plan.chunk * rank[source]
            transfers.append(Transfer(source, target, part.start, part.stop, shift=slot - part.start))
    return tuple(transfers)
