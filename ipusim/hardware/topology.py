"""The IPU-Link graph of a device, and the route that traffic takes over it.

Two IPUs, 2r and 2r + 1, form rung r; rails join 2r to 2r + 2 and 2r + 1 to
2r + 3. A ladder ends at its first and last rung, in a torus the rails loop round
(Graphcore GCL user guide). Traffic crosses the rung first, if it must change
rails, and then walks the rail (PopLibs lib/poplibs_test/Util.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from ipusim.errors import DeviceError
from ipusim.hardware.links import Channel, LinkDirection

if TYPE_CHECKING:
    import networkx as nx

Route = tuple[LinkDirection, ...]


@dataclass(frozen=True)
class Topology:
    """The links among consecutive ladder positions of a machine.

    Attributes:
        first: lowest physical IPU number; even, unless the device is one IPU.
        count: IPUs, 1 or an even number.
        looped: whether the ends of the rails are joined, which makes a torus.
        rung: what carries the traffic of a rung's own two IPUs: ``rung``, or ``machine rung`` in IPU-Machines.

    Raises DeviceError when the positions do not make whole rungs.
    """

    first: int
    count: int
    looped: bool = False
    rung: Channel = "rung"

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
    def graph(self) -> nx.Graph:
        """The undirected graph of physical IPU numbers; one edge for all links between two neighbours."""
        # networkx takes as long to import as all the rest of ipusim, so only those who look at links pay for it
        import networkx as nx  # noqa: PLC0415

        graph = nx.Graph()
        graph.add_nodes_from(self.ipus)
        graph.add_edges_from((ipu, ipu + 1) for ipu in self.ipus[::2] if ipu + 1 in self.ipus)
        graph.add_edges_from((ipu, ipu + 2) for ipu in self.ipus[:-2])
        if self.looped and self.count > 4:  # two rungs have no ends left to join
            graph.add_edges_from(zip(self.ipus[-2:], self.ipus[:2], strict=True))
        return graph

    @cached_property
    def _routes(self) -> dict[tuple[int, int], Route]:
        return _routes_of(self)

    def route(self, source: int, target: int) -> Route:
        """Return the link directions from ``source`` to ``target``, physical IPU numbers, in the order of travel.

        The route is a shortest path; of equals the one that takes the rung first,
        then the one through the lower IPU number. Empty when source and target are
        the same. Raises DeviceError for an IPU that is not in the device.
        """
        for ipu in (source, target):
            if ipu not in self.ipus:
                raise DeviceError(f"no IPU {ipu} here: expected one of IPUs {self.ipus[0]} to {self.ipus[-1]}")
        route = self._routes.get((source, target))
        if route is None:
            route = self._routes[source, target] = self._find_route(source, target)
        return route

    def _find_route(self, source: int, target: int) -> Route:
        if source == target:
            return ()
        graph = self.graph  # first use imports networkx
        import networkx as nx  # noqa: PLC0415

        paths = nx.all_shortest_paths(graph, source, target)
        path: list[int] = min(paths, key=lambda path: (not _same_rung(path[0], path[1]), path))
        rung: Channel = self.rung if _same_rung(source, target) else "rung crossing"
        return tuple(
            LinkDirection(here, there, rung if _same_rung(here, there) else "rail") for here, there in pairwise(path)
        )


@lru_cache(maxsize=32)
def _routes_of(topology: Topology) -> dict[tuple[int, int], Route]:  # noqa: ARG001 - equal ones have the same
    """Return where the routes of a topology are kept once they are found; scenario after scenario asks for them."""
    return {}


def _same_rung(one: int, other: int) -> bool:
    return one // 2 == other // 2
