"""Check a pipeline's arguments by Graphcore's rules, with Graphcore's message texts.

Texts and order follow ``pipelining_ops.pipeline``, ``IPUInfeedQueue`` and
``IPUOutfeedQueue``, and the compiler's ``pipeline_visitor`` in Graphcore's TensorFlow.
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

_COUNT_HINT: Final = (
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
    """Refuse fewer than two stages, with concurrent stages counted as one; raises ProgramError."""
    if stages < 2:
        raise ProgramError("Pipeline requires at least two computational stages.")


def check_mapping(mappings: int, stages: int) -> None:
    """Refuse a device mapping of wrong length; raises ProgramError."""
    if mappings != stages:
        raise ProgramError(f"Each stage must be mapped to an IPU: {mappings} mappings != {stages} stages")


def check_concurrent(stages: int, devices: int | None) -> None:
    """Refuse concurrent stages unless their mapping lists an IPU for each; raises ProgramError.

    Args:
        stages: number of concurrent stages.
        devices: number of IPUs in the mapping's list; None if the mapping is a single number.
    """
    if devices is None:
        raise ProgramError(
            "When the pipeline stage is a list of functions, the device mapping must also be a list of device IDs."
        )
    if devices != stages:
        raise ProgramError("Pipeline stage list and device_id list must be the same length.")


def check_stage_options(name: str, count: int, stages: int) -> None:
    """Refuse a list ``name`` of stage options of wrong length; raises ProgramError."""
    if count != stages:
        raise ProgramError(
            f"{name} must be a list or a tuple of PipelineStageOptions objects of length {stages} (same number as the "
            f"number of computational stages) but is {count}."
        )


def check_serialization(iterations: int, reduction: str) -> None:
    """Refuse batch serialization with a gradient reduction other than SUM; raises ProgramError."""
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
    """Refuse batch serialization under a schedule without support for it; raises UnsupportedProgramError."""
    if iterations > 1:
        raise UnsupportedProgramError("Batch serialization is only supported with the `Sequential` schedule.")


def check_interleaved(mapping: Sequence[Sequence[int]], training: bool, schedule: str = "interleaved") -> None:
    """Refuse training with several stages on one IPU, like Graphcore's Interleaved; raises UnsupportedProgramError.

    ``mapping`` lists the IPUs of each stage, several for concurrent stages. Graphcore's compiler puts all concurrent
    stages on one virtual device, so two groups of concurrent stages are refused as well.
    """
    ipus = [ipu for stage_ipus in mapping for ipu in stage_ipus]
    concurrent = sum(len(stage_ipus) > 1 for stage_ipus in mapping)
    if training and (len(set(ipus)) != len(ipus) or concurrent > 1):
        raise UnsupportedProgramError(
            f"The pipelining schedule '{schedule.capitalize()}' does not currently support multiple pipeline stages on "
            "the same device for training graphs. Please use a different pipeline schedule."
        )


def recomputation(mode: str, modes: tuple[str, ...], schedule: str) -> str:
    """Resolve the recomputation ``mode`` for a schedule with supported ``modes``, whose first is the default.

    Auto stays Auto, without recomputation, for a schedule without modes.

    Raises UnsupportedProgramError for an unsupported mode, as Graphcore's compiler does even if nothing is recomputed.
    """
    if mode == "Auto":
        return modes[0] if modes else "Auto"
    if mode not in modes:
        name = {THEN_BACKPROPAGATE: "Recompute_then_backpropagate", INTERLEAVED: _INTERLEAVED_NAME}[mode]
        raise UnsupportedProgramError(
            f"Pipeline schedule {schedule.capitalize()} does not support '{name}' recomputation mode."
        )
    return mode


def check_recomputation(recompute: bool, modes: tuple[str, ...], schedule: str) -> None:
    """Refuse recomputation under a schedule without a recomputation mode; raises UnsupportedProgramError."""
    if recompute and not modes:
        raise UnsupportedProgramError(
            f"Pipeline schedule {schedule.capitalize()} does not support recomputation of activations."
        )


def check_weight_updates(continuous: bool) -> None:
    """Refuse continuous weight updates (without a drain before them); raises UnsupportedProgramError."""
    if continuous:
        raise UnsupportedProgramError("Continuous weight updates are currently not supported.")


def check_prefetch_depth(depth: int) -> None:
    """Refuse an infeed's ``prefetch_depth`` outside of 1 to 255 elements; raises ProgramError."""
    if depth <= 0:
        raise ProgramError(f"prefetch_depth must be greater than zero, but it is {depth}")
    if depth >= _PREFETCH_LIMIT:
        raise ProgramError(f"prefetch_depth must be less than {_PREFETCH_LIMIT}, but it is {depth}")


def check_buffer_depth(depth: int) -> None:
    """Refuse an outfeed's ``buffer_depth`` below 1 element; raises ProgramError."""
    if depth < 1:
        raise ProgramError("Outfeed buffer depth cannot be less than 1")


def check_outfeed(*, training: bool, mask: bool, loss: bool, accumulate: bool, mode: str | None) -> None:
    """Refuse invalid outfeed options, also without a queue (``mode`` None); raises ProgramError."""
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
    """Refuse a mask whose length differs from the number of results; raises ProgramError."""
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
    """Refuse a count that is not a positive multiple of the overlap length; raises CountError.

    As in Graphcore's compiler, the check for a multiple comes first, so the second
    text appears only for a count of 0.
    """
    check_count_range(count)
    if count % overlap:
        raise _wrong_count(count, f"a multiple of {overlap}")
    if count < overlap:
        raise _wrong_count(count, f"at least {overlap}")


def check_grouped_count(count: int, ipus: int, size: int) -> None:
    """Refuse a count if its groups of micro-batches would deadlock the IPUs; raises CountError.

    Groups have ``size`` micro-batches; the last group has the remainder: zero, or at least
    ``ipus`` (Megatron-LM, forward_backward_pipelining_with_interleaving). Size 0 means count // ``ipus`` equal
    groups, at least one group (torch.distributed.pipelining, ScheduleInterleaved1F1B).
    """
    check_count_range(count)
    groups = max(1, count // ipus)
    if not size and count % groups:
        raise _wrong_count(count, f"a multiple of {groups}, of equal groups of at least {ipus}")
    if size and count >= size and 0 < count % size < ipus:
        raise _wrong_count(count, f"a multiple of {size}, or at least {ipus} more than one")
    if count < max(1, size):
        raise _wrong_count(count, f"at least {max(1, size)}")


def _wrong_count(count: int, expected: str) -> CountError:
    return CountError(f"The number of iterations of the pipeline must be {expected}, but it is {count}. {_COUNT_HINT}")


def check_main_cycles(count: int, pipeline_stages: int) -> None:
    """Refuse a count below PopART's number of pipeline stages, with PopART's text; raises CountError."""
    check_count_range(count)
    if count < pipeline_stages:
        raise CountError(
            "Pipeline mainCycles should not be less than 1. Current value is "
            f"{count - (pipeline_stages - 1)}. It is the count, {count}, less {pipeline_stages - 1}: expected at least "
            f"{pipeline_stages} micro-batches."
        )


def check_overlapped_count(count: int, overlap: int) -> None:
    """Refuse a count too small for overlapped I/O, or indivisible by the overlap length.

    Graphcore's compiler checks only the minimum, and silently drops micro-batches beyond a
    multiple (grouped_overlap_pipeline_visitor.cc). ipusim refuses such counts.
    Raises CountError.
    """
    check_count_range(count)
    if count < overlap + 2:
        raise _wrong_count(count, f"at least {overlap + 2}")
    if count % overlap:
        stricter = "This is stricter than Graphcore's compiler, which with I/O tiles drops what is over a multiple."
        raise CountError(f"{_wrong_count(count, f'a multiple of {overlap}')} {stricter}")


def check_no_overlapped_io(overlapped_io: bool, schedule: str) -> None:
    """Refuse I/O tiles under a schedule without overlapped I/O; raises UnsupportedProgramError."""
    if overlapped_io:
        raise UnsupportedProgramError(
            f"Input and output on I/O tiles are overlapped with computation by the schedule grouped only, not by "
            f"{schedule}."
        )
