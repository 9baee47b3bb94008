"""Routes around dead cables, and circles, against networkx."""

from itertools import pairwise, product

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipusim.base.errors import DeviceError
from ipusim.hardware.build import build_system
from ipusim.hardware.disturbances import Dead
from ipusim.hardware.machines import MACHINES
from ipusim.hardware.orders import ORDERS
from ipusim.hardware.pods import POD_IPUS
from ipusim.hardware.topology import Topology
from ipusim.pipeline.standstill import all_end, circle_of
from tests.effort import draws_everything, sampled


def graph_of(topology: Topology) -> nx.Graph:
    """The cables between IPUs, but for those that are dead."""
    graph = nx.Graph()
    graph.add_nodes_from(topology.ipus)
    graph.add_edges_from((ipu, ipu + 1) for ipu in topology.ipus[::2] if ipu + 1 in topology.ipus)
    graph.add_edges_from((ipu, ipu + 2) for ipu in topology.ipus[:-2])
    if topology.looped and topology.count > 4:
        graph.add_edges_from(zip(topology.ipus[-2:], topology.ipus[:2], strict=True))
    graph.remove_edges_from(topology.dead)
    return graph


def shortest_paths(graph: nx.Graph, source: int) -> dict[int, list[int]]:
    """The shortest path to each IPU; of equals the one that takes the rung first, then the one by lower numbers."""
    return {
        target: min(paths, key=lambda path: (path[1:2] != [path[0] ^ 1], path))
        for target, paths in nx.single_source_all_shortest_paths(graph, source)
    }


def slowest(system, route):
    """Return the rate of a route's slowest part."""
    return min(hop.bytes_per_s(system.rates) for hop in route)


@sampled(3)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", MACHINES)
def test_a_dead_rung_reroutes_as_networkx_says_or_is_refused(name: str, order: str) -> None:
    """On every device within a pod: routes of the rung's own IPUs, and of some that crossed it."""
    for size in MACHINES[name].sizes:
        if not 1 < size <= POD_IPUS:
            continue
        system = build_system(name, mapping=range(size), ipus=size, selection_order=order)
        logical = {physical: number for number, physical in enumerate(system.ipus)}
        rungs = [*zip(system.topology.ipus[::2], system.topology.ipus[1::2], strict=True)]
        step = 1 if draws_everything() else max(1, len(rungs) // (3 if size <= 16 else 2))
        for rung in rungs[::step]:
            one, other = (logical[ipu] for ipu in rung)
            if size == 2:
                with pytest.raises(DeviceError, match=f"without which IPU {logical[rung[1]]} is cut off"):
                    system.disturbed([Dead((one, other), True)])
                continue
            disturbed = system.disturbed([Dead((one, other), True)])
            assert isinstance(disturbed.topology, Topology)
            graph = graph_of(disturbed.topology)
            assert not graph.has_edge(*rung)
            paths = {source: shortest_paths(graph, system.ipus[source]) for source in (one, other)}
            for source, target in product((one, other), range(size)):
                route = disturbed.route(source, target)
                path = paths[source][system.ipus[target]]
                between = (source, target) in ((one, other), (other, one))
                links, limits = route[: len(route) - between], route[len(route) - between :]
                assert [(hop.source, hop.target) for hop in links] == [*pairwise(path)]
                assert not between or links[1].channel == "rung crossing"
                # A detour is as slow as the direct way at least, whatever its links would carry.
                assert [limit.channel for limit in limits] == [f"{system.topology.rung} detour"] * between
                direct = system.route(source, target)
                assert not between or slowest(disturbed, route) <= slowest(system, direct)


@pytest.mark.parametrize("name", [name for name, machine in MACHINES.items() if machine.count > POD_IPUS])
def test_dead_cables_between_pods_and_in_them_take_shortest_paths(name: str) -> None:
    """Through gateways of machines, each of which joins the IPUs of one position in two pods."""
    size = 2 * POD_IPUS
    system = build_system(name, mapping=range(4), ipus=size, selection_order="ZIGZAG")
    assert system.cables[0][-1] == POD_IPUS, "the GW-Link of the first machine"
    disturbed = system.disturbed([Dead((0, POD_IPUS), True), Dead((64, 65), True), Dead((0, 1), True)])
    graph = nx.Graph()
    for first in (0, POD_IPUS):
        torus = Topology(first, POD_IPUS, True, dead=frozenset([(0, 1), (64, 65)]))
        graph.add_edges_from(graph_of(torus).edges)
    graph.add_edges_from((ipu, ipu + POD_IPUS) for ipu in range(4, POD_IPUS))
    for source, target in product((0, 1, 3, 17, 64, 65), range(0, size, 3)):
        route = disturbed.route(source, target)
        assert len([hop for hop in route if not hop.is_limit]) == nx.shortest_path_length(graph, source, target)
    assert [(hop.source, hop.target) for hop in disturbed.route(0, 64)] == [(0, 62), (60, 124), (126, 64)]


def test_the_cable_that_cuts_an_ipu_off_is_refused_by_name() -> None:
    system = build_system("m2000", mapping=range(4), selection_order="ZIGZAG")
    with pytest.raises(DeviceError, match=r"disturbance 1: link: .* got one without which IPU 3 is cut off"):
        system.disturbed([Dead((1, 3), True), Dead((2, 3), True)])
    assert system.disturbed([Dead((1, 3), True), Dead((2, 3), False)]).route(3, 1) == system.disturbed(
        [Dead((1, 3), True)]
    ).route(3, 1)


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
