"""Pods of 64 IPUs joined by GW-Links, machine by machine, into a ring or a part of a ring.

An IPU-Machine of four IPUs has two GW-Link ports, east and west, of 100 Gbit/s. The ports lead to the machines of the
same number in the next and previous pod; the last pod is joined to the first (Graphcore, Switched GW-Links in large
scale Bow Pod systems). Two pods alone use both links between each other (Graphcore IPU-POD128 datasheet).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Final

from ipusim.base.errors import DeviceError
from ipusim.hardware.links import Channel, LinkDirection, limited
from ipusim.hardware.topology import Route, Topology, hops_to

#: IPUs per pod: the largest number joined by IPU-Links (Graphcore's Pod datasheets).
POD_IPUS: Final = 64

#: IPUs that share a gateway, in an IPU-M2000 or Bow-2000.
GATEWAY_IPUS: Final = 4


@dataclass(frozen=True)
class PodRing:
    """The links among several whole pods of a machine.

    Attributes:
        first: lowest physical IPU number, the first of a pod.
        pods: number of pods, two or more.
        looped: whether the ring is closed, with the last pod joined to the first; true for a whole machine.
        dead: cables without traffic, as pairs of physical IPU numbers in ascending order; a GW-Link is the pair of its
            machines' first IPUs.

    Raises DeviceError if the positions do not form whole pods.
    """

    first: int
    pods: int
    looped: bool = True
    dead: frozenset[tuple[int, int]] = frozenset()

    def __post_init__(self) -> None:
        """Refuse a single pod and partial pods."""
        if self.first < 0 or self.first % POD_IPUS or self.pods < 2:
            raise DeviceError(
                f"expected two or more whole pods (IPUs {POD_IPUS}p to {POD_IPUS}p + {POD_IPUS - 1}) from IPU 0 up, "
                f"got {self.pods} pods from IPU {self.first}"
            )

    @property
    def rung(self) -> Channel:
        """Channel between a rung's two IPUs: pods consist of IPU-Machines."""
        return "machine rung"

    @property
    def count(self) -> int:
        """Number of IPUs."""
        return self.pods * POD_IPUS

    @property
    def ipus(self) -> range:
        """Physical IPU numbers, pod by pod, in ladder order."""
        return range(self.first, self.first + self.count)

    @cached_property
    def _tori(self) -> tuple[Topology, ...]:
        return tuple(Topology(first, POD_IPUS, True, self.rung, self.dead) for first in self.ipus[::POD_IPUS])

    @cached_property
    def neighbours(self) -> Mapping[int, tuple[int, ...]]:
        """Neighbours over cables, by physical IPU number; GW-Links join first IPUs of machines."""
        joined = {ipu: others for torus in self._tori for ipu, others in torus.neighbours.items()}
        return {
            ipu: (*others, *(() if (ipu - self.first) % GATEWAY_IPUS else self._beyond(ipu)))
            for ipu, others in joined.items()
        }

    def _beyond(self, ipu: int) -> tuple[int, ...]:
        """Return the IPUs at the same position in neighbouring pods, upper pod first."""
        pod, position = divmod(ipu - self.first, POD_IPUS)
        pods = [(pod + 1) % self.pods, (pod - 1) % self.pods] if self.looped else [pod + 1, pod - 1]
        offset = position % GATEWAY_IPUS
        across = (self.first + other * POD_IPUS + position for other in dict.fromkeys(pods) if 0 <= other < self.pods)
        return tuple(other for other in across if tuple(sorted((ipu - offset, other - offset))) not in self.dead)

    def without(self, dead: Collection[tuple[int, int]]) -> PodRing:
        """Return the same links without further cables, given as ascending pairs of physical IPUs."""
        return replace(self, dead=self.dead.union(dead))

    @cached_property
    def _reachable(self) -> dict[int, tuple[int, ...]]:
        """Next IPUs for traffic, by IPU: through the machine's gateway first, then over links."""
        return {
            ipu: (*self._beyond(ipu), *sorted(others, key=lambda other: (other // 2 != ipu // 2, other)))
            for torus in self._tori
            for ipu, others in torus.neighbours.items()
        }

    @property
    def cut_off(self) -> list[int]:
        """IPUs without a path to the first IPU."""
        reached = hops_to(self._reachable, self.first)
        return [ipu for ipu in self.ipus if ipu not in reached]

    def route(self, source: int, target: int) -> Route:
        """Return the link directions from ``source`` to ``target``, physical IPU numbers, in travel order.

        Traffic for another pod leaves through the gateway of the local machine and takes the shorter way round the
        pods; ties go towards higher numbers. It arrives at the IPU of the same position and continues over IPU-Links.
        With dead cables, traffic takes a shortest path; ties go to the path through a gateway first, then over a rung.
        Raises DeviceError for an IPU outside the device.
        """
        for ipu in (source, target):
            if ipu not in self.ipus:
                raise DeviceError(f"no IPU {ipu} here: expected one of IPUs {self.ipus[0]} to {self.ipus[-1]}")
        if self.dead:
            return self._detour(source, target)
        here, position = divmod(source - self.first, POD_IPUS)
        there = (target - self.first) // POD_IPUS
        gateway = source - position % GATEWAY_IPUS - here * POD_IPUS
        pods = self._pods_between(here, there)
        across = tuple(
            LinkDirection(gateway + one * POD_IPUS, gateway + other * POD_IPUS, self._channel)
            for one, other in pairwise(pods)
        )
        return across + self._tori[there].route(self.first + there * POD_IPUS + position, target)

    def _detour(self, source: int, target: int) -> Route:
        hops = hops_to(self._reachable, target)
        path = [source]
        while (here := path[-1]) != target:
            path.append(next(there for there in self._reachable[here] if hops[there] < hops[here]))
        pods = [(ipu - self.first) // POD_IPUS for ipu in path]
        links: list[LinkDirection] = []
        for number, (one, other) in enumerate(pairwise(path)):
            offset = (one - self.first) % GATEWAY_IPUS
            if pods[number] != pods[number + 1]:
                links.append(LinkDirection(one - offset, other - offset, self._channel))
                continue
            alone = number == pods.index(pods[number]) and number + 2 == len(path)
            rung: Channel = self.rung if alone else "rung crossing"
            links.append(LinkDirection(one, other, rung if one // 2 == other // 2 else "rail"))
        return limited(tuple(links), self.rung) if source != target and source // 2 == target // 2 else tuple(links)

    @property
    def _channel(self) -> Channel:
        return "gateway pair" if self.looped and self.pods == 2 else "gateway"

    def _pods_between(self, here: int, there: int) -> list[int]:
        hops = there - here
        if self.looped:
            up = hops % self.pods
            hops = up if 2 * up <= self.pods else up - self.pods
        direction = 1 if hops > 0 else -1
        return [(here + direction * hop) % self.pods for hop in range(abs(hops) + 1)]
