"""Features that a schedule may support, and the one check that refuses those that it does not."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Final

from ipusim.base.errors import UnsupportedProgramError
from ipusim.pipeline.rules import (
    INTERLEAVED,
    THEN_BACKPROPAGATE,
    check_interleaved,
    check_no_overlapped_io,
    check_not_serialized,
    recomputation,
)
from ipusim.pipeline.shape import PlanShape


class Feature(StrEnum):
    """Something that not every schedule can lay out."""

    TRAINING = "training"
    INFERENCE = "inference"
    #: Several stages on one IPU in training.
    SEVERAL_STAGES = "several stages on one IPU"
    CONCURRENT_STAGES = "concurrent stages"
    #: RecomputeThenBackpropagate, a pass of its own.
    RECOMPUTE_THEN_BACKPROPAGATE = THEN_BACKPROPAGATE
    #: RecomputeAndBackpropagateInterleaved, inside the backward pass.
    RECOMPUTE_INTERLEAVED = INTERLEAVED
    #: Host copies on I/O tiles beside the passes.
    OVERLAPPED_IO = "I/O tiles"
    BATCH_SERIALIZATION = "batch serialization"
    #: Micro-batches in several segments along their sequence.
    SEGMENTS = "segments of a micro-batch"
    #: Micro-batches in groups of any size, of which a stage runs one before the next stage of its IPU does.
    GROUPS = "groups of micro-batches"
    #: The order that the authors' own code has, where the schedule has another one by default.
    AUTHORS_ORDER = "its authors' own order"
    #: Stages on more than one IPU.
    SEVERAL_IPUS = "several IPUs"
    #: A value that a stage leaves for a later one on its own IPU stays there, as Graphcore's communication optimizer
    #: has it; otherwise it travels through every stage between them.
    RETURNING_VALUES = "values that stay on their IPU"


#: What a schedule supports unless it says otherwise: what asks nothing of its order.
PLAIN: Final = frozenset(
    {
        Feature.TRAINING,
        Feature.INFERENCE,
        Feature.SEVERAL_IPUS,
        Feature.SEVERAL_STAGES,
        Feature.CONCURRENT_STAGES,
    }
)


def recomputation_modes(supports: Collection[Feature]) -> tuple[str, ...]:
    """Return Graphcore's names of the modes of recomputation among ``supports``, Auto's choice first."""
    modes = (Feature.RECOMPUTE_THEN_BACKPROPAGATE, Feature.RECOMPUTE_INTERLEAVED)
    return tuple(mode.value for mode in modes if mode in supports)


def check_supported(name: str, supports: Collection[Feature], shape: PlanShape) -> None:
    """Refuse a shape that asks for what the schedule ``name`` does not support, in Graphcore's words if it has any.

    Raises UnsupportedProgramError.
    """
    if Feature.BATCH_SERIALIZATION not in supports:
        check_not_serialized(shape.serialization)
    ways = ((Feature.TRAINING, shape.training), (Feature.INFERENCE, not shape.training))
    concurrent = (Feature.CONCURRENT_STAGES, any(len(parts) > 1 for parts in shape.parts))
    options = (
        (Feature.SEGMENTS, shape.segments > 1),
        (Feature.GROUPS, shape.group_size > 0),
        (Feature.AUTHORS_ORDER, shape.authors),
    )
    for feature, used in (*ways, concurrent, *options):
        if used and feature not in supports:
            raise UnsupportedProgramError(f"The pipelining schedule '{name}' does not support {feature.value}.")
    if Feature.SEVERAL_STAGES not in supports:
        check_interleaved([[shape.mapping[stage] for stage in parts] for parts in shape.parts], shape.training, name)
    if Feature.OVERLAPPED_IO not in supports:
        check_no_overlapped_io(shape.overlapped_io, name)
    for used, mode in ((shape.recompute, THEN_BACKPROPAGATE), (shape.recompute_inline, INTERLEAVED)):
        if used:
            recomputation(mode, recomputation_modes(supports), name)
