"""Describe active pipeline options of Graphcore, a line per option."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ipusim.hardware.system import System
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.rules import INTERLEAVED, THEN_BACKPROPAGATE
from ipusim.pipeline.shape import PlanShape

#: Name of the effect of ``use_synthetic_data``.
SYNTHETIC_DATA: Final = "synthetic data"


def effects_of(program: PipelineProgram, system: System) -> dict[str, str]:
    """Return name and effect of every option that changes pipeline execution; empty for default options."""
    synthetic = {SYNTHETIC_DATA: "without the host: feeds take no time"} if program.has_synthetic_data else {}
    return synthetic | dict(_effects(program, system))


def _effects(program: PipelineProgram, system: System) -> Iterator[tuple[str, str]]:
    shape, outfeed = program.shape, program.outfeed
    yield from _order_effects(shape)
    sizes = [len(parts) for parts in shape.parts if len(parts) > 1]
    if sizes:
        yield "concurrent stages", ", ".join(f"{count} at the same time" for count in sizes)
    if system.io_tiles:
        overlapped = "feeds overlapped" if shape.overlapped_io else "nothing overlapped"
        yield "I/O tiles", f"{system.io_tiles} of {system.io_tiles + system.ipu.tiles}, {overlapped}"
    yield from _moved_effects(program)
    if outfeed.accumulate:
        yield "outfeed", f"accumulated{f' as {outfeed.accumulate_dtype}' if outfeed.accumulate_dtype else ''}"
    if outfeed.mask:
        yield "outfeed carries", " and ".join(outfeed.sent_names) or "nothing"
    if system.replicas > 1 and program.sync_replicas_independently:
        yield "replicas", "meet before weight updates only"
    if system.hosts > 1:
        yield "hosts", f"{system.hosts}, each with an equal device"
    if program.offload.variables_on_host:
        yield "weight update", "on the host"
    if rates := system.rates.changed_rates():
        yield "rates", ", ".join(f"{rate.name} {rate.show(getattr(system.rates, rate.attribute))}" for rate in rates)


def _order_effects(shape: PlanShape) -> Iterator[tuple[str, str]]:
    """Yield effects of options that change the order of passes."""
    if shape.recompute or shape.recompute_inline:
        yield "recomputation", THEN_BACKPROPAGATE if shape.recompute else INTERLEAVED
    if shape.serialization > 1:
        yield "batch serialization", f"{shape.serialization} micro-batches of a stage in a row"
    if shape.segments > 1:
        yield "segments", f"{shape.segments} of every micro-batch, in sequence through the stages"
    if shape.group_size:
        yield "groups", f"{shape.group_size} micro-batches through a stage before its IPU changes to the next stage"
    if shape.authors:
        yield (
            "order of passes",
            "the order in the code of the schedule's authors, which differs for few micro-batches only",
        )


def _moved_effects(program: PipelineProgram) -> Iterator[tuple[str, str]]:
    """Yield effects of options that move tensors off their IPU."""
    tensors = list(_offload_effects(program))
    if tensors:
        yield "Streaming Memory", ", ".join(tensors)
    if (moves := program.moved_activations) is not None:
        target = "to Streaming Memory" if moves.to == "streaming_memory" else "to the partner IPU"
        buffers = f", {moves.buffers} buffers" if moves.buffers > 1 else ""
        limit = moves.most_kept(program.shape.mapping)
        yield "activations moved", f"{target}, of stages that keep more than {limit} micro-batches{buffers}"


def _offload_effects(program: PipelineProgram) -> Iterator[str]:
    """Yield the offloaded kinds of tensors."""
    offload, parts = program.offload, " in parts" if program.offload.replicas > 1 else ""
    if any(offload.state_bytes(profile) for profile in program.stages):
        yield f"optimizer state{parts if offload.sharded_state else ''}"
    if any(offload.weight_bytes(profile) for profile in program.stages):
        yield f"weights{parts}"
    if any(offload.accumulator_bytes(profile) for profile in program.stages):
        yield "gradient accumulators"
    if offload.activations:
        yield "activations"
