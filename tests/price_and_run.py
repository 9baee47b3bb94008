"""A Plan priced and run, where a test starts from neither a scenario nor a pipeline of Graphcore's API."""

from __future__ import annotations

from typing import Any

from ipusim.hardware.system import System
from ipusim.lowering.lower import complete
from ipusim.machine.clock import Clock
from ipusim.machine.cross_replica import replicas_of
from ipusim.machine.executor import NullExecutor, Replicas
from ipusim.machine.facility import Context
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.machine.rerouted import rerouted
from ipusim.machine.simulate import simulate
from ipusim.machine.speeds import speeds_of
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.costs import Costs
from ipusim.pricing.price import price_plan
from ipusim.timeline.recorder import Recorder
from ipusim.timeline.timeline import Timeline


def price_and_run(plan: Plan, program: PipelineProgram, system: System, **options: Any) -> Timeline:
    """Return the Timeline of ``plan``; ``options`` are those of :func:`ipusim.machine.simulate.simulate`."""
    plan = complete(plan, program, system.replicas)
    costs = price_plan(plan, program, system)
    if isinstance(executor := options.get("executor"), NumpyExecutor):
        options["executor"] = replicas_of([executor], plan, program, system, costs)
    return simulate(plan, program, system, costs=costs, **options)


def context_of(plan: Plan, program: PipelineProgram, system: System, costs: Costs, executions: int) -> Context:
    """Return the context of a run without arithmetic, for a machine that a test looks into."""
    costs, routes = rerouted(plan, program, system, costs)
    together = Replicas((NullExecutor(),) * system.replicas)
    clock, recorder = Clock(speeds_of(system)), Recorder(plan.emitted + 1)
    return Context(clock, recorder, plan, program, system, costs, together, executions, lambda steps: None, routes)
