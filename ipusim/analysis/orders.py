"""Compare selection orders: routes of inter-IPU copies, and time of the merged copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ipusim.base.errors import DeviceError
from ipusim.hardware.orders import ORDERS
from ipusim.hardware.system import System
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.copies import copy_costs, send_costs, stage_copies
from ipusim.pricing.costs import Costs


@dataclass(frozen=True)
class CopyRoute:
    """Route of one tensor between two IPUs.

    Attributes:
        source: number of the sending stage.
        target: number of the receiving stage.
        backward: whether the tensor contains a gradient.
        ipus: physical IPUs along the route, both ends included.
        bytes: size for one micro-batch.
    """

    source: int
    target: int
    backward: bool
    ipus: tuple[int, ...]
    bytes: int

    @property
    def links(self) -> int:
        """Number of IPU-Link hops; 1 for a direct connection."""
        return len(self.ipus) - 1

    def __str__(self) -> str:
        """Return stages and IPUs of the route: ``1→2 over IPUs 1→0→2``."""
        return f"{self.source}→{self.target} over IPUs {'→'.join(map(str, self.ipus))}"


@dataclass(frozen=True)
class OrderReport:
    """One selection order on the program's device.

    Attributes:
        order: ZIGZAG, SNAKE or HOOF.
        used: whether the run uses this order.
        ipus: physical IPU of each logical IPU.
        routes: routes of tensors between IPUs.
        copy_cycles: cycles of the longest copy. In lock-step: the longest merged copy of tensors after a time-step,
            sync included. In point-to-point: the longest send on idle links, without a sync.
        execution_cycles: total cycles of an execution's copies. In lock-step: with syncs, for the slowest group of
            replicas. In point-to-point: the sends of one replica, without syncs.
    """

    order: str
    used: bool
    ipus: tuple[int, ...]
    routes: tuple[CopyRoute, ...]
    copy_cycles: int
    execution_cycles: int

    @property
    def direct_routes(self) -> int:
        """Number of routes over a single link."""
        return sum(route.links == 1 for route in self.routes)

    @property
    def most_links(self) -> int:
        """Links of the longest route; 0 without routes."""
        return max((route.links for route in self.routes), default=0)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data for JSON."""
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
    """Selection order with a shorter weight update, or a shorter execution of inference.

    Attributes:
        order: ZIGZAG, SNAKE or HOOF.
        saved: saved fraction of the time.
        is_estimate: whether only copies and the sum of gradients were compared, as a full run would take long.
    """

    order: str
    saved: float
    is_estimate: bool


def order_reports(plan: Plan, program: PipelineProgram, system: System, costs: Costs) -> tuple[OrderReport, ...]:
    """Report every selection order on the same device: ZIGZAG, SNAKE, HOOF.

    ``costs`` belong to the order in use; copies of the other orders are priced here. An order without a cable that the
    system's disturbances name has no report, as a scenario with both is refused.
    """
    reports = []
    for order in ORDERS:
        is_current = order == system.selection_order
        try:
            device = system if is_current else system.reordered(order)
        except DeviceError:
            continue
        longest_and_all = _copy_cycles(plan, program, device, costs if is_current else None)
        reports.append(OrderReport(order, is_current, device.ipus, _routes(plan, program, device), *longest_and_all))
    return tuple(reports)


def _copy_cycles(plan: Plan, program: PipelineProgram, system: System, costs: Costs | None) -> tuple[int, int]:
    """Return cycles of the longest copy and of an execution's copies, from ``costs`` if available."""
    if plan.sync.has_time_steps:
        copies = costs.copies if costs else copy_costs(plan, program, system)
        return copies.longest_cycles, copies.execution_cycles
    sends = costs.sends if costs else send_costs(plan, program, system, {})
    cycles = {key: send.lead_cycles + send.cycles for key, send in sends.items()}
    pipeline_copies, micro_batches = len(plan.shape.copies), plan.shape.micro_batches
    total = sum(
        send_cycles * len(range(pipeline_copy, micro_batches, pipeline_copies))
        for (replica, pipeline_copy, *_), send_cycles in cycles.items()
        if not replica
    )
    return max(cycles.values(), default=0), total


def _routes(plan: Plan, program: PipelineProgram, system: System) -> tuple[CopyRoute, ...]:
    shape = plan.shape
    routes = []
    for edge in plan.edges():
        backward = edge.source_step >= shape.positions
        for copy in stage_copies(program, edge):
            source, target = shape.mapping[copy.source], shape.mapping[copy.target]
            if source != target:
                directions = system.route(source, target)
                ipus = (directions[0].source, *(direction.target for direction in directions))
                routes.append(CopyRoute(copy.source, copy.target, backward, ipus, copy.bytes))
    return tuple(routes)
