"""All-to-all by exchange in pairs: in each round every participant swaps chunks with one other."""

from __future__ import annotations

from collections.abc import Sequence

from ipusim.hardware.collectives.collective import Collective, Round, Transfer, as_they_lie
from ipusim.hardware.system import System


def pairwise_all_to_all(system: System, participants: Sequence[int], elements: int, itemsize: int) -> Collective:
    """Return the all-to-all by pairs: each round moves ceil(elements / R) both ways between the IPUs of each pair.

    Of R participants in the order in which they lie in the machine, two whose
    positions differ in the bits of the round's number swap (R - 1 rounds) when R is a
    power of two, so that the first round stays within the rungs; else those whose
    positions add up to the round's number, modulo R (R rounds, in which one or two
    have no partner).
    """
    collective = Collective("all_to_all", "pairwise", tuple(participants), elements, itemsize)
    ordered = as_they_lie(system, participants)
    power_of_two = collective.count & (collective.count - 1) == 0
    numbers = range(1 if power_of_two else 0, collective.count)
    partners = (
        [
            position ^ number if power_of_two else (number - position) % collective.count
            for position in range(collective.count)
        ]
        for number in numbers
    )
    return collective.with_rounds(
        _swaps(collective, [(ipu, ordered[partner]) for ipu, partner in zip(ordered, partners_of, strict=True)])
        for partners_of in partners
    )


def _swaps(collective: Collective, pairs: Sequence[tuple[int, int]]) -> Round:
    """Return the transfers in which each first IPU sends the second its chunk, into the slot of the sender."""
    rank = {ipu: number for number, ipu in enumerate(collective.participants)}
    transfers = []
    for source, target in pairs:
        if source != target:
            part, slot = collective.chunk_of(rank[target]), collective.chunk * rank[source]
            transfers.append(Transfer(source, target, part.start, part.stop, shift=slot - part.start))
    return tuple(transfers)
