"""Compute the load of a system's links under the compared selection orders, and draw their map."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import groupby

import numpy as np

from ipusim.api import Run, SpanKind, analysis
from ipusim.app.compare.comparison import Comparison
from ipusim.app.render.figures import Chart
from ipusim.app.render.link_map import MOST_IPUS, Flow, LinkMap, link_maps
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.base.units import counted, format_seconds

#: Source and target physical IPU of a cable's direction.
Direction = tuple[int, int]


def runs_by_order(result: Comparison) -> dict[str, Run]:
    """Return runs of one scenario, schedule and sync mode by selection order, for a map of the links' loads.

    The runs have the first scenario, schedule and sync mode with several completed selection orders and copies between
    IPUs. Without such runs, or for a device too large for a map, the result is empty.
    """
    completed = [row for row in result.rows if row.result is not None]
    for _, rows in groupby(completed, key=lambda row: (row.source, row.schedule, row.sync)):
        runs = {run.job.system.selection_order: run for row in rows if (run := row.result) is not None}
        first = next(iter(runs.values()))
        if len(runs) > 1 and first.job.system.count <= MOST_IPUS and any(map(flows_of, runs.values())):
            return runs
    return {}


def link_chart(runs: Mapping[str, Run], picture: Picture = DEFAULT) -> Chart:
    """Return the map of link routes and loads under several selection orders.

    Args:
        runs: runs of a program on a device, by selection order.
        picture: title, size and theme.

    Returns:
        A map for each order.

    Raises OptionError for an unreadably small size.
    """
    first = next(iter(runs.values()))
    system, shape = first.job.system, first.job.plan.shape
    headline = "Routes of a pipeline's copies over IPU-Links, and the load of each link, by selection order"
    title = (
        f"{picture.title or headline}\n"
        f"{first.timeline.info.name} on {system.name}: {first.timeline.info.order_and_sync}, "
        f"{counted(shape.stages, 'stage')}, {counted(system.count, 'IPU')}. In circles: logical IPUs, where "
        "they sit. Numbers: share of the time in which a link carries copies in a direction. The two IPUs of a rung, "
        "one above the other, have links for their own copies and links for passing copies: the busier ones count."
    )
    return link_maps([_map_of(order, run) for order, run in runs.items()], title, picture)


def flows_of(run: Run) -> dict[Direction, Flow]:
    """Return the share of the time in which each cable direction carries copies between stages.

    Args:
        run: run on a device of at most one pod.

    Returns:
        Flows by physical IPUs, without copies of weight updates. If a direction carries outputs and gradients, its load
        is divided by bytes. A rung has two groups of links, for the traffic of its own IPUs and for passing traffic:
        the busier group counts.
    """
    flat = run.timeline.contiguous()
    rows = flat.rows(SpanKind.LINK)
    rows = rows[flat.time_step[rows] < flat.info.time_steps]
    cycles = (flat.end[rows] - flat.start[rows]) * run.timeline.weights[rows]
    busy = np.bincount(flat.link[rows], cycles, len(flat.info.links))
    run_cycles = analysis.throughput_of(run.timeline).run_cycles or 1
    loads: dict[Direction, float] = defaultdict(float)
    for link, busy_cycles in zip(run.job.costs.links, busy.tolist(), strict=False):
        if busy_cycles and not link.is_limit:  # a limit of a route's rate is no cable
            direction = link.source, link.target
            loads[direction] = max(loads[direction], busy_cycles / run_cycles)
    bytes_of_direction = _bytes_by_pass(run)
    flows = {}
    for direction, load in loads.items():
        forward, backward = bytes_of_direction.get(direction, (0, 0))
        if forward + backward:
            forward_load = load * forward / (forward + backward)
            flows[direction] = Flow(forward_load, load - forward_load)
        else:
            flows[direction] = Flow(0.0, 0.0, load)
    return flows


def _bytes_by_pass(run: Run) -> dict[Direction, tuple[int, int]]:
    """Return bytes of outputs and gradients of a micro-batch by direction, over every replica."""
    system, shape = run.job.system, run.job.plan.shape
    bytes_of_direction: dict[Direction, list[int]] = defaultdict(lambda: [0, 0])
    (report,) = [report for report in run.summary.selection_orders if report.used]
    for first in range(0, system.count, system.shards):
        for mapping in shape.copies:
            for copy in report.routes:
                for link in system.route(first + mapping[copy.source], first + mapping[copy.target]):
                    bytes_of_direction[link.source, link.target][copy.backward] += copy.bytes
    return {direction: (forward, backward) for direction, (forward, backward) in bytes_of_direction.items()}


def _map_of(order: str, run: Run) -> LinkMap:
    system = run.job.system
    (report,) = [report for report in run.summary.selection_orders if report.used]
    flows = flows_of(run)
    logical = {physical: ipu for ipu, physical in enumerate(system.ipus)}
    idle = set(run.summary.idle_ipus)
    busiest = max(flows, key=lambda direction: flows[direction].load, default=None)
    words = (
        ""
        if busiest is None
        else (
            f"; the busiest link, from IPU {logical[busiest[0]]} to IPU {logical[busiest[1]]}, carries copies "
            f"{flows[busiest].load:.1%} of the time"
        )
    )
    time = f"{format_seconds(run.summary.throughput.weight_update_period_s)} per {run.summary.period}"
    return LinkMap(
        f"{order}: {time}\n{report.direct_routes} of {len(report.routes)} copies go over one link{words}",
        {physical: None if ipu in idle else ipu for physical, ipu in logical.items()},
        list(system.topology.ipus),
        [(ipu, peer) for ipu, peers in system.topology.neighbours.items() for peer in peers if ipu < peer],
        flows,
    )
