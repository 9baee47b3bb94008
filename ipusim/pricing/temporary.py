"""Temporary memory: what the products of a stage hold for themselves while they run, by their plans."""

from __future__ import annotations

from dataclasses import replace

from ipusim.hardware.system import System
from ipusim.model.profile import StageProfile
from ipusim.pricing.passes import leaves
from ipusim.pricing.planner.rates import PlannerRates
from ipusim.pricing.products import plans


def with_temporary(stages: tuple[StageProfile, ...], system: System) -> tuple[StageProfile, ...]:
    """Return ``stages`` with the bytes that the products of each hold for a while on the IPUs of ``system``."""
    return tuple(replace(stage, temporary_bytes=_most(stage, system)) for stage in stages)


def _most(stage: StageProfile, system: System) -> int:
    """Return the most that a product of any pass holds, on all tiles as on the busiest."""
    rates = PlannerRates.of(system.rates)
    passes = (stage.forward, stage.backward, *stage.halves, stage.update)
    works = {leaf for cost in passes for leaf in leaves(cost)}
    held = (planned.plan.temporary_bytes for work in works for planned in plans(work, system.ipu, rates))
    return system.ipu.tiles * max(held, default=0)
