"""What each selection order makes of a program's inter-IPU copies: routes, and the time of the merged copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ipusim.hardware.orders import ORDERS
from ipusim.hardware.system import System
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.copies import copy_costs, send_costs, stage_copies
from ipusim.pricing.costs import Costs


@dataclass(frozen=True)
class CopyRoute:
    """The way of one tensor that crosses IPUs.

    Attributes:
        source, target: stage numbers.
        backward: whether it is a gradient.
        ipus: physical IPUs on the way, both ends included.
        bytes: of one micro-batch.
    """

    source: int
    target: int
    backward: bool
    ipus: tuple[int, ...]
    bytes: int

    @property
    def links(self) -> int:
        """The number of IPU-Link hops; 1 is a direct connection."""
        return len(self.ipus) - 1

    def __str__(self) -> str:
        """Return the stages and the way: ``1→2 over IPUs 1→0→2``."""
        return f"{self.source}→{self.target} over IPUs {'→'.join(map(str, self.ipus))}"


@dataclass(frozen=True)
class OrderReport:
    """One selection order on the program's device.

    Attributes:
        order: ZIGZAG, SNAKE or HOOF.
        used: whether the run uses it.
        ipus: physical IPU of each logical one.
        routes: of every tensor that crosses IPUs.
        copy_cycles: of the longest copy, sync included: the merged copy of all of them, or with one
            stage at a time that of the slowest stage; in point-to-point of the longest send, with the links to itself.
        execution_cycles: of all copies of one execution of the pipeline, syncs included; in point-to-point of all
            sends of a replica, one after the other.
    """

    order: str
    used: bool
    ipus: tuple[int, ...]
    routes: tuple[CopyRoute, ...]
    copy_cycles: int
    execution_cycles: int

    @property
    def direct(self) -> int:
        """The number of routes over one link only."""
        return sum(route.links == 1 for route in self.routes)

    @property
    def longest(self) -> int:
        """Links of the longest route, 0 without routes."""
        return max((route.links for route in self.routes), default=0)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "order": self.order,
            "used": self.used,
            "ipus": list(self.ipus),
            "copy_cycles": self.copy_cycles,
            "execution_cycles": self.execution_cycles,
            "routes": [
                {
                    "source_stage": route.source,
                    "target_stage": route.target,
                    "pass": "backward" if route.backward else "forward",
                    "ipus": list(route.ipus),
                    "links": route.links,
                    "bytes": route.bytes,
                }
                for route in self.routes
            ],
        }


@dataclass(frozen=True)
class FasterOrder:
    """A selection order under which a weight update, or an execution of inference, takes less time.

    Attributes:
        order: ZIGZAG, SNAKE or HOOF.
        saved: part of the time that the order saves.
        is_estimate: whether the copies and the sum of gradients alone were compared, as a run would take long.
    """

    order: str
    saved: float
    is_estimate: bool


def order_reports(plan: Plan, program: PipelineProgram, system: System, costs: Costs) -> tuple[OrderReport, ...]:
    """Return a report of every selection order on the same device, in the order ZIGZAG, SNAKE, HOOF.

    ``costs`` are those of the order in use; of the others the copies are priced here.
    """
    reports = []
    for order in ORDERS:
        used = order == system.selection_order
        device = system if used else system.reordered(order)
        longest_and_all = _copy_cycles(plan, program, device, costs if used else None)
        reports.append(OrderReport(order, used, device.ipus, _routes(plan, program, device), *longest_and_all))
    return tuple(reports)


def _copy_cycles(plan: Plan, program: PipelineProgram, system: System, costs: Costs | None) -> tuple[int, int]:
    """Return the longest copy and all of an execution, in cycles, out of ``costs`` if these are known."""
    if plan.sync.meets:
        copies = costs.copies if costs else copy_costs(plan, program, system)
        return copies.longest_cycles, copies.execution_cycles
    sends = costs.sends if costs else send_costs(plan, program, system, {})
    cycles = {key: send.lead_cycles + send.cycles for key, send in sends.items()}
    apart, micro_batches = len(plan.shape.copies), plan.shape.micro_batches
    every = sum(
        cycle * len(range(copy, micro_batches, apart)) for (replica, copy, *_), cycle in cycles.items() if not replica
    )
    return max(cycles.values(), default=0), every


def _routes(plan: Plan, program: PipelineProgram, system: System) -> tuple[CopyRoute, ...]:
    shape = plan.shape
    routes = []
    for edge in plan.edges():
        backward = edge.source_step >= shape.positions
        for copy in stage_copies(program, edge):
            source, target = shape.mapping[copy.source], shape.mapping[copy.target]
            if source != target:
                ways = system.route(source, target)
                ipus = (ways[0].source, *(way.target for way in ways))
                routes.append(CopyRoute(copy.source, copy.target, backward, ipus, copy.bytes))
    return tuple(routes)
