"""Pods of 64 IPUs joined by GW-Links, machine by machine, into a ring or a part of one.

Each IPU-Machine of four IPUs has two GW-Link ports, east and west, of 100 Gbit/s.
They join it to the machines of the same number in the next pod and in the one
before; the last pod is joined to the first (Graphcore, Switched GW-Links in large
scale Bow Pod systems). Two pods alone have both links between each other
(Graphcore IPU-POD128 datasheet).
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

#: IPUs of a pod: the largest number that IPU-Links join (Graphcore's Pod datasheets).
POD_IPUS: Final = 64

#: IPUs of an IPU-M2000 or Bow-2000, which share its gateway.
GATEWAY_IPUS: Final = 4


@dataclass(frozen=True)
class PodRing:
    """The links among several whole pods of a machine.

    Attributes:
        first: lowest physical IPU number, the first of a pod.
        pods: number of pods, two or more.
        looped: whether the pods are all of the machine's, so that the last is joined to the first.
        dead: cables that carry nothing, each as the two physical IPU numbers that it joins, in ascending order; of a
            GW-Link they are the first ones of its two machines.

    Raises DeviceError when the positions do not make whole pods.
    """

    first: int
    pods: int
    looped: bool = True
    dead: frozenset[tuple[int, int]] = frozenset()

    def __post_init__(self) -> None:
        """Refuse a pod alone and parts of pods."""
        if self.first < 0 or self.first % POD_IPUS or self.pods < 2:
            raise DeviceError(
                f"expected two or more whole pods (IPUs {POD_IPUS}p to {POD_IPUS}p + {POD_IPUS - 1}) from IPU 0 up, "
                f"got {self.pods} pods from IPU {self.first}"
            )

    @property
    def rung(self) -> Channel:
        """The channel of a rung's own two IPUs: pods are made of IPU-Machines."""
        return "machine rung"

    @property
    def count(self) -> int:
        """The number of IPUs."""
        return self.pods * POD_IPUS

    @property
    def ipus(self) -> range:
        """The physical IPU numbers, pod by pod and in each in ladder order."""
        return range(self.first, self.first + self.count)

    @cached_property
    def _tori(self) -> tuple[Topology, ...]:
        return tuple(Topology(first, POD_IPUS, True, self.rung, self.dead) for first in self.ipus[::POD_IPUS])

    @cached_property
    def neighbours(self) -> Mapping[int, tuple[int, ...]]:
        """Of each physical IPU number those that cables join it to; GW-Links join the first ones of machines."""
        joined = {ipu: others for torus in self._tori for ipu, others in torus.neighbours.items()}
        return {
            ipu: (*others, *(() if (ipu - self.first) % GATEWAY_IPUS else self._beyond(ipu)))
            for ipu, others in joined.items()
        }

    def _beyond(self, ipu: int) -> tuple[int, ...]:
        """Return the IPUs of the same position in the pods that the GW-Links of an IPU's machine go to, up first."""
        pod, position = divmod(ipu - self.first, POD_IPUS)
        pods = [(pod + 1) % self.pods, (pod - 1) % self.pods] if self.looped else [pod + 1, pod - 1]
        offset = position % GATEWAY_IPUS
        across = (self.first + other * POD_IPUS + position for other in dict.fromkeys(pods) if 0 <= other < self.pods)
        return tuple(other for other in across if tuple(sorted((ipu - offset, other - offset))) not in self.dead)

    def without(self, dead: Collection[tuple[int, int]]) -> PodRing:
        """Return the same links without further cables, given as pairs of physical IPU numbers in ascending order."""
        return replace(self, dead=self.dead.union(dead))

    @cached_property
    def _reachable(self) -> dict[int, tuple[int, ...]]:
        """Of each IPU those that traffic goes on to from it: through its machine's gateway first, then over links."""
        return {
            ipu: (*self._beyond(ipu), *sorted(others, key=lambda other: (other // 2 != ipu // 2, other)))
            for torus in self._tori
            for ipu, others in torus.neighbours.items()
        }

    @property
    def cut_off(self) -> list[int]:
        """The IPUs that no links join to the first one."""
        reached = hops_to(self._reachable, self.first)
        return [ipu for ipu in self.ipus if ipu not in reached]

    def route(self, source: int, target: int) -> Route:
        """Return the link directions from ``source`` to ``target``, physical IPU numbers, in the order of travel.

        Traffic for another pod leaves through the gateway of its own machine, the
        shorter way round (of equals towards higher numbers), arrives at the IPU of
        its own position there and goes on over IPU-Links. Where cables are dead it
        takes a shortest path, of equals the one through a gateway first, then the one
        over a rung. Raises DeviceError for an IPU that is not in the device.
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
