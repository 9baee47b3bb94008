"""From stages, feed and counts to a PipelineProgram, and to the Workload that it computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ipusim.base.cache import shared
from ipusim.model.data.feed import Feed
from ipusim.model.learning.optimizers import Optimizer
from ipusim.model.learning.variable_work import Reduction
from ipusim.model.profile import StageProfile
from ipusim.model.stages.layer_profile import layer_profile
from ipusim.model.stages.stage import LayerStage
from ipusim.model.work import NO_TABLES, VectorWork, Work
from ipusim.model.workload import Workload
from ipusim.pipeline.feeds import Infeed, Outfeed
from ipusim.pipeline.program import PipelineProgram, PlanShape
from ipusim.runs.assemble.accumulation import AccumulatorTypes, accumulator_types
from ipusim.runs.assemble.stages import RequestedStage
from ipusim.runs.content import Content
from ipusim.runs.findings import Findings
from ipusim.runs.request.derived import RowSpec
from ipusim.runs.request.model_spec import TimedStageSpec
from ipusim.runs.request.schema import Options


def timed_content(
    options: Options, requested: tuple[RequestedStage, ...], training: bool, segments: int = 1
) -> Content:
    """Return what stages known by their cost alone cost, of one of ``segments`` equal ones of a micro-batch."""
    profiles = timed_profiles(requested, training, options.infeed.element_bytes)
    size, outfeed = options.pipeline.micro_batch_size, sent_outfeed(options, ())
    if segments > 1:
        profiles = tuple(profile.of_segment(segments) for profile in profiles)
        outfeed = replace(outfeed, element_bytes=-(-outfeed.element_bytes // segments))
    return Content(profiles, -(-infeed_bytes(options, None) // segments), outfeed, size)


def timed_profiles(
    requested: tuple[RequestedStage, ...], training: bool, infeed_bytes: int | None = None
) -> tuple[StageProfile, ...]:
    """Return the profiles of stages known by their cost; ``infeed_bytes`` arrive at the first one."""
    profiles: list[StageProfile] = []
    before = infeed_bytes or 0
    for stage in requested:
        profiles += [_timed_profile(spec, training, before) for spec in stage.costs]
        before = sum(spec.output_bytes for spec in stage.costs)
    return tuple(profiles)


def _timed_profile(spec: TimedStageSpec, training: bool, before: int) -> StageProfile:
    """Return the profile of one stage; ``before`` are the bytes that come to it."""
    accumulators = spec.parameter_bytes if spec.accumulator_bytes is None else spec.accumulator_bytes
    return StageProfile(
        name=spec.name,
        forward=spec.forward,
        backward=spec.whole_backward if training else 0,
        update=spec.update if training else 0,
        output_bytes=spec.output_bytes,
        label_bytes=spec.label_bytes,
        gradient_bytes=spec.gradient_bytes if training else 0,
        parameter_bytes=spec.parameter_bytes,
        state_bytes=spec.state_bytes if training else 0,
        accumulator_bytes=accumulators if training else 0,
        input_bytes=before if spec.input_bytes is None else spec.input_bytes,
        stash_bytes=spec.stash_bytes if training else 0,
        backward_input=spec.backward_input if training else None,
        backward_weights=spec.backward_weights if training else None,
        rest_bytes=spec.rest_bytes if training else None,
    )


def counted_profiles(
    options: Options, stages: tuple[LayerStage, ...], feed: Feed, training: bool, findings: Findings
) -> tuple[StageProfile, ...]:
    """Return what the stages' layers ask of an IPU; where cycles are given, those instead of the work counted.

    A stage that several cuts of a model have in common is counted once, and taken from the shared cache.
    """
    batch, itemsize = options.pipeline.micro_batch_size, np.dtype(options.precision).itemsize
    optimizer = _optimizer(options) if training else None
    types, profiles = accumulator_types(options), []
    for stage in stages:
        with findings.at(("model",)):
            profiles.append(
                shared()(
                    _counted_profile,
                    stage,
                    batch,
                    itemsize,
                    feed.label_bytes,
                    training,
                    optimizer,
                    types,
                    options.pipeline.reduction_method,
                )
            )
    if len(profiles) == len(stages):
        sent, elements = _outfeed(options, stages), stages[-1].result_elements(batch)
        profiles[-1] = _adding_up(profiles[-1], sent, sum(elements[position] for position in sent.sent), itemsize)
    stated = options.pipeline.cycles
    if not isinstance(stated, tuple):
        return tuple(profiles)
    return tuple(
        replace(
            profile,
            forward=cycles.forward,
            backward=cycles.whole_backward if training else 0,
            backward_input=cycles.backward_input if training else None,
            backward_weights=cycles.backward_weights if training else None,
            update=cycles.update if training else 0,
        )
        for profile, cycles in zip(profiles, stated, strict=False)
    )


def _counted_profile(
    stage: LayerStage,
    batch: int,
    itemsize: int,
    label_bytes: int,
    training: bool,
    optimizer: Optimizer | None,
    types: AccumulatorTypes,
    reduction: Reduction,
) -> StageProfile:
    """Return :func:`layer_profile` of arguments that are compared as values."""
    widths = lambda name: types(name).itemsize  # noqa: E731
    return layer_profile(stage, batch, itemsize, label_bytes, training, optimizer, widths, reduction)


def build_program(options: Options, name: str, schedule: str, content: Content, shape: PlanShape) -> PipelineProgram:
    """Return the program; with synthetic data its feeds carry no bytes, and nothing else goes to the host or comes."""
    pipeline, outfeed, in_bytes = options.pipeline, content.outfeed, content.infeed_bytes
    stages = content.profiles
    if options.use_synthetic_data:
        outfeed, in_bytes = replace(outfeed, element_bytes=0), 0
        stages = tuple(
            replace(stage, tables=NO_TABLES, forward_host_calls=(), backward_host_calls=()) for stage in stages
        )
    return PipelineProgram(
        stages=stages,
        shape=shape,
        schedule=schedule,
        repeat_count=pipeline.repeat_count,
        reduction=pipeline.reduction_method,
        infeed=Infeed(in_bytes, options.infeed.prefetch_depth),
        outfeed=outfeed,
        micro_batch_size=content.micro_batch_size,
        sync_replicas_independently=options.system.sync_replicas_independently,
        overlap_copies=pipeline.overlap_copies,
        overlapped=pipeline.overlapped,
        sums_gradients=content.sums_gradients,
        sum_buffer_bytes=options.system.maximum_cross_replica_sum_buffer_size,
        sums_over_hosts=content.sums_over_hosts,
        name=name,
    )


def infeed_bytes(options: Options, feed: Feed | None) -> int:
    """Return the bytes of an element of the infeed: as given, else those of the data; 0 without data."""
    stated = options.infeed.element_bytes
    return stated if stated is not None else feed.element_bytes if feed else 0


def sent_outfeed(options: Options, stages: tuple[LayerStage, ...], *, as_stated: bool = True) -> Outfeed:
    """Return the outfeed: its results, mode and bytes, those stated, else those of the last of ``stages``.

    Without stages they are 0. With ``as_stated`` off, what the options state does not count.
    """
    sent = _outfeed(options, stages)
    if as_stated and options.outfeed.element_bytes is not None:
        return replace(sent, element_bytes=options.outfeed.element_bytes)
    elements = stages[-1].result_elements(options.pipeline.micro_batch_size) if stages else (0,)
    itemsize = np.dtype(sent.accumulate_dtype or options.precision).itemsize
    return replace(sent, element_bytes=sum(elements[position] for position in sent.sent) * itemsize)


def _outfeed(options: Options, stages: tuple[LayerStage, ...]) -> Outfeed:
    """Return the outfeed's results and mode; their bytes are not known here."""
    pipeline, spec = options.pipeline, options.outfeed
    if pipeline.outfeed_mask is not None:
        names: tuple[str, ...] = ("predictions", "loss")
    else:
        names = ("outputs",) if stages and stages[-1].loss is None else ("loss",)
    return Outfeed(
        0,
        spec.mode,
        spec.buffer_depth,
        accumulate=pipeline.accumulate_outfeed,
        names=names,
        mask=pipeline.outfeed_mask or (),
        accumulate_dtype=pipeline.accumulate_outfeed_dtype or "",
    )


def _adding_up(profile: StageProfile, sent: Outfeed, elements: int, itemsize: int) -> StageProfile:
    """Return the last stage's profile with the sum of its results: read the sum and them, and write the sum."""
    if not sent.accumulate or isinstance(profile.forward, int):
        return profile
    size = np.dtype(sent.accumulate_dtype).itemsize if sent.accumulate_dtype else itemsize
    work = Work(vector=VectorWork(elements), sram_bytes=elements * (itemsize + 2 * size), itemsize=max(itemsize, size))
    return replace(profile, forward=(*profile.forward, work))


def _optimizer(options: Options) -> Optimizer | None:
    spec = options.optimizer
    if spec is None:
        return None
    optimizer: Optimizer = _made(spec)
    return optimizer


def _made(spec: RowSpec) -> Any:
    """Return the object that a row makes of its keys' values, nested rows first."""
    values = {key.argument: getattr(spec, key.argument) for key in spec.row.keys}
    return spec.row.makes(
        **{name: _made(value) if isinstance(value, RowSpec) else value for name, value in values.items()}
    )


def build_workload(options: Options, stages: tuple[LayerStage, ...], feed: Feed, training: bool) -> Workload:
    """Return the arithmetic of a program that computes."""
    return Workload(
        stages=stages,
        feed=feed,
        optimizer=_optimizer(options) if training else None,
        reduction=options.pipeline.reduction_method,
        dtype=np.dtype(options.precision),
        seed=options.seed,
        accumulation_dtype=accumulator_types(options),
    )
