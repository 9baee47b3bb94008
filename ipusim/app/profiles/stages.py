"""From measurements on ranks to stages: whose each is, what it took in the middle, and where stages share an IPU."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ipusim.api import runs
from ipusim.app.profiles.names import PASSES, UPDATE
from ipusim.app.profiles.timings import Measured, Timing
from ipusim.base.errors import FileError, OptionError

_FORWARD: Final = PASSES[0]
_BACKWARD: Final = PASSES[1:-1]


@dataclass(frozen=True)
class Figure:
    """One figure of a stage, in microseconds: the median of its measurements, the least and the most, how many."""

    median: Fraction
    least: Fraction
    most: Fraction
    count: int


@dataclass(frozen=True)
class Stages:
    """The measured times of a pipeline.

    Attributes:
        tool: what measured it.
        stages: the figures of each by its name, or its number as text, in their order; of a stage by passes and the
            update, in the order of PASSES.
        mapping: the IPU of each stage, as ranks shared stages.
        count: micro-batches behind a weight update; None where that is not known.
        notes: what a person has to know about it.
    """

    tool: str
    stages: Mapping[str, Mapping[str, Figure]]
    mapping: tuple[int, ...]
    count: int | None
    notes: tuple[str, ...] = ()


def stages_of(measured: Measured, stages: int | None = None, count: int | None = None) -> Stages:
    """Return the stages of what was measured, which names say, or else ranks in equal parts, in their order.

    A weight update counts for all stages of its rank, in equal parts. Replicas of a stage are further measurements.

    Args:
        measured: what files hold.
        stages: that ranks are divided among; by default as the files say, else as many as there are ranks.
        count: micro-batches behind a weight update, by default as the files say, or as passes and updates come to.

    Raises OptionError for a number of stages that names or ranks are not of, FileError for names that leave open of
    which stage a pass is, and for stages without passes that others have.
    """
    try:
        return _stages_of(measured, stages, count)
    except FileError as error:
        raise FileError(f"{measured.files}: {error}") from None


def _stages_of(measured: Measured, stages: int | None, count: int | None) -> Stages:
    passes = [timing for timing in measured.timings if timing.what != UPDATE]
    if not passes:
        raise FileError("expected passes, got weight updates alone")
    named = any(timing.stage for timing in passes)
    if named:
        _refuse_partly_named(passes)
        names = _in_order([timing.stage for timing in passes])
        if stages is not None and stages != len(names):
            raise OptionError("stages", f"expected {len(names)}, as the names say, got {stages}")
        of = {timing: timing.stage for timing in passes}
    else:
        owner = _by_rank(sorted({timing.rank for timing in passes}), stages or measured.stages, stages is not None)
        names = [str(stage) for stage in range(max(owner.values()) + 1)]
        of = {timing: str(owner[timing.rank]) for timing in passes}
    if len(names) > runs.MAX_STAGES:
        raise FileError(f"expected at most {runs.MAX_STAGES} stages, got {len(names)}")
    ranks: dict[str, set[int]] = {name: set() for name in names}
    times: dict[tuple[str, str], list[Fraction]] = defaultdict(list)
    for timing in passes:
        ranks[of[timing]].add(timing.rank)
        times[of[timing], timing.what].append(timing.us)
    for timing in measured.timings:
        if timing.what == UPDATE:
            own = [timing.stage] if timing.stage in ranks else [name for name in names if timing.rank in ranks[name]]
            for name in own:
                times[name, UPDATE].append(timing.us / len(own))
    _refuse_missing(names, set(times))
    groups = list(dict.fromkeys(frozenset(ranks[name]) for name in names))
    mapping = tuple(groups.index(frozenset(ranks[name])) for name in names)
    return Stages(
        measured.tool,
        {name: _figures(name, times) for name in names},
        mapping,
        count or measured.count or _count(measured.timings, of),
        measured.notes,
    )


def _refuse_partly_named(passes: Sequence[Timing]) -> None:
    """Refuse passes of which some say their stage, and others do not."""
    silent = next((timing for timing in passes if not timing.stage), None)
    if silent is not None:
        raise FileError(
            f"expected names that say the stage of every pass, or of none, got {silent.what} passes on rank "
            f"{silent.rank} without one: name these with --name STAGE.{silent.what}=NAME"
        )


def _in_order(stages: Sequence[str]) -> list[str]:
    """Return stages by their numbers, or named ones as they come; raises FileError where a number is left out."""
    names = list(dict.fromkeys(stages))
    if not all(name.isdecimal() for name in names):
        return names
    names.sort(key=int)
    missing = [str(number) for number in range(int(names[-1]) + 1) if str(number) not in names]
    if missing:
        raise FileError(
            f"expected passes of every stage, got none of {', '.join(missing[:8])}: import the traces of all ranks"
        )
    return names


def _by_rank(ranks: Sequence[int], stages: int | None, is_chosen: bool) -> dict[int, int]:
    """Return the stage of each rank: consecutive ranks share a stage, and all stages have as many ranks."""
    stages = stages or len(ranks)
    if len(ranks) % stages:
        text = f"expected a number of stages that divides the {len(ranks)} ranks, got {stages}"
        if is_chosen:
            raise OptionError("stages", text)
        raise FileError(f"{text}: say by the option stages how many there are")
    return {rank: number * stages // len(ranks) for number, rank in enumerate(ranks)}


def _refuse_missing(names: Sequence[str], there: set[tuple[str, str]]) -> None:
    """Refuse stages without forward passes, and those without a backward pass that others have."""
    for name in names:
        if (name, _FORWARD) not in there:
            raise FileError(f"expected forward passes of every stage, got none of stage {name}")
    for kind in _BACKWARD:
        having = [name for name in names if (name, kind) in there]
        without = [name for name in names if name not in having]
        whole = [name for name in without if not {(name, other) for other in _BACKWARD} & there]
        if having and whole:
            raise FileError(
                f"expected backward passes of every stage, as stage {having[0]} has, got none of stage {whole[0]}"
            )


def _figures(name: str, times: Mapping[tuple[str, str], Sequence[Fraction]]) -> dict[str, Figure]:
    """Return the figures of a stage, those that were measured."""
    return {
        what: Figure(statistics.median(values), min(values), max(values), len(values))
        for what in PASSES
        if (values := times.get((name, what)))
    }


def _count(timings: Sequence[Timing], of: Mapping[Timing, str]) -> int | None:
    """Return the forward passes of a stage for each update of its rank; None unless they are as many everywhere."""
    forward = Counter((timing.rank, of[timing]) for timing in timings if timing.what == _FORWARD)
    updates = Counter(timing.rank for timing in timings if timing.what == UPDATE)
    counts = {Fraction(number, updates[rank]) if updates[rank] else None for (rank, _), number in forward.items()}
    only = counts.pop() if len(counts) == 1 else None
    return int(only) if only is not None and only.denominator == 1 else None
