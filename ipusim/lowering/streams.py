"""Compute the bytes loaded from Streaming Memory before passes and updates, and stored after them.

Durations are known only during the run, as the IPUs of a machine share the memory's bandwidth.
"""

from __future__ import annotations

from typing import NamedTuple

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.program import PipelineProgram


class Stream(NamedTuple):
    """Bytes loaded from Streaming Memory, and bytes stored."""

    load: int = 0
    store: int = 0

    def plus(self, load: int = 0, store: int = 0) -> Stream:
        """Return the stream with additional bytes to load and to store."""
        return Stream(self.load + load, self.store + store)


def pass_streams(program: PipelineProgram) -> dict[tuple[int, int], Stream]:
    """Return the streams of every (pass, stage); empty without offloading.

    Accumulators are loaded before the addition of a micro-batch's gradients and stored after, in the backward pass or
    in the weight-gradient pass. Activations are loaded before every consuming pass, and stored after every producing
    pass. A replica's part of the weights is loaded before every pass. Tensors from an input-gradient pass for the
    weight-gradient pass stay on the IPU.
    """
    passes = _activation_streams(program) if program.offload.activations else {}
    for stage, profile in enumerate(program.stages):
        weight_part_bytes = program.offload.stored_weight_bytes(profile)
        for kind in Pass if weight_part_bytes else ():
            passes[kind, stage] = passes.get((kind, stage), Stream()).plus(load=weight_part_bytes)
        accumulator_bytes = program.offload.accumulator_bytes(profile) if program.shape.training else 0
        if accumulator_bytes:
            for kind in (Pass.BACKWARD, Pass.WEIGHT_GRADIENT):
                passes[kind, stage] = passes.get((kind, stage), Stream()).plus(accumulator_bytes, accumulator_bytes)
    return passes


def update_streams(program: PipelineProgram) -> dict[int, Stream]:
    """Return the streams of every IPU's weight update; empty without offloading.

    An update loads the accumulators, and loads and stores the optimizer state and a replica's part of the weights.
    """
    updates: dict[int, Stream] = {}
    for stage, ipu in program.shape.homes if program.shape.training else ():
        profile = program.stages[stage]
        state_bytes = program.offload.stored_state_bytes(profile) + program.offload.stored_weight_bytes(profile)
        accumulator_bytes = program.offload.accumulator_bytes(profile)
        if state_bytes or accumulator_bytes:
            updates[ipu] = updates.get(ipu, Stream()).plus(state_bytes + accumulator_bytes, state_bytes)
    return updates


def _activation_streams(program: PipelineProgram) -> dict[tuple[int, int], Stream]:
    """Return the passes' streams of activations and gradients. The last stage keeps its activations on the IPU."""
    shape = program.shape
    passes: dict[tuple[int, int], Stream] = {}
    for stage in range(shape.stages):
        sources, targets = shape.neighbours(stage, -1), shape.neighbours(stage, 1)
        kept_bytes = program.saved_bytes(stage) if targets else 0
        input_bytes = sum(program.sent_bytes(neighbour, stage) for neighbour in sources)
        output_bytes = sum(program.sent_bytes(stage, neighbour) for neighbour in targets)
        passes[Pass.FORWARD, stage] = Stream(input_bytes, kept_bytes + output_bytes)
        if shape.training:
            output_gradient_bytes = sum(program.sent_bytes(neighbour, stage) for neighbour in targets)
            gradient_bytes = sum(program.sent_bytes(stage, neighbour) for neighbour in sources)
            for kind in (Pass.BACKWARD, Pass.INPUT_GRADIENT):
                passes[kind, stage] = Stream(kept_bytes + output_gradient_bytes, gradient_bytes)
    return passes
