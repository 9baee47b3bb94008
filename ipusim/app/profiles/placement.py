"""Determine the stage of each measured pass: named by spans, stated by files, or equal groups of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Final

from ipusim.app.profiles.names import FORWARD
from ipusim.app.profiles.ranks import ASSUMED, STATED, Measurement
from ipusim.app.profiles.spans import Span
from ipusim.base.errors import FileError, OptionError
from ipusim.base.units import enumerated

_PIPELINE: Final = "pipeline_model_parallel_size"
#: Maximum number of missing stages or ranks in a message.
_MOST_NAMES: Final = 8


def placement_of(
    measurement: Measurement, passes: Sequence[Span], stages: int | None
) -> tuple[list[str], Callable[[Span], str], str]:
    """Return the names or numbers of stages in order, the stage of a pass as a function, and the source in words.

    ``stages`` is the user's number of stages.

    Raises OptionError for a number that contradicts names or ranks, and FileError for missing ranks and stages, and for
    a mixture of passes with and without stages.
    """
    ranks = sorted({span.rank for span in measurement.spans})
    replica = "" if stages else _refuse_missing_ranks(measurement, ranks)
    if any(span.stage for span in passes):
        _refuse_partly_named(passes)
        names = _sorted_stages([span.stage for span in passes])
        if stages is not None and stages != len(names):
            raise OptionError("stages", f"expected {len(names)}, the number of stages in the names, got {stages}")
        return names, lambda span: span.stage, f"{STATED} by names{replica}"
    stage_of_rank, source = _stage_of_ranks(measurement, ranks, stages)
    if measurement.order == ASSUMED:
        _refuse_other_order(passes, stage_of_rank)
    names = _sorted_stages([*map(str, stage_of_rank.values())])
    return names, lambda span: str(stage_of_rank[span.rank]), f"{source}{replica}"


def _refuse_missing_ranks(measurement: Measurement, ranks: Sequence[int]) -> str:
    """Refuse missing ranks; return a remark if the ranks are assumed to be one of several replicas."""
    world_size = measurement.facts.get("world_size")
    world = world_size.value if world_size else ranks[-1] + 1
    missing_ranks = sorted({*range(world)} - {*ranks})
    if world_size and (ranks[-1] >= world):
        raise FileError(f"{world_size.place}: expected {world} ranks, got rank {ranks[-1]}")
    if not missing_ranks:
        return ""
    if (
        len(ranks) > 1
        and missing_ranks[0] == len(ranks)
        and not world % len(ranks)
        and _PIPELINE not in measurement.facts
    ):
        return f", {ASSUMED} to be one replica of {world // len(ranks)}"
    if measurement.stages and {*measurement.stages.values()} == {*range(measurement.facts[_PIPELINE].value)}:
        return ""
    statement = f" of world_size {world}, which {world_size.place} says" if world_size else ""
    raise FileError(
        f"expected the passes of all ranks, got none of rank {enumerated(missing_ranks, _MOST_NAMES)}{statement}: "
        "import these too, or set the option stages to the number of stages of these ranks"
    )


def _refuse_partly_named(passes: Sequence[Span]) -> None:
    """Refuse a mixture of passes with and without a stage in their names."""
    unnamed = next((span for span in passes if not span.stage), None)
    if unnamed is not None:
        raise FileError(
            f"expected names with a stage for all passes, or for none, got {unnamed.activity} passes on rank "
            f"{unnamed.rank} without a stage: name these with --name STAGE.{unnamed.activity}=NAME"
        )


def _sorted_stages(stages: Sequence[str]) -> list[str]:
    """Return stages in order of their numbers, or of appearance; raises FileError for a missing number."""
    names = list(dict.fromkeys(stages))
    if not all(name.isdecimal() for name in names):
        return names
    names.sort(key=int)
    missing_stages = [str(number) for number in range(int(names[-1]) + 1) if str(number) not in names]
    if missing_stages:
        raise FileError(
            f"expected passes of every stage, got none of {', '.join(missing_stages[:_MOST_NAMES])}: import the traces "
            "of all ranks"
        )
    return names


def _stage_of_ranks(measurement: Measurement, ranks: Sequence[int], stages: int | None) -> tuple[dict[int, int], str]:
    """Return the stage of each rank, and the source of this placement.

    By default consecutive ranks share a stage, as in Megatron's usual order of groups with the pipeline outermost. With
    ``use_tp_pp_dp_mapping`` data parallelism is outermost, and the pipeline repeats.
    """
    facts = measurement.facts
    if stages is None and measurement.stages:
        return {rank: measurement.stages[rank] for rank in ranks}, f"{STATED} by {facts[_PIPELINE].short_place}"
    pipeline_size = facts.get(_PIPELINE)
    number = stages or (pipeline_size.value if pipeline_size else len(ranks))
    source = f"{STATED} by {pipeline_size.short_place}" if pipeline_size else f"{ASSUMED}, one a rank"
    source = f"{STATED} by the option stages" if stages else source
    if pipeline_size is None and stages is None and measurement.stages_from:
        raise FileError(
            f"expected {measurement.stages_from}, got none: set the option stages to the number of stages of the "
            f"{len(ranks)} ranks"
        )
    if len(ranks) % number:
        text = f"expected a number of stages that divides the {len(ranks)} ranks, got {number}"
        if stages is not None:
            raise OptionError("stages", text)
        raise FileError(f"{text}: set the option stages to the number of stages")
    mapping = facts.get("use_tp_pp_dp_mapping")
    if mapping is None or not mapping.value:
        return {rank: position * number // len(ranks) for position, rank in enumerate(ranks)}, source
    inner = math.prod(
        facts[key].value for key in ("tensor_model_parallel_size", "context_parallel_size") if key in facts
    )
    if len(ranks) % (inner * number):
        raise FileError(
            f"expected {inner} x {number} ranks in each pipeline, according to {mapping.place} and the sizes before, "
            f"got {len(ranks)} ranks"
        )
    assumption = "" if "tensor_model_parallel_size" in facts else f", tensor parallelism {ASSUMED} to be 1"
    return {
        rank: position // inner % number for position, rank in enumerate(ranks)
    }, f"{source}, order by {mapping.short_place}{assumption}"


def _refuse_other_order(passes: Sequence[Span], stage_of_rank: Mapping[int, int]) -> None:
    """Refuse an assumed order of ranks if a stage begins before its predecessor."""
    first: dict[int, Fraction] = {}
    for span in passes:
        if span.activity == FORWARD and span.start_us is not None:
            stage = stage_of_rank[span.rank]
            first[stage] = min(first.get(stage, span.start_us), span.start_us)
    for (stage, start), (next_stage, next_us) in pairwise(sorted(first.items())):
        if next_us < start:
            raise FileError(
                f"expected the first forward pass of stage {next_stage} after the first of stage {stage}, at "
                f"{float(start):.16g} us, got {float(next_us):.16g} us: the order of ranks was assumed; name processes "
                "'rank 0', 'rank 1' and so on by process_name, or files rank0, rank1 and so on"
            )
