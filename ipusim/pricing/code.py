"""Estimate the code memory of a program per IPU from compute sets, the operations that tiles launch together.

Every tile holds the code common to all programs, with the workers' stacks. A compute set adds launch code, code of the
preceding exchange, and vertex state:

    bytes = tiles * (program_code + compute_sets * compute_set_code)

Equal compute sets count once. Poplar shares the code of products of one shape (auto_pipeline_readme.md of
Graphcore's ipu_tensorflow_addons). Outlining, the default, makes equal layers call a single function, sharing vertex
state as well. Compute sets have equal code size (assumed).

:func:`with_temporary` adds temporary memory, which follows from the same plans of products.
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
from ipusim.pricing.planner.plan import ProductPlan
from ipusim.pricing.planner.rates import PlannerRates
from ipusim.pricing.products import plans


def estimated_code(plan: Plan, program: PipelineProgram, system: System) -> Mapping[int, int]:
    """Return the bytes of code of each IPU that holds a stage.

    Code does not depend on the number of micro-batches, and is estimated once in a shared cache.

    Returns:
        Bytes by IPU. Empty if a pass is given in cycles instead of work.
    """
    stages = plan.shape.stages
    passes = [divmod(key, stages) for key in np.flatnonzero(np.bincount(plan.kind * stages + plan.stage)).tolist()]
    smallest = replace(program, shape=plan.shape.fewest_micro_batches)
    return shared()(_code_by_ipu, tuple(passes), smallest, system)


def _code_by_ipu(passes: tuple[tuple[int, int], ...], program: PipelineProgram, system: System) -> Mapping[int, int]:
    """Return the bytes of code per IPU for passes by kind and stage."""
    works: dict[int, set[Work]] = {ipu: set() for ipu in sorted(set(program.shape.mapping))}
    for kind, stage in passes:
        for ipu in program.shape.ipus_of(stage):
            works[ipu].update(_works(pass_costs(program, kind, stage)))
    if program.shape.training:
        for stage, ipu in program.shape.homes:
            works[ipu].update(_works((program.stages[stage].update,)))
    if any(isinstance(work, MeasuredWork) for ipu_works in works.values() for work in ipu_works):
        return {}
    spec, rates = system.ipu, system.rates
    return {ipu: code_bytes(compute_sets(ipu_works, spec, rates), spec, rates) for ipu, ipu_works in works.items()}


def least_code(profiles: Iterable[StageProfile], ipu: IpuSpec, rates: Rates) -> int:
    """Return a lower bound of an IPU's code bytes under any placement; 0 if unknown."""
    costs = (
        cost for profile in profiles for cost in (profile.forward, profile.backward, *profile.halves, profile.update)
    )
    is_known = not any(isinstance(work, MeasuredWork) for work in _works(costs))
    return code_bytes(0, ipu, rates) if is_known else 0


def code_users(
    profiles: Iterable[StageProfile], ipu: IpuSpec, rates: Rates, *, halves: bool
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return the number of compute sets, and the numbers of the stages, of each distinct work or product.

    ``halves`` tells whether backward passes run in halves. The result is empty if a stage is measured, because its
    code is unknown.
    """
    users: dict[Work | ProductPlan, list[int]] = {}
    for stage, profile in enumerate(profiles):
        works = [*_works((profile.forward, *(profile.halves if halves else (profile.backward,)), profile.update))]
        if any(isinstance(work, MeasuredWork) for work in works):
            return ()
        for part in _with_code(works, ipu, rates):
            users.setdefault(part, []).append(stage)
    return tuple((part.compute_sets, tuple(stages)) for part, stages in users.items() if part.compute_sets)


def code_bytes(sets: int, ipu: IpuSpec, rates: Rates) -> int:
    """Return an IPU's total bytes of code for ``sets`` distinct compute sets."""
    return ipu.tiles * math.ceil(rates.program_code + sets * rates.compute_set_code)


def compute_sets(works: set[Work], ipu: IpuSpec, rates: Rates) -> int:
    """Return the number of compute sets in ``works``, counting equal products once."""
    return sum(part.compute_sets for part in _with_code(works, ipu, rates))


def _with_code(works: Iterable[Work], ipu: IpuSpec, rates: Rates) -> dict[Work | ProductPlan, None]:
    """Return the distinct works and products with code of their own, in order."""
    planning = PlannerRates.from_rates(rates)
    result: dict[Work | ProductPlan, None] = {}
    for work in works:
        result[work] = None
        result |= dict.fromkeys(plan_run.plan for plan_run in plans(work, ipu, planning))
    return result


def with_temporary(stages: tuple[StageProfile, ...], system: System) -> tuple[StageProfile, ...]:
    """Return ``stages`` with temporary bytes of products on ``system``'s IPUs."""
    return tuple(replace(stage, temporary_bytes=_most_temporary(stage, system)) for stage in stages)


def _most_temporary(stage: StageProfile, system: System) -> int:
    """Return the largest temporary memory of a product: the busiest tile's bytes times the number of tiles."""
    rates = PlannerRates.from_rates(system.rates)
    passes = (stage.forward, stage.backward, *stage.halves, stage.update)
    works = {leaf for cost in passes for leaf in leaves(cost)}
    temporary = (plan_run.plan.temporary_bytes for work in works for plan_run in plans(work, system.ipu, rates))
    return system.ipu.tiles * max(temporary, default=0)


def _works(costs: Iterable[PassCost]) -> Iterator[Work]:
    """Yield the non-empty works of passes."""
    return (work for cost in costs for work in leaves(cost) if not work.is_nothing)
