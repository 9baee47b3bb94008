"""Print an Order as a grid."""

from __future__ import annotations

from ipusim.api import Schedule, Sync, pipelines, runs, schedules
from ipusim.app.notebook.checked import check_types
from ipusim.base.errors import OptionError


@check_types
def show(order: pipelines.Order, sync: str = "lock_step") -> None:
    """Print an Order as a grid: time-steps down, IPUs across.

    ``F1.3`` is the forward pass of stage 1 on micro-batch 3.

    Args:
        order: passes of each IPU.
        sync: sync mode of the IPUs, ``lock_step`` or ``point_to_point``.

    Raises:
        OptionError: for an unknown sync mode.
        PlanError: for an Order that breaks a rule, with the grid and its wrong passes marked.

    Example:
        >>> from ipusim import Order, Shape, show
        >>> passes = {0: ["F0.0", "F0.1", "B0.0", "B0.1"], 1: ["F1.0", "B1.0", "F1.1", "B1.1"]}
        >>> show(Order.from_passes("mine", Shape(mapping=(0, 1), micro_batches=2), passes))
        mine training, stages on IPUs 0, 1, count 2
        time-steps 5 emitted, copies merged, FIFO depths 1, 0
        offsets of stages: none
          0  F0.0 | .
          1  F0.1 | F1.0
          2  .    | B1.0 F1.1
          3  B0.0 | B1.1
          4  B0.1 | .
    """
    modes = {mode.value: mode for mode in Sync}
    if sync not in modes:
        raise OptionError("sync", f"expected {runs.one_of(modes)}, got {runs.show(sync)}")
    schedule = Schedule(
        order.schedule,
        lambda _: order,
        lambda _: 1,
        pipelined=True,
        summary="",
        supports=frozenset(schedules.Feature),
    )
    plan = runs.plan_of(schedule, order.shape, modes[sync])
    pipelines.check_plan(plan)
    print(pipelines.format_grid(plan), end="")
