"""The load of each link under a selection order, held against routes by hand and prices from link widths."""

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise
from math import ceil

import pytest

from ipusim.app.compare.compare import compare
from ipusim.app.compare.comparison import Comparison
from ipusim.app.compare.link_loads import flows_of, link_chart, runs_by_order
from ipusim.app.render.link_map import Flow, LinkMap, link_maps
from ipusim.app.render.style import DPI
from ipusim.hardware.build import build_system
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.request.request import Request
from tests.drawn_pictures import assert_legible, drawn_texts
from tests.effort import sampled

#: Bytes per second of one link as PopLibs has it: 128 Gibit/s at 85 %.
LINK = Fraction(128 * 2**30 * 85, 8 * 100)
#: Physical places of four IPUs, and the directions of outputs and of gradients: the rung first where rails change.
ROUTES = {
    "SNAKE": ((0, 1, 3, 2), [[(0, 1)], [(1, 3)], [(3, 2)]], [[(1, 0)], [(3, 1)], [(2, 3)]]),
    "HOOF": ((0, 2, 3, 1), [[(0, 2)], [(2, 3)], [(3, 1)]], [[(2, 0)], [(3, 2)], [(1, 3)]]),
    "ZIGZAG": ((0, 1, 2, 3), [[(0, 1)], [(1, 0), (0, 2)], [(2, 3)]], [[(1, 0)], [(2, 3), (3, 1)], [(3, 2)]]),
}
FORWARD = 4_000_000, 1_000_000, 2_000_000
BACKWARD = 3_000_000, 500_000, 1_500_000
COUNT = 16


def request_of(order, system="c2_server", **options):
    stages = [{"name": f"s{number}", "forward": 10_000, "backward": 20_000, "update": 500} for number in range(4)]
    for (one, other), ahead, back in zip(pairwise(stages), FORWARD, BACKWARD, strict=True):
        one["output_bytes"], other["gradient_bytes"] = ahead, back
    pipeline = {"schedule": "grouped", "gradient_accumulation_count": COUNT, "stages": stages, **options}
    return Request.from_dict(
        {"system": {"name": system, "selection_order": order}, "pipeline": pipeline, "memory": "report"}
    )


@pytest.mark.parametrize("order", ROUTES)
@pytest.mark.parametrize("count", [COUNT, 1600])
def test_each_direction_is_busy_for_its_bytes_in_each_merged_copy(order, count):
    """In lock-step all copies are made in each of the count + 8 emitted time-steps; a long run is simulated in part."""
    run = execute(assemble(request_of(order, gradient_accumulation_count=count, repeat_count=2)))
    places, outputs, gradients = ROUTES[order]
    assert run.job.system.ipus == places
    own, crossing, carried = defaultdict(int), defaultdict(int), defaultdict(lambda: [0, 0])
    for back, (ways, sizes) in enumerate(((outputs, FORWARD), (gradients, BACKWARD))):
        for way, size in zip(ways, sizes, strict=True):
            for hop in way:
                crosses = len(way) > 1 and hop[0] // 2 == hop[1] // 2
                (crossing if crosses else own)[hop] += size
                carried[hop][back] += size
    clock, flows = run.job.system.clock_hz, flows_of(run)
    assert flows.keys() == carried.keys()
    for hop, flow in flows.items():
        width = 4 if hop[0] // 2 == hop[1] // 2 else 2
        cycles = max(ceil(own[hop] * clock / (width * LINK)), ceil(crossing[hop] * clock / (2 * LINK)))
        whole = run.summary.throughput.run_cycles
        assert flow.load == pytest.approx(2 * (count + 8) * cycles / whole)
        ahead, back = carried[hop]
        assert flow.forward * back == pytest.approx(flow.backward * ahead)
        assert (flow.forward > 0, flow.backward > 0, flow.other_share) == (ahead > 0, back > 0, 0)


def test_replicas_load_their_own_links_alike_and_their_sum_is_left_out():
    data = request_of("SNAKE").to_dict()
    data["system"]["auto_select_ipus"] = 8
    data["pipeline"]["stages"] = [{**stage, "parameter_bytes": 10_000_000} for stage in data["pipeline"]["stages"]]
    run = execute(assemble(Request.from_dict(data)))
    assert run.job.costs.gradient_sum is not None
    flows = flows_of(run)
    copied = {between: flow for between, flow in flows.items() if flow.load}
    assert {between for between in copied if max(between) < 4} == {
        hop for ways in ROUTES["SNAKE"][1:] for way in ways for hop in way
    }
    assert all(copied[one + 4, other + 4] == flow for (one, other), flow in copied.items() if max(one, other) < 4)
    assert not any(flow.other_share for flow in copied.values())


def test_the_map_is_of_several_orders_with_copies():
    assert not runs_by_order(Comparison(compare(request_of("AUTO"), ["grouped"])))
    assert not runs_by_order(Comparison(compare(request_of("AUTO", "free"), orders=["SNAKE", "HOOF"])))
    compared = Comparison(compare(request_of("AUTO"), ["grouped", "1f1b"], orders=["SNAKE", "HOOF"]))
    drawn = link_chart(runs_by_order(compared))
    titles = [text.get_text() for text in drawn.texts if text.get_fontweight() == "bold"]
    assert [title.partition(":")[0] for title in titles[1:]] == ["SNAKE", "HOOF"]
    assert any("grouped in lock-step" in text.get_text() for text in drawn.texts)


@sampled(2)
@pytest.mark.parametrize(("ipus", "panels"), [(2, 3), (4, 2), (8, 3), (16, 2), (32, 3), (64, 2)])
def test_no_text_of_a_map_lies_over_another(ipus, panels):
    """With every direction of every cable loaded, also where rungs go on in a further line."""
    system = build_system("pod64", mapping=range(ipus), ipus=ipus)
    cables = [(one, other) for one, others in system.topology.neighbours.items() for other in others if one < other]
    flows = {way: Flow(0.5, 0.48, 0.01) for pair in cables for way in (pair, pair[::-1])}
    physical = list(system.topology.ipus)
    title = (
        "SNAKE: 100.5 ms per weight update\n126 of 126 copies go over one link; the busiest link, from IPU 0 to IPU 1"
    )
    drawn = link_maps([LinkMap(title, {ipu: ipu for ipu in physical}, physical, cables, flows)] * panels, "Map\nWords")
    drawn.set_dpi(DPI)
    texts = drawn_texts(drawn)
    assert sum(text == "99%" for text, _ in texts) >= 2 * panels * len(cables)
    assert_legible(drawn, [(text, box.padded(0, -2)) for text, box in texts])  # extents have room around letters
