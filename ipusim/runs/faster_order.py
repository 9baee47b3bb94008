"""Find the selection order, an order of a machine's IPUs such as SNAKE, with the shortest run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ipusim.analysis.orders import FasterOrder, OrderReport
from ipusim.analysis.throughput import throughput_of
from ipusim.base.cache import Cache
from ipusim.hardware.system import System
from ipusim.machine.disturbances import disturbs
from ipusim.pricing.costs import Costs
from ipusim.pricing.price import price_plan
from ipusim.runs.job import Job
from ipusim.runs.time_alone import timeline_of
from ipusim.timeline.timeline import Timeline

#: Number of spans of a run without repeats above which orders are compared by estimates. Under gpipe, a span takes up
#: to 0.5 ms, so three runs would take half a minute.
_MOST_SPANS: Final = 20_000
#: Minimum saving named in a sentence, as a share of the time.
_LEAST_SAVED_SHARE: Final = 0.0005


def faster_order(job: Job, timeline: Timeline, reports: Sequence[OrderReport]) -> FasterOrder | None:
    """Return the fastest selection order; None if the current order is as fast.

    The run in each order is a timing-only run, with routes, copies and gradient sums of that order.

    Args:
        job: program of the run.
        timeline: whole run.
        reports: orders, with the cycles of their copies in an execution.

    Returns:
        Order and saved share of the time. None if no order saves 0.05 % of the time, or on a machine without
        communication costs.
    """
    current = next(report for report in reports if report.used)
    candidates = [report for report in reports if report.ipus != current.ipus and not job.system.free]
    if not candidates:
        return None
    cycles, estimated = throughput_of(timeline).run_cycles, _is_long(job, timeline)
    savings: dict[str, int] = {}
    with Cache().activate():
        for report in candidates:
            device = job.system.reordered(report.order)
            if estimated:
                saved_in_sums = _sum_cycles(job.costs) - _sum_cycles(price_plan(job.plan, job.program, device))
                savings[report.order] = timeline.info.executions * (
                    current.execution_cycles - report.execution_cycles + saved_in_sums
                )
            else:
                savings[report.order] = cycles - _run_cycles(job, timeline, device)
    best = max(savings, key=lambda order: savings[order])
    saved_share = savings[best] / cycles if cycles else 0.0
    return FasterOrder(best, saved_share, estimated) if saved_share >= _LEAST_SAVED_SHARE else None


def _is_long(job: Job, timeline: Timeline) -> bool:
    """Return whether a simulation of the run in another order would have to record many spans.

    If the schedule has a period, a shorter run stands for a run without disturbances.
    """
    is_simulated_whole = (
        job.schedule.period is None or disturbs(job.system) or (job.workload is None and not timeline.repeats)
    )
    return is_simulated_whole and timeline.spans_in_all > _MOST_SPANS


def _run_cycles(job: Job, timeline: Timeline, device: System) -> int:
    def price(part: Job) -> tuple[Costs, System]:
        return price_plan(part.plan, part.program, device), device

    return throughput_of(timeline_of(job, timeline.info.executions, price=price, between=job.between)).run_cycles


def _sum_cycles(costs: Costs) -> int:
    return 0 if costs.gradient_sum is None else costs.gradient_sum.cost.total_cycles
