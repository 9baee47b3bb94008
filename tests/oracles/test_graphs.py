"""Routes and circles, against networkx."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise, product

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipusim.hardware.build import build_system
from ipusim.hardware.machines import MACHINES
from ipusim.hardware.orders import ORDERS
from ipusim.hardware.pods import POD_IPUS
from ipusim.hardware.topology import Topology
from ipusim.pipeline.standstill import all_end, circle_of


@lru_cache
def shortest(topology: Topology) -> dict[tuple[int, int], list[int]]:
    """The shortest path of each pair; of equals the one that takes the rung first, then the one by lower numbers."""
    graph = nx.Graph()
    graph.add_nodes_from(topology.ipus)
    graph.add_edges_from((ipu, ipu + 1) for ipu in topology.ipus[::2] if ipu + 1 in topology.ipus)
    graph.add_edges_from((ipu, ipu + 2) for ipu in topology.ipus[:-2])
    if topology.looped and topology.count > 4:
        graph.add_edges_from(zip(topology.ipus[-2:], topology.ipus[:2], strict=True))
    return {
        (source, target): min(
            nx.all_shortest_paths(graph, source, target),
            key=lambda path: (path[1:2] != [path[0] ^ 1], path),
        )
        for source, target in product(topology.ipus, repeat=2)
    }


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", MACHINES)
def test_every_route_of_every_machine_is_the_path_that_networkx_finds(name: str, order: str) -> None:
    """On one pod at most: between pods a route is put together of routes in them."""
    for size in MACHINES[name].sizes:
        if size <= POD_IPUS:
            system = build_system(name, mapping=range(size), ipus=size, selection_order=order)
            assert isinstance(system.topology, Topology)
            paths = shortest(system.topology)
            for source, target in product(range(size), repeat=2):
                route = system.route(source, target)
                path = paths[system.ipus[source], system.ipus[target]]
                assert [(hop.source, hop.target) for hop in route] == [*pairwise(path)]


@pytest.mark.parametrize("first", [0, 8, 16, 48])
def test_every_route_of_a_part_of_a_machine_is_the_path_that_networkx_finds(first: int) -> None:
    topology = Topology(first, 16)
    for (source, target), path in shortest(topology).items():
        assert [(hop.source, hop.target) for hop in topology.route(source, target)] == [*pairwise(path)]


WAITS = st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=4).map(tuple), max_size=10)


@given(WAITS)
def test_the_circle_of_those_who_wait_is_the_one_that_networkx_finds(waits: dict[int, tuple[int, ...]]) -> None:
    graph = nx.DiGraph([(ipu, other) for ipu, others in waits.items() for other in others if other in waits])
    try:
        expected = tuple(ipu for ipu, _ in nx.find_cycle(graph))
    except nx.NetworkXNoCycle:
        expected = ()
    assert circle_of(waits) == expected


@given(st.lists(st.integers(0, 3), max_size=12), st.data())
def test_ipus_end_where_networkx_finds_no_circle_of_instructions(ipus: list[int], data: st.DataObject) -> None:
    ipus.sort()
    rows = range(len(ipus))
    sent = data.draw(st.dictionaries(st.sampled_from(rows), st.sampled_from(rows))) if ipus else {}
    follows = [(row, row + 1) for row in rows[:-1] if ipus[row] == ipus[row + 1]]
    graph = nx.DiGraph([*follows, *((send, receive) for receive, send in sent.items())])
    receives = [(ipus[receive], receive, ipus[send], send) for receive, send in sorted(sent.items())]
    assert all_end(receives) == nx.is_directed_acyclic_graph(graph)
