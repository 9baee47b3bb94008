"""Resolve which activations a request moves off their IPUs, and the period of the moves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from ipusim.base.cache import shared
from ipusim.base.near_names import did_you_mean, expected_last
from ipusim.hardware.system import System
from ipusim.pipeline.moves import period_of
from ipusim.pipeline.offload import MovedActivations, check_moved
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.findings import Findings
from ipusim.runs.problems import KeyPath, one_of
from ipusim.runs.request.moved_activations_spec import MovedActivationsSpec
from ipusim.runs.request.pipeline_spec import PipelineSpec
from ipusim.schedules.schedule import Schedule

_PATH: Final[KeyPath] = ("pipeline", "offload_activations")


def resolve_moved(
    pipeline: PipelineSpec, system: System, names: Sequence[str], findings: Findings
) -> MovedActivations | None:
    """Return the moved activations; None if the request moves none, or if a problem was recorded.

    Args:
        pipeline: pipeline options.
        system: device.
        names: names of the stages.
        findings: recorder of problems.
    """
    spec = pipeline.offload_activations
    if not isinstance(spec, MovedActivationsSpec):
        return None
    unknown_names = [(number, name) for number, name in enumerate(spec.stages or ()) if name not in names]
    for number, name in unknown_names:
        hint = did_you_mean(name, names, quoted=True)
        findings.add((*_PATH, "stages", number), expected_last(f"no stage is called {name!r}", hint, one_of(names)))
    has_destination = spec.to == "partner" or system.free or system.streaming is not None
    findings.attempt(_PATH, check_moved, has_destination, serialized=pipeline.batch_serialization_iterations > 1)
    if unknown_names:
        return None
    stages = None if spec.stages is None else tuple(sorted({names.index(name) for name in spec.stages}))
    return MovedActivations(spec.to, stages, spec.keep, spec.buffers)


def with_period_of_moves(pipeline: PipelineSpec, schedule: Schedule) -> Schedule:
    """Return a schedule whose period is also a period of its activations' moves."""
    spec = pipeline.offload_activations
    if schedule.period is None or not isinstance(spec, MovedActivationsSpec):
        return schedule
    return shared()(_with_moves, schedule, MovedActivations(spec.to, None, spec.keep, spec.buffers))


def _with_moves(schedule: Schedule, moves: MovedActivations) -> Schedule:
    period_of_passes = schedule.period
    assert period_of_passes is not None

    @cache
    def period_of_moves(shape: PlanShape) -> int:
        return period_of(schedule.lay_out(shape).passes, shape, moves)

    def period(shape: PlanShape) -> int:
        """Return the period of passes and moves, measured on a long enough run."""
        pass_period = period_of_passes(shape)
        count = schedule.legal_count(schedule.ramps(shape) + pass_period, shape)
        return math.lcm(pass_period, period_of_moves(replace(shape, micro_batches=count)))

    return replace(schedule, period=period)
