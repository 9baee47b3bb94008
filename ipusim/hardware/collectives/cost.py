"""Price collectives round by round, from the bytes on the links.

A round ends when the busiest link direction has delivered. The round takes the latency of the longest route plus the
bytes of the messages routed over the busiest direction, rounded up to whole cycles once. Before each round the
device's IPUs synchronise, which has the fixed cost of a superstep with exchange between IPUs: PopLibs' collectives
repeat a slice, a copy between replicas and a sum (``unidirectionalRingReduceScatter``,
lib/popops/ReplicatedCollectives.cpp before 887b9d3a). The fixed cost stands for the slice too. Assumed: additions are
free (a tile adds at memory speed; the tiles of an IPU together are more than a thousand times faster than a link).

On an idle ladder, n bytes (elements of one byte) over R participants take, in addition to the fixed cost of each round:

* ring all-reduce: 2(R - 1) rounds of ceil(n / R) bytes over the slowest link of the ring, plus the latency of the
  ring's longest route;
* bidirectional ring over whole rungs: the same with ceil(n / 2R) bytes, in both directions;
* meeting in the middle over whole rungs: R / 2 rounds of ceil(n / R) bytes, twice;
* ladder all-reduce over whole rungs: two rounds of ceil(n / 2) bytes over the rung's links, and in between
  2(R / 2 - 1) rounds of ceil(ceil(n / 2) / (R / 2)) bytes over a rail, plus latency.
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
    """Cost of a single round.

    Attributes:
        latency_cycles: hops of the longest route.
        links: loads of the link directions with traffic, ordered by direction.
    """

    latency_cycles: int
    links: tuple[LinkLoad, ...]

    @property
    def transfer_cycles(self) -> int:
        """Transfer cycles of the busiest link direction."""
        return max((load.cycles for load in self.links), default=0)

    @property
    def total_cycles(self) -> int:
        """Cycles of the round."""
        return Cycles(_round_formula, int(self.latency_cycles), self.transfer_cycles)


@dataclass(frozen=True)
class CollectiveCost:
    """Cost of concurrent or consecutive collectives.

    Attributes:
        fixed: sync and fixed parts of a superstep with exchange between IPUs, before every round.
        rounds: consecutive rounds.
    """

    fixed: FixedParts
    rounds: tuple[RoundCost, ...]

    @property
    def lead_cycles(self) -> int:
        """Cycles from the last IPU's arrival to a round, plus cycles of tiles after the round."""
        return self.fixed.total_cycles

    @property
    def rounds_cycles(self) -> int:
        """Total cycles of the rounds: the algorithm's closed form."""
        return Sum(tuple((cost.total_cycles, times) for cost, times in self._distinct_rounds))

    @property
    def _distinct_rounds(self) -> list[tuple[RoundCost, int]]:
        """Distinct rounds with their counts; the rounds of a ring are equal."""
        times = Counter(map(id, self.rounds))
        return [(cost, times[number]) for number, cost in {id(cost): cost for cost in self.rounds}.items()]

    @property
    def total_cycles(self) -> int:
        """Total cycles, syncs included; 0 without rounds."""
        return len(self.rounds) * self.lead_cycles + self.rounds_cycles

    @property
    def link_bytes(self) -> tuple[tuple[LinkDirection, int], ...]:
        """Total bytes per link direction over the rounds, ordered by direction."""
        bytes_of_direction: Counter[LinkDirection] = Counter()
        for cost, times in self._distinct_rounds:
            for load in cost.links:
                bytes_of_direction[load.direction] += times * load.bytes
        return tuple(sorted(bytes_of_direction.items()))


def _round_formula(latency: Any, transfer: Any) -> Any:
    return +(latency + transfer)


def concurrent_cost(system: System, collectives: Sequence[Collective]) -> CollectiveCost:
    """Return the cost of concurrent ``collectives`` on ``system``'s links, in lock-step round by round.

    Round k starts simultaneously for every collective and ends with the slowest. On a shared link the bytes add up. A
    collective with fewer rounds completes earlier. Raises DeviceError for participants outside the system.
    """
    rounds: list[RoundCost] = []
    # rounds of a ring have equal costs
    round_costs: dict[tuple[tuple[tuple[int, int], int], ...], RoundCost] = {}
    for number in range(max((len(collective.rounds) for collective in collectives), default=0)):
        traffic = _traffic(collectives, number)
        key = tuple(sorted(traffic.items()))
        if key not in round_costs:
            copy = system.merged_copy(traffic)
            round_costs[key] = RoundCost(copy.fixed.latency_cycles, copy.links)
        rounds.append(round_costs[key])
    if not rounds:
        return CollectiveCost(NOTHING_FIXED, ())
    return CollectiveCost(system.exchanging._replace(sync_cycles=system.sync_cycles), tuple(rounds))


def in_turn(costs: Sequence[CollectiveCost]) -> CollectiveCost:
    """Return the cost of consecutive collectives; every round has the first collective's fixed cost."""
    first = next((cost for cost in costs if cost.rounds), costs[0])
    return CollectiveCost(first.fixed, tuple(round_cost for cost in costs for round_cost in cost.rounds))


def _traffic(collectives: Sequence[Collective], number: int) -> Mapping[tuple[int, int], int]:
    traffic: Counter[tuple[int, int]] = Counter()
    for collective in collectives:
        if number < len(collective.rounds):
            message_bytes = collective.message_bytes(number)
            for transfer in collective.rounds[number]:
                traffic[transfer.source, transfer.target] += message_bytes
    return traffic
