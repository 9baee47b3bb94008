"""Route messages over the IPU-Links of a device.

IPUs 2r and 2r + 1 form rung r; rails join 2r to 2r + 2 and 2r + 1 to 2r + 3. A ladder ends at the first and last rung;
in a torus the rails loop round (Graphcore GCL user guide). Traffic that changes rails crosses the rung first, then
walks the rail (PopLibs lib/poplibs_test/Util.cpp).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Protocol

from ipusim.base.errors import DeviceError
from ipusim.hardware.links import Channel, LinkDirection, with_detour_limit

Route = tuple[LinkDirection, ...]


class Routes(Protocol):
    """Routes between physical IPUs."""

    def route(self, source: int, target: int) -> Route:
        """Return the route's link directions."""
        ...


@dataclass(frozen=True)
class Topology:
    """Links among consecutive ladder positions of a machine.

    Attributes:
        first: lowest physical IPU number; even, except for a single-IPU device.
        count: IPUs, 1 or an even number.
        looped: whether the ends of the rails are joined to a torus.
        rung: channel between a rung's two IPUs: ``rung``, or ``machine rung`` in IPU-Machines.
        dead: cables without traffic, as pairs of physical IPU numbers in ascending order.
        around: links of the whole device, for routes that may leave these IPUs; None if routes stay inside.

    Raises DeviceError if the positions do not form whole rungs.
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
        """Physical IPU numbers, ascending: rung by rung along the ladder."""
        return range(self.first, self.first + self.count)

    @cached_property
    def neighbours(self) -> Mapping[int, tuple[int, ...]]:
        """Neighbours over links in ascending order, by physical IPU number."""
        ipus = self.ipus
        pairs = [*zip(ipus[::2], ipus[1::2], strict=False), *zip(ipus, ipus[2:], strict=False)]
        if self.looped and self.count > 4:  # two rungs have no free ends
            pairs += zip(ipus[-2:], ipus[:2], strict=True)
        pairs = [pair for pair in pairs if (min(pair), max(pair)) not in self.dead]
        ordered_pairs = [*pairs, *((other_end, end) for end, other_end in pairs)]
        return {ipu: tuple(sorted(other_end for end, other_end in ordered_pairs if end == ipu)) for ipu in ipus}

    def drop(self, dead: Collection[tuple[int, int]]) -> Topology:
        """Return the links that remain when the cables ``dead`` fail too; a cable is an ascending pair of IPUs."""
        return replace(self, dead=self.dead.union(dead))

    @property
    def unreachable_ipus(self) -> list[int]:
        """IPUs without a path to the first IPU."""
        hops = hops_to(self.neighbours, self.first)
        return [ipu for ipu in self.ipus if ipu not in hops]

    @cached_property
    def _routes(self) -> dict[tuple[int, int], Route]:
        return _routes_of(self)

    def route(self, source: int, target: int) -> Route:
        """Return the link directions from ``source`` to ``target``, physical IPU numbers, in travel order.

        The route is a shortest path, empty for equal source and target. Among shortest paths, a path that crosses the
        rung first is preferred, then a path over lower IPU numbers. Detours between the IPUs of a rung have
        a last element that limits the rate. Raises DeviceError for an IPU outside the device.
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
        while (ipu := path[-1]) != target:
            nearer = (neighbour for neighbour in self.neighbours[ipu] if hops[neighbour] < hops[ipu])
            path.append(
                min(nearer, key=lambda neighbour: (len(path) == 1 and not _same_rung(source, neighbour), neighbour))
            )
        # Longer routes, such as detours around dead rungs, use the links for crossing traffic.
        rung: Channel = self.rung if len(path) == 2 else "rung crossing"
        route = tuple(
            LinkDirection(source_ipu, target_ipu, rung if _same_rung(source_ipu, target_ipu) else "rail")
            for source_ipu, target_ipu in pairwise(path)
        )
        return with_detour_limit(route, self.rung) if source != target and _same_rung(source, target) else route


def hops_to(neighbours: Mapping[int, Sequence[int]], target: int) -> dict[int, int]:
    """Return the lengths of shortest paths to ``target``, by physical IPU number; unreachable IPUs are absent."""
    hops, frontier = {target: 0}, deque([target])
    while frontier:
        ipu = frontier.popleft()
        further = [neighbour for neighbour in neighbours[ipu] if neighbour not in hops]
        hops.update(dict.fromkeys(further, hops[ipu] + 1))
        frontier.extend(further)
    return hops


@lru_cache(maxsize=32)
def _routes_of(topology: Topology) -> dict[tuple[int, int], Route]:  # noqa: ARG001 - key of the cache
    """Return the cache of a topology's routes, shared by scenarios."""
    return {}


def _same_rung(first: int, second: int) -> bool:
    return first // 2 == second // 2
