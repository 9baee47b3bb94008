"""Lay out a pairwise all-to-all: in each round, pairs of participants swap chunks."""

from __future__ import annotations

from collections.abc import Sequence

from ipusim.hardware.collectives.collective import Collective, Round, Transfer, in_physical_order
from ipusim.hardware.system import System


def pairwise_all_to_all(system: System, participants: Sequence[int], elements: int, itemsize: int) -> Collective:
    """Return a pairwise all-to-all with messages of ceil(elements / R) elements.

    R participants have positions in physical order. If R is a power of two, there are R - 1 rounds: in round r,
    position p swaps with position p XOR r, so the first round stays within rungs (pairs of linked IPUs). Otherwise
    there are R rounds: in round r, two positions swap if their sum is r modulo R, and one or two participants are idle.
    """
    collective = Collective("all_to_all", "pairwise", tuple(participants), elements, itemsize)
    ordered_ipus = in_physical_order(system, participants)
    is_power_of_two = collective.count & (collective.count - 1) == 0
    numbers = range(1 if is_power_of_two else 0, collective.count)
    partners = (
        [
            position ^ number if is_power_of_two else (number - position) % collective.count
            for position in range(collective.count)
        ]
        for number in numbers
    )
    return collective.with_rounds(
        _swaps(
            collective, [(ipu, ordered_ipus[partner]) for ipu, partner in zip(ordered_ipus, partners_of, strict=True)]
        )
        for partners_of in partners
    )


def _swaps(collective: Collective, pairs: Sequence[tuple[int, int]]) -> Round:
    """Return a round's transfers: each source sends the target's chunk to the source's place in the target's buffer."""
    rank_of = {ipu: number for number, ipu in enumerate(collective.participants)}
    transfers = []
    for source, target in pairs:
        if source != target:
            part, slot = collective.chunk_of(rank_of[target]), collective.chunk * rank_of[source]
            transfers.append(Transfer(source, target, part.start, part.stop, shift=slot - part.start))
    return tuple(transfers)
