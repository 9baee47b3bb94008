"""Graphcore's own rules for the arguments of a pipeline, with Graphcore's own message texts.

Texts and order are those of ``pipelining_ops.pipeline``, of ``IPUInfeedQueue`` and
``IPUOutfeedQueue``, and of the compiler's ``pipeline_visitor`` in Graphcore's TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ipusim.base.errors import CountError, ProgramError, UnsupportedProgramError

__all__ = [
    "INTERLEAVED",
    "THEN_BACKPROPAGATE",
    "check_buffer_depth",
    "check_concurrent",
    "check_count",
    "check_count_range",
    "check_interleaved",
    "check_mapping",
    "check_not_serialized",
    "check_outfeed",
    "check_outfeed_mask",
    "check_prefetch_depth",
    "check_serialization",
    "check_serialized",
    "check_stage_options",
    "check_stages",
    "check_weight_updates",
]

_ALSO_CALLED: Final = (
    "This number might be called `gradient_accumulation_count`, `gradient_accumulation_steps_per_replica` "
    "or `steps_per_execution` depending on the API used."
)
_INT32_MAX: Final = 2**31 - 1
_PREFETCH_LIMIT: Final = 256

#: Graphcore's recomputation modes, besides Auto.
THEN_BACKPROPAGATE: Final = "RecomputeThenBackpropagate"
INTERLEAVED: Final = "RecomputeAndBackpropagateInterleaved"
_INTERLEAVED_NAME: Final = "Recompute_and_backpropagate_interleaved"


def check_stages(stages: int) -> None:
    """Refuse fewer than two stages, concurrent ones counted as one; raises ProgramError."""
    if stages < 2:
        raise ProgramError("Pipeline requires at least two computational stages.")


def check_mapping(mappings: int, stages: int) -> None:
    """Refuse a device mapping that is not as long as the list of stages; raises ProgramError."""
    if mappings != stages:
        raise ProgramError(f"Each stage must be mapped to an IPU: {mappings} mappings != {stages} stages")


def check_concurrent(stages: int, devices: int | None) -> None:
    """Refuse concurrent stages that are not mapped to a list of as many IPUs, None for no list; raises ProgramError."""
    if devices is None:
        raise ProgramError(
            "When the pipeline stage is a list of functions, the device mapping must also be a list of device IDs."
        )
    if devices != stages:
        raise ProgramError("Pipeline stage list and device_id list must be the same length.")


def check_stage_options(name: str, count: int, stages: int) -> None:
    """Refuse a list ``name`` of stage options that is not as long as the list of stages; raises ProgramError."""
    if count != stages:
        raise ProgramError(
            f"{name} must be a list or a tuple of PipelineStageOptions objects of length {stages} (same number as the "
            f"number of computational stages) but is {count}."
        )


def check_serialization(iterations: int, reduction: str) -> None:
    """Refuse batch serialization with gradients that are not simply added; raises ProgramError."""
    if iterations != 1 and reduction != "SUM":
        raise ProgramError(
            "batch_serialization_iterations != 1 is only supported when reduction_method is "
            "GradientAccumulationReductionMethod.SUM"
        )


def check_serialized(iterations: int, mapping: Sequence[int]) -> None:
    """Refuse batch serialization over several IPUs; raises UnsupportedProgramError."""
    if iterations > 1 and len(set(mapping)) > 1:
        raise UnsupportedProgramError(
            "When using batch serialization, all the pipeline stages need to be mapped to a single IPU."
        )


def check_not_serialized(iterations: int) -> None:
    """Refuse batch serialization under a schedule that does not have it; raises UnsupportedProgramError."""
    if iterations > 1:
        raise UnsupportedProgramError("Batch serialization is only supported with the `Sequential` schedule.")


def check_interleaved(mapping: Sequence[Sequence[int]], training: bool, schedule: str = "interleaved") -> None:
    """Refuse training with several stages on one IPU, as Graphcore's Interleaved does; raises UnsupportedProgramError.

    ``mapping`` are the IPUs of each stage, several for concurrent ones. Graphcore's compiler has all
    concurrent stages on one device of their own, so that there can be no two of them either.
    """
    ipus = [ipu for ipus_of in mapping for ipu in ipus_of]
    concurrent = sum(len(ipus_of) > 1 for ipus_of in mapping)
    if training and (len(set(ipus)) != len(ipus) or concurrent > 1):
        raise UnsupportedProgramError(
            f"The pipelining schedule '{schedule.capitalize()}' does not currently support multiple pipeline stages on "
            "the same device for training graphs. Please use a different pipeline schedule."
        )


def recomputation(mode: str, modes: tuple[str, ...], schedule: str) -> str:
    """Return the recomputation mode that a schedule with these ``modes``, its own choice first, uses for ``mode``.

    A schedule without any leaves Auto as it is, which recomputes nothing.

    Raises UnsupportedProgramError for a mode that the schedule does not have, as
    the compiler does whether or not recomputation is allowed.
    """
    if mode == "Auto":
        return modes[0] if modes else "Auto"
    if mode not in modes:
        name = {THEN_BACKPROPAGATE: "Recompute_then_backpropagate", INTERLEAVED: _INTERLEAVED_NAME}[mode]
        raise UnsupportedProgramError(
            f"Pipeline schedule {schedule.capitalize()} does not support '{name}' recomputation mode."
        )
    return mode


def check_recomputation(allowed: bool, modes: tuple[str, ...], schedule: str) -> None:
    """Refuse recomputation under a schedule that has no mode of it; raises UnsupportedProgramError."""
    if allowed and not modes:
        raise UnsupportedProgramError(
            f"Pipeline schedule {schedule.capitalize()} does not support recomputation of activations."
        )


def check_weight_updates(continuous: bool) -> None:
    """Refuse weight updates while the pipeline is full; raises UnsupportedProgramError."""
    if continuous:
        raise UnsupportedProgramError("Continuous weight updates are currently not supported.")


def check_prefetch_depth(depth: int) -> None:
    """Refuse an infeed's ``prefetch_depth`` outside of 1 to 255 elements; raises ProgramError."""
    if depth <= 0:
        raise ProgramError(f"prefetch_depth must be greater than zero, but it is {depth}")
    if depth >= _PREFETCH_LIMIT:
        raise ProgramError(f"prefetch_depth must be less than {_PREFETCH_LIMIT}, but it is {depth}")


def check_buffer_depth(depth: int) -> None:
    """Refuse an outfeed's ``buffer_depth`` below one element; raises ProgramError."""
    if depth < 1:
        raise ProgramError("Outfeed buffer depth cannot be less than 1")


def check_outfeed(*, training: bool, mask: bool, loss: bool, accumulate: bool, mode: str | None) -> None:
    """Refuse what cannot be sent, where a ``mask`` is set, or no queue (``mode`` None); raises ProgramError."""
    if mask and not training:
        raise ProgramError("An optimizer_function must be provided when outfeed_mask is set.")
    if loss and not training:
        raise ProgramError("An optimizer_function must be provided when outfeed_loss is True.")
    if loss and mask:
        raise ProgramError("Only one of `outfeed_loss` and `outfeed_mask` can be set.")
    if accumulate and mode is None:
        raise ProgramError("An outfeed_queue must be provided when accumulate_outfeed is True.")
    if accumulate and mode != "ALL":
        raise ProgramError("To accumulate the outfeed, it must be in IPUOutfeedMode ALL.")


def check_outfeed_mask(mask: Sequence[bool], outputs: int) -> None:
    """Refuse a mask that is not as long as the last stage's results; raises ProgramError."""
    if len(mask) != outputs:
        raise ProgramError(
            f"The last computational stage has {outputs} outputs, but the `outfeed_mask` has elements {len(mask)} - "
            "these need to match in size."
        )


def check_count_range(count: int) -> None:
    """Refuse a gradient accumulation count below 0 or above the largest 32-bit integer; raises CountError."""
    if count < 0:
        raise CountError("gradient_accumulation_count must be >= 0.")
    if count > _INT32_MAX:
        raise CountError("gradient_accumulation_count must be < max int32.")


def check_count(count: int, overlap: int) -> None:
    """Refuse a count that the overlap length does not divide, or below it; raises CountError.

    The multiple is checked first, as in Graphcore's compiler, so that the second
    text appears for a count of 0 only.
    """
    check_count_range(count)
    if count % overlap:
        raise _wrong_count(count, f"a multiple of {overlap}")
    if count < overlap:
        raise _wrong_count(count, f"at least {overlap}")


def check_grouped_count(count: int, ipus: int, size: int) -> None:
    """Refuse a count whose groups of micro-batches leave IPUs waiting for each other; raises CountError.

    Groups have ``size`` micro-batches, and the last one those that are left, which are none or at least as many as
    ``ipus`` (Megatron-LM, forward_backward_pipelining_with_interleaving). For a size of 0 there are as many equal
    groups as ``ipus`` go into the count, or one (torch.distributed.pipelining, ScheduleInterleaved1F1B).
    """
    check_count_range(count)
    groups = max(1, count // ipus)
    if not size and count % groups:
        raise _wrong_count(count, f"a multiple of {groups}, of equal groups of at least {ipus}")
    if size and count >= size and 0 < count % size < ipus:
        raise _wrong_count(count, f"a multiple of {size}, or at least {ipus} more than one")
    if count < max(1, size):
        raise _wrong_count(count, f"at least {max(1, size)}")


def _wrong_count(count: int, right: str) -> CountError:
    return CountError(f"The number of iterations of the pipeline must be {right}, but it is {count}. {_ALSO_CALLED}")


def check_main_cycles(count: int, pipeline_stages: int) -> None:
    """Refuse a count below PopART's number of pipeline stages, with PopART's own text; raises CountError."""
    check_count_range(count)
    if count < pipeline_stages:
        raise CountError(
            "Pipeline mainCycles should not be less than 1. Current value is "
            f"{count - (pipeline_stages - 1)}. It is the count, {count}, less {pipeline_stages - 1}: expected at least "
            f"{pipeline_stages} micro-batches."
        )


def check_overlapped_count(count: int, overlap: int) -> None:
    """Refuse a count that is too small for overlapped I/O, or that the overlap length does not divide.

    Graphcore's compiler checks the first alone, and then drops the micro-batches over a
    multiple without a word (grouped_overlap_pipeline_visitor.cc); here they are refused.
    Raises CountError.
    """
    check_count_range(count)
    if count < overlap + 2:
        raise _wrong_count(count, f"at least {overlap + 2}")
    if count % overlap:
        stricter = "This is stricter than Graphcore's compiler, which with I/O tiles drops what is over a multiple."
        raise CountError(f"{_wrong_count(count, f'a multiple of {overlap}')} {stricter}")


def check_no_overlapped_io(overlapped_io: bool, schedule: str) -> None:
    """Refuse I/O tiles under a schedule that does not overlap anything with them; raises UnsupportedProgramError."""
    if overlapped_io:
        raise UnsupportedProgramError(
            f"Input and output on I/O tiles are overlapped with computation by the schedule grouped only, not by "
            f"{schedule}."
        )
