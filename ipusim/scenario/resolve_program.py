"""From stages, feed and counts to a PipelineProgram, and to the Workload that it computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ipusim.model.adaptive_optimizers import LAMB, Adam
from ipusim.model.feed import Feed
from ipusim.model.gradient_map import GradientMap
from ipusim.model.optimizers import SGD, Momentum, Optimizer
from ipusim.model.profile import StageProfile
from ipusim.model.stage import LayerStage
from ipusim.model.workload import Workload
from ipusim.pipeline.program import Infeed, Outfeed, PipelineProgram, PlanShape
from ipusim.scenario.fields import Node
from ipusim.scenario.findings import Findings
from ipusim.scenario.optimizer_spec import AdamSpec, LambSpec, MomentumSpec, SgdSpec
from ipusim.scenario.schema import Scenario
from ipusim.scenario.stages import PlannedStage


def timed_profiles(
    planned: tuple[PlannedStage, ...], training: bool, infeed_bytes: int | None = None
) -> tuple[StageProfile, ...]:
    """Return what stages known by their cost alone ask of an IPU; ``infeed_bytes`` come to the first of them."""
    profiles: list[StageProfile] = []
    before = infeed_bytes or 0
    for spec in (stage.timed for stage in planned):
        if spec is None:
            continue
        accumulators = spec.parameter_bytes if spec.accumulator_bytes is None else spec.accumulator_bytes
        profiles.append(
            StageProfile(
                name=spec.name,
                forward=spec.forward,
                backward=spec.backward if training else 0,
                update=spec.update if training else 0,
                output_bytes=spec.output_bytes,
                gradient_bytes=spec.gradient_bytes if training else 0,
                parameter_bytes=spec.parameter_bytes,
                state_bytes=spec.state_bytes if training else 0,
                accumulator_bytes=accumulators if training else 0,
                input_bytes=before if spec.input_bytes is None else spec.input_bytes,
                stash_bytes=spec.stash_bytes if training else 0,
            )
        )
        before = spec.output_bytes
    return tuple(profiles)


def counted_profiles(
    scenario: Scenario, stages: tuple[LayerStage, ...], feed: Feed, training: bool, findings: Findings
) -> tuple[StageProfile, ...]:
    """Return what the stages' layers ask of an IPU; where cycles are given, those instead of the work counted."""
    batch, itemsize = scenario.pipeline.micro_batch_size, np.dtype(scenario.precision).itemsize
    optimizer = _optimizer(scenario) if training else None
    profiles = []
    for stage in stages:
        with findings.at(("model",)):
            held = np.dtype(scenario.pipeline.gradient_accumulation_dtype or scenario.precision).itemsize
            profiles.append(stage.profile(batch, itemsize, feed.label_bytes, training, optimizer, held))
    if scenario.pipeline.cycles is None:
        return tuple(profiles)
    return tuple(
        replace(
            profile,
            forward=cycles.forward,
            backward=cycles.backward if training else 0,
            update=cycles.update if training else 0,
        )
        for profile, cycles in zip(profiles, scenario.pipeline.cycles, strict=False)
    )


def build_program(
    scenario: Scenario,
    name: str,
    profiles: tuple[StageProfile, ...],
    shape: PlanShape,
    stages: tuple[LayerStage, ...],
    feed: Feed | None,
) -> PipelineProgram:
    """Return the program; its feeds carry the bytes of the data and of the last stage, unless others are given.

    With synthetic data they carry none.
    """
    pipeline, infeed, outfeed = scenario.pipeline, scenario.infeed, scenario.outfeed
    in_bytes, out_bytes = infeed.element_bytes, outfeed.element_bytes
    if in_bytes is None:
        in_bytes = feed.element_bytes if feed else 0
    if out_bytes is None:
        itemsize = np.dtype(scenario.precision).itemsize
        out_bytes = stages[-1].result_bytes(pipeline.micro_batch_size, itemsize) if stages else 0
    if scenario.use_synthetic_data:
        in_bytes = out_bytes = 0
    return PipelineProgram(
        stages=profiles,
        shape=shape,
        schedule=pipeline.schedule,
        repeat_count=pipeline.repeat_count,
        reduction=pipeline.reduction_method,
        infeed=Infeed(in_bytes, infeed.prefetch_depth),
        outfeed=Outfeed(out_bytes, outfeed.mode, outfeed.buffer_depth),
        micro_batch_size=pipeline.micro_batch_size,
        sync_replicas_independently=scenario.system.sync_replicas_independently,
        name=name,
    )


def _optimizer(scenario: Scenario) -> Optimizer | None:
    spec = scenario.optimizer
    if spec is None:
        return None
    gradient_map = None if spec.map_gradient is None else GradientMap(**dict(spec.map_gradient))
    keys = type(spec).model_fields.keys() - {"type", "map_gradient"}
    made_by: dict[type[Node], type[Any]] = {SgdSpec: SGD, MomentumSpec: Momentum, AdamSpec: Adam, LambSpec: LAMB}
    optimizer: Optimizer = made_by[type(spec)](**{key: getattr(spec, key) for key in keys}, gradient_map=gradient_map)
    return optimizer


def build_workload(scenario: Scenario, stages: tuple[LayerStage, ...], feed: Feed, training: bool) -> Workload:
    """Return the arithmetic of a program that computes."""
    return Workload(
        stages=stages,
        feed=feed,
        optimizer=_optimizer(scenario) if training else None,
        reduction=scenario.pipeline.reduction_method,
        dtype=np.dtype(scenario.precision),
        seed=scenario.seed,
        accumulation_dtype=scenario.pipeline.gradient_accumulation_dtype,
    )
