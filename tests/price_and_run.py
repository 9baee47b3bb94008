"""A Plan priced and run, where a test starts from neither a scenario nor a pipeline of Graphcore's API."""

from __future__ import annotations

from typing import Any

from ipusim.hardware.system import System
from ipusim.lowering.lower import complete
from ipusim.machine.cross_replica import replicas_of
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.machine.simulate import simulate
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.price import price_plan
from ipusim.timeline.timeline import Timeline


def price_and_run(plan: Plan, program: PipelineProgram, system: System, **options: Any) -> Timeline:
    """Return the Timeline of ``plan``; ``options`` are those of :func:`ipusim.machine.simulate.simulate`."""
    plan = complete(plan, program, system.replicas)
    costs = price_plan(plan, program, system)
    if isinstance(executor := options.get("executor"), NumpyExecutor):
        options["executor"] = replicas_of([executor], plan, program, system, costs)
    return simulate(plan, program, system, costs=costs, **options)
