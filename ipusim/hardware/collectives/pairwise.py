"""Lay out a pairwise all-to-all, in whose rounds partners swap chunks."""

from __future__ import annotations

from collections.abc import Sequence

from ipusim.hardware.collectives.collective import Collective, Round, Transfer, as_they_lie
from ipusim.hardware.system import System


def pairwise_all_to_all(system: System, participants: Sequence[int], elements: int, itemsize: int) -> Collective:
    """Return a pairwise all-to-all with messages of ceil(elements / R) elements.

    R participants are numbered in physical order. If R is a power of two, positions that differ in the bits of the
    round's number swap (R - 1 rounds), and the first round stays within rungs (pairs of linked IPUs). Otherwise
    positions that add up to the round's number modulo R swap (R rounds, with one or two participants idle).
    """
    collective = Collective("all_to_all", "pairwise", tuple(participants), elements, itemsize)
    ranks = as_they_lie(system, participants)
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
        _swaps(collective, [(ipu, ranks[partner]) for ipu, partner in zip(ranks, partners_of, strict=True)])
        for partners_of in partners
    )


def _swaps(collective: Collective, pairs: Sequence[tuple[int, int]]) -> Round:
    """Return the transfers that send each target's chunk to the place of the source in the target's buffer."""
    rank = {ipu: number for number, ipu in enumerate(collective.participants)}
    transfers = []
    for source, target in pairs:
        if source != target:
            part, slot = collective.chunk_of(rank[target]), collective.chunk * rank[source]
            transfers.append(Transfer(source, target, part.start, part.stop, shift=slot - part.start))
    return tuple(transfers)
