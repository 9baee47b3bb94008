"""The interface of the simulator to the application and to Graphcore's API.

The steps of a run, and their values::

    job = assemble(Request.from_dict({...}))
    run = execute(job)
    run.timeline, run.summary

The simulator's rooms are available as namespaces: every room lists its public names in ``__all__``. Imports are
deferred until first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipusim.base.lazy import lazy

if TYPE_CHECKING:
    from ipusim import analysis, hardware, machine, pricing, runs, schedules
    from ipusim import model as models
    from ipusim import pipeline as pipelines
    from ipusim import timeline as timelines
    from ipusim.analysis.summary import Summary
    from ipusim.hardware.machines import Machine
    from ipusim.hardware.rates import Rates
    from ipusim.hardware.system import System
    from ipusim.machine.simulate import Progress
    from ipusim.model import data as datasets
    from ipusim.model import functions, layers, learning
    from ipusim.model.layers.layer import Array, LayerCost, Shape
    from ipusim.model.work import VectorWork, Work
    from ipusim.model.workload import Workload
    from ipusim.pipeline import rules
    from ipusim.pipeline.plan import Plan, Sync
    from ipusim.pipeline.program import PipelineProgram
    from ipusim.pricing.costs import Costs
    from ipusim.runs.assemble.assemble import assemble
    from ipusim.runs.assemble.memory import RequestMemoryError
    from ipusim.runs.execute import execute
    from ipusim.runs.job import Job
    from ipusim.runs.problems import KeyPath, Problem, RequestError
    from ipusim.runs.request.request import Request
    from ipusim.runs.run import Run
    from ipusim.runs.session import Session
    from ipusim.schedules.schedule import Schedule
    from ipusim.timeline.kinds import SpanKind
    from ipusim.timeline.timeline import Span, Timeline
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "Array",
    "Costs",
    "Job",
    "KeyPath",
    "LayerCost",
    "Machine",
    "PipelineProgram",
    "Plan",
    "Problem",
    "Progress",
    "Rates",
    "Request",
    "RequestError",
    "RequestMemoryError",
    "Run",
    "Schedule",
    "Session",
    "Shape",
    "Span",
    "SpanKind",
    "Summary",
    "Sync",
    "System",
    "Timeline",
    "VectorWork",
    "Work",
    "Workload",
    "analysis",
    "assemble",
    "datasets",
    "execute",
    "functions",
    "hardware",
    "layers",
    "learning",
    "machine",
    "models",
    "pipelines",
    "pricing",
    "rules",
    "runs",
    "schedules",
    "timelines",
]
