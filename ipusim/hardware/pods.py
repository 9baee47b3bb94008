"""Describe the GW-Links that join pods of 64 IPUs, machine by machine, into a ring or a part of a ring.

An IPU-Machine of four IPUs has two GW-Link ports, east and west, of 100 Gbit/s. The ports lead to the machines of the
same number in the next and in the previous pod; the last pod is joined to the first (Graphcore, Switched GW-Links in
large scale Bow Pod systems). Two pods alone use both links between each other (Graphcore IPU-POD128 datasheet).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Final

from ipusim.base.errors import DeviceError
from ipusim.hardware.links import Channel, LinkDirection, with_detour_limit
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

    Raises DeviceError if ``first`` does not begin a pod, or for fewer than two pods.
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
        """Channel between a rung's two IPUs: the one of an IPU-Machine, of which pods consist."""
        return "machine rung"

    @property
    def count(self) -> int:
        """Number of IPUs."""
        return self.pods * POD_IPUS

    @property
    def ipus(self) -> range:
        """Physical IPU numbers, ascending, pod by pod."""
        return range(self.first, self.first + self.count)

    @cached_property
    def _tori(self) -> tuple[Topology, ...]:
        return tuple(Topology(first, POD_IPUS, True, self.rung, self.dead) for first in self.ipus[::POD_IPUS])

    @cached_property
    def neighbours(self) -> Mapping[int, tuple[int, ...]]:
        """Neighbours over cables, by physical IPU number; GW-Links join first IPUs of machines."""
        torus_neighbours = {ipu: neighbours for torus in self._tori for ipu, neighbours in torus.neighbours.items()}
        return {
            ipu: (*neighbours, *(() if (ipu - self.first) % GATEWAY_IPUS else self._partners(ipu)))
            for ipu, neighbours in torus_neighbours.items()
        }

    def _partners(self, ipu: int) -> tuple[int, ...]:
        """Return the IPUs at the same position in neighbouring pods, upper pod first."""
        pod, position = divmod(ipu - self.first, POD_IPUS)
        pods = [(pod + 1) % self.pods, (pod - 1) % self.pods] if self.looped else [pod + 1, pod - 1]
        offset = position % GATEWAY_IPUS
        candidates = (
            self.first + other_pod * POD_IPUS + position
            for other_pod in dict.fromkeys(pods)
            if 0 <= other_pod < self.pods
        )
        return tuple(
            candidate for candidate in candidates if tuple(sorted((ipu - offset, candidate - offset))) not in self.dead
        )

    def drop(self, dead: Collection[tuple[int, int]]) -> PodRing:
        """Return the links that remain when the cables ``dead`` fail too; a cable is an ascending pair of IPUs."""
        return replace(self, dead=self.dead.union(dead))

    @cached_property
    def _next_hops(self) -> dict[int, tuple[int, ...]]:
        """Next hops of traffic by IPU, in order of preference.

        The gateway comes first, to IPUs at the same position in other pods; then the link of the rung; then the rails.
        """
        return {
            ipu: (
                *self._partners(ipu),
                *sorted(neighbours, key=lambda neighbour: (neighbour // 2 != ipu // 2, neighbour)),
            )
            for torus in self._tori
            for ipu, neighbours in torus.neighbours.items()
        }

    @property
    def unreachable_ipus(self) -> list[int]:
        """IPUs without a path to the first IPU."""
        hops = hops_to(self._next_hops, self.first)
        return [ipu for ipu in self.ipus if ipu not in hops]

    def route(self, source: int, target: int) -> Route:
        """Return the link directions from ``source`` to ``target``, physical IPU numbers, in travel order.

        Traffic for another pod leaves through the gateway of the local machine and takes the shorter way round the
        pods, in a tie towards higher numbers. It arrives at the IPU of the same position and continues over IPU-Links.
        With dead cables, traffic takes a shortest path; among shortest paths, a path that uses a gateway earlier is
        preferred, then a path that crosses a rung earlier.
        Raises DeviceError for an IPU outside the device.
        """
        for ipu in (source, target):
            if ipu not in self.ipus:
                raise DeviceError(f"no IPU {ipu} here: expected one of IPUs {self.ipus[0]} to {self.ipus[-1]}")
        if self.dead:
            return self._detour(source, target)
        source_pod, position = divmod(source - self.first, POD_IPUS)
        target_pod = (target - self.first) // POD_IPUS
        gateway = source - position % GATEWAY_IPUS - source_pod * POD_IPUS
        pods = self._pods_between(source_pod, target_pod)
        gateway_links = tuple(
            LinkDirection(gateway + pod * POD_IPUS, gateway + next_pod * POD_IPUS, self._channel)
            for pod, next_pod in pairwise(pods)
        )
        return gateway_links + self._tori[target_pod].route(self.first + target_pod * POD_IPUS + position, target)

    def _detour(self, source: int, target: int) -> Route:
        hops = hops_to(self._next_hops, target)
        path = [source]
        while (ipu := path[-1]) != target:
            path.append(next(neighbour for neighbour in self._next_hops[ipu] if hops[neighbour] < hops[ipu]))
        pods = [(ipu - self.first) // POD_IPUS for ipu in path]
        links: list[LinkDirection] = []
        for number, (hop_start, hop_end) in enumerate(pairwise(path)):
            offset = (hop_start - self.first) % GATEWAY_IPUS
            if pods[number] != pods[number + 1]:
                links.append(LinkDirection(hop_start - offset, hop_end - offset, self._channel))
                continue
            # The rung's own rate is for traffic that enters the pod on this rung and ends there; other traffic crosses.
            is_only_hop_in_last_pod = number == pods.index(pods[number]) and number + 2 == len(path)
            rung: Channel = self.rung if is_only_hop_in_last_pod else "rung crossing"
            links.append(LinkDirection(hop_start, hop_end, rung if hop_start // 2 == hop_end // 2 else "rail"))
        return (
            with_detour_limit(tuple(links), self.rung)
            if source != target and source // 2 == target // 2
            else tuple(links)
        )

    @property
    def _channel(self) -> Channel:
        return "gateway pair" if self.looped and self.pods == 2 else "gateway"

    def _pods_between(self, source_pod: int, target_pod: int) -> list[int]:
        hops = target_pod - source_pod
        if self.looped:
            up = hops % self.pods
            hops = up if 2 * up <= self.pods else up - self.pods
        direction = 1 if hops > 0 else -1
        return [(source_pod + direction * hop) % self.pods for hop in range(abs(hops) + 1)]
