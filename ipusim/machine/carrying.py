"""When collectives have been carried over the IPU-Links, round by round."""

from __future__ import annotations

from collections.abc import Iterator

from ipusim.hardware.collectives.cost import CollectiveCost, RoundCost
from ipusim.hardware.copies import LinkLoad
from ipusim.machine.clock import Clock
from ipusim.machine.resources import Workers, links
from ipusim.timeline.kinds import SpanKind


def loads_until(clock: Clock, what: SpanKind, round_cost: RoundCost, start: int) -> Iterator[tuple[LinkLoad, int, int]]:
    """Yield the load of each link direction in a round that begins in ``start``, with its first and its last cycle."""
    for load in round_cost.links:
        link = links([load.direction.label])
        first_byte = clock.end(link, what, start, round_cost.latency_cycles)
        yield load, first_byte, clock.end(link, SpanKind.LINK, first_byte, load.cycles)


def carried_until(clock: Clock, workers: Workers, what: SpanKind, cost: CollectiveCost) -> int:
    """Return when a collective ends whose IPUs, the ``workers``, begin it now: each round ends with its last link."""
    now = clock.end(workers, what, clock.now, cost.lead_cycles)
    for each in cost.rounds:
        hops = clock.end(workers, what, now, each.latency_cycles)
        now = max((end for *_, end in loads_until(clock, what, each, now)), default=hops)
    return now
