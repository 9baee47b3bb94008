"""List the features that schedules may support, and refuse unsupported ones."""

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
    """A feature that some schedules do not support."""

    TRAINING = "training"
    INFERENCE = "inference"
    #: Several stages per IPU in training.
    SEVERAL_STAGES = "several stages on one IPU"
    CONCURRENT_STAGES = "concurrent stages"
    #: RecomputeThenBackpropagate, in a separate pass.
    RECOMPUTE_THEN_BACKPROPAGATE = THEN_BACKPROPAGATE
    #: RecomputeAndBackpropagateInterleaved, inside the backward pass.
    RECOMPUTE_INTERLEAVED = INTERLEAVED
    #: Host copies on I/O tiles in parallel with passes.
    OVERLAPPED_IO = "I/O tiles"
    BATCH_SERIALIZATION = "batch serialization"
    #: Micro-batches split into segments along their sequence.
    SEGMENTS = "segments of a micro-batch"
    #: Groups of micro-batches of any size; a stage runs one group before the next stage of its IPU.
    GROUPS = "groups of micro-batches"
    #: Order of the authors' code, for schedules with another default order.
    AUTHORS_ORDER = "its authors' own order"
    #: Stages on several IPUs.
    SEVERAL_IPUS = "several IPUs"
    #: Values for a later stage of the same IPU stay on the IPU, like in Graphcore's communication optimizer;
    #: otherwise they travel through every stage between.
    RETURNING_VALUES = "values kept on their IPU"


#: Default features, which need no special order.
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
    """Return Graphcore's names of recomputation modes among ``supports``, Auto's choice first."""
    modes = (Feature.RECOMPUTE_THEN_BACKPROPAGATE, Feature.RECOMPUTE_INTERLEAVED)
    return tuple(mode.value for mode in modes if mode in supports)


def check_supported(name: str, supports: Collection[Feature], shape: PlanShape) -> None:
    """Refuse a shape with features unsupported by schedule ``name``, with Graphcore's texts if available.

    Raises UnsupportedProgramError.
    """
    if Feature.BATCH_SERIALIZATION not in supports:
        check_not_serialized(shape.serialization)
    modes = ((Feature.TRAINING, shape.training), (Feature.INFERENCE, not shape.training))
    concurrent = (Feature.CONCURRENT_STAGES, any(len(parts) > 1 for parts in shape.parts))
    options = (
        (Feature.SEGMENTS, shape.segments > 1),
        (Feature.GROUPS, shape.group_size > 0),
        (Feature.AUTHORS_ORDER, shape.authors),
    )
    for feature, is_used in (*modes, concurrent, *options):
        if is_used and feature not in supports:
            raise UnsupportedProgramError(f"The pipelining schedule '{name}' does not support {feature.value}.")
    if Feature.SEVERAL_STAGES not in supports:
        check_interleaved([[shape.mapping[stage] for stage in parts] for parts in shape.parts], shape.training, name)
    if Feature.OVERLAPPED_IO not in supports:
        check_no_overlapped_io(shape.overlapped_io, name)
    for is_used, mode in ((shape.recompute, THEN_BACKPROPAGATE), (shape.recompute_inline, INTERLEAVED)):
        if is_used:
            recomputation(mode, recomputation_modes(supports), name)
