"""The IPU-Link graph of a device, and the route that traffic takes over it.

Two IPUs, 2r and 2r + 1, form rung r; rails join 2r to 2r + 2 and 2r + 1 to
2r + 3. A ladder ends at its first and last rung, in a torus the rails loop round
(Graphcore GCL user guide). Traffic crosses the rung first, if it must change
rails, and then walks the rail (PopLibs lib/poplibs_test/Util.cpp).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Protocol

from ipusim.base.errors import DeviceError
from ipusim.hardware.links import Channel, LinkDirection, limited

Route = tuple[LinkDirection, ...]


class Routes(Protocol):
    """Routes from one physical IPU to another."""

    def route(self, source: int, target: int) -> Route:
        """Return the link directions of the way."""
        ...


@dataclass(frozen=True)
class Topology:
    """The links among consecutive ladder positions of a machine.

    Attributes:
        first: lowest physical IPU number; even, unless the device is one IPU.
        count: IPUs, 1 or an even number.
        looped: whether the ends of the rails are joined, which makes a torus.
        rung: what carries the traffic of a rung's own two IPUs: ``rung``, or ``machine rung`` in IPU-Machines.
        dead: cables that carry nothing, each as the two physical IPU numbers that it joins, in ascending order.
        around: the links that routes are found in where they may leave these IPUs; None where none needs to.

    Raises DeviceError when the positions do not make whole rungs.
    """

    first: int
    count: int
    looped: bool = False
    rung: Channel = "rung"
    dead: frozenset[tuple[int, int]] = frozenset()
    around: Routes | None = None

    def __post_init__(self) -> None:
        """Refuse half rungs."""
        whole_rungs = self.count % 2 == 0 and self.first % 2 == 0
        if self.first < 0 or self.count < 1 or not (self.count == 1 or whole_rungs):
            raise DeviceError(
                f"expected one IPU or whole rungs (IPUs 2r and 2r + 1) from IPU 0 up, "
                f"got {self.count} IPUs from IPU {self.first}"
            )

    @property
    def ipus(self) -> range:
        """The physical IPU numbers, in ladder order."""
        return range(self.first, self.first + self.count)

    @cached_property
    def neighbours(self) -> Mapping[int, tuple[int, ...]]:
        """Of each physical IPU number those that links join it to, in ascending order."""
        ipus = self.ipus
        pairs = [*zip(ipus[::2], ipus[1::2], strict=False), *zip(ipus, ipus[2:], strict=False)]
        if self.looped and self.count > 4:  # two rungs have no ends left to join
            pairs += zip(ipus[-2:], ipus[:2], strict=True)
        pairs = [pair for pair in pairs if (min(pair), max(pair)) not in self.dead]
        joined = [*pairs, *((other, one) for one, other in pairs)]
        return {ipu: tuple(sorted(other for one, other in joined if one == ipu)) for ipu in ipus}

    def without(self, dead: Collection[tuple[int, int]]) -> Topology:
        """Return the same links without further cables, given as pairs of physical IPU numbers in ascending order."""
        return replace(self, dead=self.dead.union(dead))

    @property
    def cut_off(self) -> list[int]:
        """The IPUs that no links join to the first one."""
        reached = hops_to(self.neighbours, self.first)
        return [ipu for ipu in self.ipus if ipu not in reached]

    @cached_property
    def _routes(self) -> dict[tuple[int, int], Route]:
        return _routes_of(self)

    def route(self, source: int, target: int) -> Route:
        """Return the link directions from ``source`` to ``target``, physical IPU numbers, in the order of travel.

        The route is a shortest path; of equals the one that takes the rung first,
        then the one through the lower IPU number. Empty when source and target are
        the same; a detour between the IPUs of a rung ends with its limit. Raises
        DeviceError for an IPU that is not in the device.
        """
        for ipu in (source, target):
            if ipu not in self.ipus:
                raise DeviceError(f"no IPU {ipu} here: expected one of IPUs {self.ipus[0]} to {self.ipus[-1]}")
        if self.around is not None:
            return self.around.route(source, target)
        route = self._routes.get((source, target))
        if route is None:
            route = self._routes[source, target] = self._find_route(source, target)
        return route

    def _find_route(self, source: int, target: int) -> Route:
        hops = hops_to(self.neighbours, target)
        path = [source]
        while (here := path[-1]) != target:
            nearer = (there for there in self.neighbours[here] if hops[there] < hops[here])
            path.append(min(nearer, key=lambda there: (len(path) == 1 and not _same_rung(source, there), there)))
        rung: Channel = self.rung if len(path) == 2 else "rung crossing"  # which detours of a dead rung do as well
        route = tuple(
            LinkDirection(here, there, rung if _same_rung(here, there) else "rail") for here, there in pairwise(path)
        )
        return limited(route, self.rung) if source != target and _same_rung(source, target) else route


def hops_to(neighbours: Mapping[int, Sequence[int]], target: int) -> dict[int, int]:
    """Return of each physical IPU number that can reach ``target`` the links of its shortest paths there."""
    hops, reached = {target: 0}, deque([target])
    while reached:
        here = reached.popleft()
        further = [there for there in neighbours[here] if there not in hops]
        hops.update(dict.fromkeys(further, hops[here] + 1))
        reached.extend(further)
    return hops


@lru_cache(maxsize=32)
def _routes_of(topology: Topology) -> dict[tuple[int, int], Route]:  # noqa: ARG001 - equal ones have the same
    """Return where the routes of a topology are kept once they are found; scenario after scenario asks for them."""
    return {}


def _same_rung(one: int, other: int) -> bool:
    return one // 2 == other // 2
