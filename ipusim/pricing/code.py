"""The memory that a program's code takes on each IPU, estimated from its compute sets.

On each tile there are the code that every program has, with the workers' stacks, and for each compute set the code
that starts it, that of the exchange before it and the state of its vertices:

    bytes = tiles * (program_code + compute_sets * compute_set_code)

Compute sets that are alike count once: Poplar shares the code of products of one shape (auto_pipeline_readme.md of
Graphcore's ipu_tensorflow_addons), and outlining, the default, has equal layers call one function, the state of its
vertices with it. That every compute set takes as much is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from ipusim.base.cache import shared
from ipusim.hardware.generations import IpuSpec
from ipusim.hardware.rates import Rates
from ipusim.hardware.system import System
from ipusim.model.profile import PassCost, StageProfile
from ipusim.model.work import MeasuredWork, Work
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.passes import leaves, pass_costs
from ipusim.pricing.planner.rates import PlannerRates
from ipusim.pricing.products import plans


def estimated_code(plan: Plan, program: PipelineProgram, system: System) -> Mapping[int, int]:
    """Return the bytes of code of each IPU that holds a stage; empty where passes are known by their cycles alone.

    However many micro-batches there are, the code is the same, so that it is estimated once in a shared cache.
    """
    stages = plan.shape.stages
    passes = [divmod(key, stages) for key in np.flatnonzero(np.bincount(plan.kind * stages + plan.stage)).tolist()]
    smallest = replace(program, shape=plan.shape.fewest_micro_batches)
    return shared()(_code_by_ipu, tuple(passes), smallest, system)


def _code_by_ipu(passes: tuple[tuple[int, int], ...], program: PipelineProgram, system: System) -> Mapping[int, int]:
    """Return the bytes of code of each IPU for passes by kind and stage."""
    works: dict[int, set[Work]] = {ipu: set() for ipu in sorted(set(program.shape.mapping))}
    for kind, stage in passes:
        for ipu in program.shape.ipus_of(stage):
            works[ipu].update(_works(pass_costs(program, kind, stage)))
    if program.shape.training:
        for stage, ipu in program.shape.homes:
            works[ipu].update(_works((program.stages[stage].update,)))
    if any(isinstance(work, MeasuredWork) for of_ipu in works.values() for work in of_ipu):
        return {}
    spec, rates = system.ipu, system.rates
    return {ipu: code_bytes(compute_sets(of_ipu, spec, rates), spec, rates) for ipu, of_ipu in works.items()}


def least_code(profiles: Iterable[StageProfile], system: System) -> int:
    """Return a lower bound of each IPU's code in bytes for any placement of these stages; 0 where unknown."""
    costs = (
        cost for profile in profiles for cost in (profile.forward, profile.backward, *profile.halves, profile.update)
    )
    known = not any(isinstance(work, MeasuredWork) for work in _works(costs))
    return code_bytes(0, system.ipu, system.rates) if known else 0


def code_bytes(sets: int, ipu: IpuSpec, rates: Rates) -> int:
    """Return the bytes of a program's code on all tiles of an IPU with so many compute sets that differ."""
    return ipu.tiles * math.ceil(rates.program_code + sets * rates.compute_set_code)


def compute_sets(works: set[Work], ipu: IpuSpec, rates: Rates) -> int:
    """Return the number of compute sets in ``works``, equal products counted once."""
    planning = PlannerRates.of(rates)
    products = {planned.plan for work in works for planned in plans(work, ipu, planning)}
    return sum(plan.compute_sets for plan in products) + sum(work.compute_sets for work in works)


def with_temporary(stages: tuple[StageProfile, ...], system: System) -> tuple[StageProfile, ...]:
    """Return ``stages`` with the bytes that the products of each hold for a while on the IPUs of ``system``."""
    return tuple(replace(stage, temporary_bytes=_most_temporary(stage, system)) for stage in stages)


def _most_temporary(stage: StageProfile, system: System) -> int:
    """Return the most that a product of any pass holds, on all tiles as on the busiest."""
    rates = PlannerRates.of(system.rates)
    passes = (stage.forward, stage.backward, *stage.halves, stage.update)
    works = {leaf for cost in passes for leaf in leaves(cost)}
    temporary = (planned.plan.temporary_bytes for work in works for planned in plans(work, system.ipu, rates))
    return system.ipu.tiles * max(temporary, default=0)


def _works(costs: Iterable[PassCost]) -> Iterator[Work]:
    """Yield the works of passes that are not empty."""
    return (work for cost in costs for work in leaves(cost) if not work.is_nothing)
