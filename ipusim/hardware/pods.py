"""Pods of 64 IPUs joined by GW-Links, machine by machine, into a ring or a part of one.

Each IPU-Machine of four IPUs has two GW-Link ports, east and west, of 100 Gbit/s.
They join it to the machines of the same number in the next pod and in the one
before; the last pod is joined to the first (Graphcore, Switched GW-Links in large
scale Bow Pod systems). Two pods alone have both links between each other
(Graphcore IPU-POD128 datasheet).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

from ipusim.base.errors import DeviceError
from ipusim.hardware.links import Channel, LinkDirection
from ipusim.hardware.topology import Route, Topology

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

    Raises DeviceError when the positions do not make whole pods.
    """

    first: int
    pods: int
    looped: bool = True

    def __post_init__(self) -> None:
        """Refuse a pod alone and parts of pods."""
        if self.first < 0 or self.first % POD_IPUS or self.pods < 2:
            raise DeviceError(
                f"expected two or more whole pods (IPUs {POD_IPUS}p to {POD_IPUS}p + {POD_IPUS - 1}) from IPU 0 up, "
                f"got {self.pods} pods from IPU {self.first}"
            )

    @property
    def rung(self) -> Channel:
        """What carries the traffic of a rung's own two IPUs: pods are made of IPU-Machines."""
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
        return tuple(Topology(first, POD_IPUS, True, self.rung) for first in self.ipus[::POD_IPUS])

    def route(self, source: int, target: int) -> Route:
        """Return the link directions from ``source`` to ``target``, physical IPU numbers, in the order of travel.

        Traffic for another pod leaves through the gateway of its own machine, the
        shorter way round (of equals towards higher numbers), arrives at the IPU of
        its own position there and goes on over IPU-Links. Raises DeviceError for an
        IPU that is not in the device.
        """
        for ipu in (source, target):
            if ipu not in self.ipus:
                raise DeviceError(f"no IPU {ipu} here: expected one of IPUs {self.ipus[0]} to {self.ipus[-1]}")
        here, position = divmod(source - self.first, POD_IPUS)
        there = (target - self.first) // POD_IPUS
        gateway = source - position % GATEWAY_IPUS - here * POD_IPUS
        pods = self._pods_between(here, there)
        across = tuple(
            LinkDirection(gateway + one * POD_IPUS, gateway + other * POD_IPUS, self._channel)
            for one, other in pairwise(pods)
        )
        return across + self._tori[there].route(self.first + there * POD_IPUS + position, target)

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
