"""The cost of collectives: round by round, from the bytes on the links.

A round ends when the busiest link direction has delivered: its bytes, summed over
all messages routed over it and rounded up to whole cycles once, after the latency
of the longest route. Before the first round all IPUs of the device synchronise and
pay the fixed cost of a superstep that exchanges between IPUs. Assumed: later rounds
follow without a sync, and additions cost nothing (a tile adds as fast as its memory
delivers; all tiles together are more than a thousand times faster than a link).

On an idle ladder these are, for n bytes (elements of one byte) over R participants,

* the ring all-reduce: 2(R - 1) rounds, each of ceil(n / R) bytes over the slowest
  link of the ring, plus the latency of the ring's longest route;
* the bidirectional ring over whole rungs: the same with ceil(n / 2R) bytes, both ways;
* the ladder all-reduce over whole rungs: ceil(n / 2) bytes over a rung's own links,
  twice; and between them 2(R / 2 - 1) rounds of ceil(ceil(n / 2) / (R / 2)) bytes
  over a rail; each plus its latency.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ipusim.hardware.collectives.collective import Collective
from ipusim.hardware.copies import NOTHING_FIXED, FixedParts, LinkLoad
from ipusim.hardware.formulas import Cycles, Sum
from ipusim.hardware.links import LinkDirection
from ipusim.hardware.system import System


@dataclass(frozen=True)
class RoundCost:
    """The cost of one round.

    Attributes:
        latency_cycles: hops of the longest route.
        links: load of each link direction that carries anything, in order of direction.
    """

    latency_cycles: int
    links: tuple[LinkLoad, ...]

    @property
    def transfer_cycles(self) -> int:
        """Cycles in which the busiest link direction delivers."""
        return max((load.cycles for load in self.links), default=0)

    @property
    def total_cycles(self) -> int:
        """Cycles of the round."""
        return Cycles(_in_turn, int(self.latency_cycles), self.transfer_cycles)


@dataclass(frozen=True)
class CollectiveCost:
    """The cost of concurrent collectives, or of consecutive ones.

    Attributes:
        fixed: sync and fixed parts of a superstep that exchanges between IPUs, before the first round and before each
            round of ``starts``.
        rounds: the rounds, one after the other.
        starts: the numbers of the rounds, other than 0, with which a collective begins.
    """

    fixed: FixedParts
    rounds: tuple[RoundCost, ...]
    starts: frozenset[int] = frozenset()

    @property
    def lead_cycles(self) -> int:
        """Cycles from the arrival of the last IPU to the first round, and of tiles after the last round."""
        return self.fixed.total_cycles

    @property
    def rounds_cycles(self) -> int:
        """Cycles of all rounds: the closed form of the algorithm."""
        return Sum(tuple((cost.total_cycles, times) for cost, times in self._distinct_rounds))

    @property
    def _distinct_rounds(self) -> list[tuple[RoundCost, int]]:
        """Each round once, with how often it comes: those of a ring are one."""
        times = Counter(map(id, self.rounds))
        return [(cost, times[number]) for number, cost in {id(cost): cost for cost in self.rounds}.items()]

    @property
    def meetings(self) -> int:
        """The number of syncs of all IPUs."""
        return 1 + len(self.starts)

    @property
    def total_cycles(self) -> int:
        """Cycles of the whole, syncs included; 0 when there is nothing to do."""
        return self.meetings * self.lead_cycles + self.rounds_cycles

    @property
    def link_bytes(self) -> tuple[tuple[LinkDirection, int], ...]:
        """Bytes on each link direction over all rounds, in order of direction."""
        carried: Counter[LinkDirection] = Counter()
        for cost, times in self._distinct_rounds:
            for load in cost.links:
                carried[load.direction] += times * load.bytes
        return tuple(sorted(carried.items()))


def _in_turn(latency: Any, transfer: Any) -> Any:
    return +(latency + transfer)


def concurrent_cost(system: System, collectives: Sequence[Collective]) -> CollectiveCost:
    """Return the cost of concurrent ``collectives`` on ``system``'s links, in lock-step round by round.

    Round k begins for all collectives at once and ends with the slowest; on each link
    their bytes add up. A collective with fewer rounds is complete earlier. Raises
    DeviceError for participants that the system does not have.
    """
    rounds: list[RoundCost] = []
    # the rounds of a ring load the links all alike
    known: dict[tuple[tuple[tuple[int, int], int], ...], RoundCost] = {}
    for number in range(max((len(collective.rounds) for collective in collectives), default=0)):
        traffic = _traffic(collectives, number)
        key = tuple(sorted(traffic.items()))
        if key not in known:
            copy = system.merged_copy(traffic)
            known[key] = RoundCost(copy.fixed.latency_cycles, copy.links)
        rounds.append(known[key])
    if not rounds:
        return CollectiveCost(NOTHING_FIXED, ())
    return CollectiveCost(system.exchanging._replace(sync_cycles=system.sync_cycles), tuple(rounds))


def in_turn(costs: Sequence[CollectiveCost]) -> CollectiveCost:
    """Return the cost of one or more consecutive collectives, with a sync of all IPUs before each.

    The fixed cost of the first holds for all. Collectives without rounds are left out.
    """
    first, *further = [cost for cost in costs if cost.rounds] or costs[:1]
    rounds, starts = list(first.rounds), set(first.starts)
    for cost in further:
        starts |= {len(rounds), *(len(rounds) + number for number in cost.starts)}
        rounds += cost.rounds
    return CollectiveCost(first.fixed, tuple(rounds), frozenset(starts))


def _traffic(collectives: Sequence[Collective], number: int) -> Mapping[tuple[int, int], int]:
    traffic: Counter[tuple[int, int]] = Counter()
    for collective in collectives:
        if number < len(collective.rounds):
            message_bytes = collective.message_bytes(number)
            for transfer in collective.rounds[number]:
                traffic[transfer.source, transfer.target] += message_bytes
    return traffic
