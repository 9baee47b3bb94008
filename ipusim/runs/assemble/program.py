"""Build a PipelineProgram and Workload from stages, feed and counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ipusim.base.cache import shared
from ipusim.base.near_names import did_you_mean
from ipusim.hardware.system import ON_POPART
from ipusim.model.data.feed import Feed
from ipusim.model.learning.adaptive_optimizers import Moments
from ipusim.model.learning.optimizers import Optimizer
from ipusim.model.profile import StageProfile
from ipusim.model.stages.layer_profile import layer_profile
from ipusim.model.stages.stage import LayerStage
from ipusim.model.work import NO_TABLES, VectorWork, Work
from ipusim.model.workload import Workload
from ipusim.pipeline.feeds import Infeed, Outfeed
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.stages import RequestedStage
from ipusim.runs.content import Content
from ipusim.runs.findings import Findings
from ipusim.runs.request.model_spec import StageCyclesSpec, TimedStageSpec
from ipusim.runs.request.schema import Options
from ipusim.runs.request.system_spec import SystemSpec


@dataclass(frozen=True)
class AccumulatorTypes:
    """Type of each parameter's gradient accumulator.

    Attributes:
        otherwise: type for parameters that ``by_name`` does not name.
        by_name: types by name of a parameter (``layer/W``), or of a layer for all its parameters.
    """

    otherwise: np.dtype[Any]
    by_name: tuple[tuple[str, np.dtype[Any]], ...] = ()

    def __call__(self, name: str) -> np.dtype[Any]:
        """Return the type for a parameter, ``layer/W``; the parameter's entry takes precedence over its layer's."""
        entries = [entry for entry in self.by_name if name == entry[0] or name.startswith(f"{entry[0]}/")]
        return max(entries, key=lambda entry: len(entry[0]))[1] if entries else self.otherwise


def _accumulator_types(options: Options) -> AccumulatorTypes:
    """Return the accumulator types requested by ``options``."""
    choice = options.pipeline.gradient_accumulation_dtype
    if not isinstance(choice, dict):
        return AccumulatorTypes(np.dtype(choice or options.precision))
    by_name = tuple((name, np.dtype(dtype)) for name, dtype in choice.items())
    return AccumulatorTypes(np.dtype(options.precision), by_name)


def check_accumulators(options: Options, stages: tuple[LayerStage, ...], findings: Findings) -> None:
    """Record names that match neither a parameter nor a layer with parameters."""
    choice = options.pipeline.gradient_accumulation_dtype
    if not isinstance(choice, dict):
        return
    names = [name for stage in stages for name in stage.parameter_names]
    for key in choice:
        if not any(name == key or name.startswith(f"{key}/") for name in names):
            path = ("pipeline", "gradient_accumulation_dtype", key)
            hint = did_you_mean(key, [*names, *(name.split("/")[0] for name in names)])
            findings.add(path, f"expected a layer with parameters, or one of its parameters, got {key!r}{hint}")


def timed_content(options: Options, requests: tuple[RequestedStage, ...], training: bool, segments: int = 1) -> Content:
    """Return the costs of a micro-batch segment in stages known only by cost."""
    profiles = timed_profiles(requests, training, options.infeed.element_bytes)
    size, outfeed = options.pipeline.micro_batch_size, sent_outfeed(options, ())
    if segments > 1:
        profiles = tuple(profile.of_segment(segments) for profile in profiles)
        if not outfeed.accumulate:  # an accumulated sum covers whole micro-batches
            outfeed = replace(outfeed, element_bytes=-(-outfeed.element_bytes // segments))
    return Content(profiles, -(-infeed_bytes(options, None) // segments), outfeed, size)


def timed_profiles(
    requests: tuple[RequestedStage, ...], training: bool, infeed_bytes: int | None = None
) -> tuple[StageProfile, ...]:
    """Return the profiles of stages known by their cost; ``infeed_bytes`` arrive at the first stage."""
    profiles: list[StageProfile] = []
    input_bytes = infeed_bytes or 0
    for stage in requests:
        profiles += [_timed_profile(spec, training, input_bytes) for spec in stage.costs]
        input_bytes = sum(spec.output_bytes for spec in stage.costs)
    return tuple(profiles)


def _cycles_of(spec: StageCyclesSpec, training: bool) -> dict[str, Any]:
    """Return a stage's stated costs of passes and weight update, as profile attributes."""
    passes = {"forward": spec.forward, "backward": 0, "update": 0, "backward_input": None, "backward_weights": None}
    if training:
        halves = {"backward_input": spec.backward_input, "backward_weights": spec.backward_weights}
        passes |= {"backward": spec.whole_backward, "update": spec.update, **halves}
    return passes


def _timed_profile(spec: TimedStageSpec, training: bool, input_bytes: int) -> StageProfile:
    """Return the profile of one stage; ``input_bytes`` is the number of bytes that arrive at the stage."""
    accumulators = spec.parameter_bytes if spec.accumulator_bytes is None else spec.accumulator_bytes
    return StageProfile(
        name=spec.name,
        **_cycles_of(spec, training),
        output_bytes=spec.output_bytes,
        label_bytes=spec.label_bytes,
        gradient_bytes=spec.gradient_bytes if training else 0,
        parameter_bytes=spec.parameter_bytes,
        state_bytes=spec.state_bytes if training else 0,
        accumulator_bytes=accumulators if training else 0,
        input_bytes=input_bytes if spec.input_bytes is None else spec.input_bytes,
        stash_bytes=spec.stash_bytes if training else 0,
        rest_bytes=spec.rest_bytes if training else None,
    )


def counted_profiles(
    options: Options, stages: tuple[LayerStage, ...], feed: Feed, training: bool, findings: Findings
) -> tuple[StageProfile, ...]:
    """Return the profiles of stages of layers; stated cycles replace counted work.

    A stage shared by several cuts of a model is counted once and taken from the shared cache.
    """
    batch, itemsize = options.pipeline.micro_batch_size, np.dtype(options.precision).itemsize
    optimizer = _optimizer(options) if training else None
    accumulator_itemsize, reduction = (
        _AccumulatorItemsize(_accumulator_types(options)),
        options.pipeline.reduction_method,
    )
    arguments = batch, itemsize, feed.label_bytes, training, optimizer, accumulator_itemsize, reduction
    profiles = []
    for stage in stages:
        with findings.collect(("model",)):
            profiles.append(shared()(layer_profile, stage, *arguments))
    if len(profiles) == len(stages):
        outfeed, elements = _outfeed(options, stages), stages[-1].result_elements(batch)
        profiles[-1] = _with_summed_results(
            profiles[-1], outfeed, sum(elements[position] for position in outfeed.sent_indices), itemsize
        )
    given_cycles = options.pipeline.cycles
    if not isinstance(given_cycles, tuple):
        return tuple(profiles)
    pairs = zip(profiles, given_cycles, strict=False)
    return tuple(replace(profile, **_cycles_of(cycles, training)) for profile, cycles in pairs)


@dataclass(frozen=True)
class _AccumulatorItemsize:
    """Bytes of an element of each parameter's accumulator; compared by value, as caches compare arguments."""

    types: AccumulatorTypes

    def __call__(self, name: str) -> int:
        """Return the bytes for a parameter."""
        return self.types(name).itemsize


def build_program(options: Options, name: str, schedule: str, content: Content, shape: PlanShape) -> PipelineProgram:
    """Return the program; with synthetic data, feeds carry no bytes and the host gets no other transfers."""
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
        sum_buffer_bytes=_sum_buffer_bytes(options.system),
        sums_over_hosts=content.sums_over_hosts,
        has_synthetic_data=options.use_synthetic_data,
        learns_for_free=options.use_synthetic_data and any(stage.tables.gradients for stage in content.profiles),
        name=name,
    )


def _sum_buffer_bytes(system: SystemSpec) -> int | None:
    """Return the minimum bytes of gradients that replicas sum together; None for a single joint sum.

    By default PopART sums the gradients of every variable separately (0 bytes).
    """
    size = system.maximum_cross_replica_sum_buffer_size
    if size is None and system.host.framework in ON_POPART:
        return 0
    return None if size == "all" else size


def infeed_bytes(options: Options, feed: Feed | None) -> int:
    """Return the bytes of an infeed element, stated or from the data; 0 without data."""
    element_bytes = options.infeed.element_bytes
    return element_bytes if element_bytes is not None else feed.element_bytes if feed else 0


def sent_outfeed(options: Options, stages: tuple[LayerStage, ...], *, as_stated: bool = True) -> Outfeed:
    """Return the outfeed: results, mode and bytes, stated or from the last stage.

    Without stages, bytes are 0. Without ``as_stated``, stated bytes are ignored.
    """
    outfeed = _outfeed(options, stages)
    if as_stated and options.outfeed.element_bytes is not None:
        return replace(outfeed, element_bytes=options.outfeed.element_bytes)
    elements = stages[-1].result_elements(options.pipeline.micro_batch_size) if stages else (0,)
    itemsize = np.dtype(outfeed.accumulate_dtype or options.precision).itemsize
    return replace(outfeed, element_bytes=sum(elements[position] for position in outfeed.sent_indices) * itemsize)


def _outfeed(options: Options, stages: tuple[LayerStage, ...]) -> Outfeed:
    """Return the outfeed's results and mode, without bytes."""
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


def _with_summed_results(profile: StageProfile, outfeed: Outfeed, elements: int, itemsize: int) -> StageProfile:
    """Return the last stage's profile with the work of summing its results: read sum and results, write the sum."""
    if not outfeed.accumulate or isinstance(profile.forward, int):
        return profile
    size = np.dtype(outfeed.accumulate_dtype).itemsize if outfeed.accumulate_dtype else itemsize
    work = Work(vector=VectorWork(elements), sram_bytes=elements * (itemsize + 2 * size), itemsize=max(itemsize, size))
    return replace(profile, forward=(*profile.forward, work))


def _optimizer(options: Options) -> Optimizer | None:
    spec = options.optimizer
    if spec is None:
        return None
    optimizer: Optimizer = spec.build()
    if options.system.host.framework in ON_POPART and isinstance(optimizer, Moments):
        return optimizer.on_popart(options.precision)
    return optimizer


def build_workload(options: Options, stages: tuple[LayerStage, ...], feed: Feed, training: bool) -> Workload:
    """Return the arithmetic of a program."""
    return Workload(
        stages=stages,
        feed=feed,
        optimizer=_optimizer(options) if training else None,
        reduction=options.pipeline.reduction_method,
        dtype=np.dtype(options.precision),
        seed=options.seed,
        accumulation_dtype=_accumulator_types(options),
    )
