"""From spans on ranks to stages: the median time of each pass, and where stages share an IPU."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ipusim.api import runs
from ipusim.app.profiles.names import BACKWARD, FORWARD, OVERLAP, PASSES, UPDATE
from ipusim.app.profiles.placement import Placement, placement_of
from ipusim.app.profiles.ranks import INFERRED, STATED, Measured
from ipusim.app.profiles.spans import Span
from ipusim.app.profiles.steps import of_usual_count
from ipusim.base.errors import FileError
from ipusim.base.units import counted, enumerated_rows

#: Names of spans, and files, that a message or a table lists.
_LISTED: Final = 6
_MOST_FILES: Final = 16


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
        count: micro-batches behind a weight update; None if unknown.
        notes: sentences for a person.
        known: of each file its name, ranks, stages, micro-batches and how these are known.
        spans: passes, each with the name of its stage, and updates.
    """

    tool: str
    stages: Mapping[str, Mapping[str, Figure]]
    mapping: tuple[int, ...]
    count: int | None
    notes: tuple[str, ...] = ()
    known: tuple[tuple[str, str, str, str, str], ...] = ()
    spans: tuple[Span, ...] = ()


def stages_of(measured: Measured, stages: int | None = None, count: int | None = None) -> Stages:
    """Return the stages of what was measured, which names say, or else ranks in equal parts.

    A weight update counts for all stages of its rank, in equal parts; several updates behind the same passes are one.
    Replicas of a stage are further measurements.

    Args:
        measured: the spans of files.
        stages: number of stages, by default as the files say, else as many as there are ranks.
        count: micro-batches behind a weight update, by default as the files say, or as names and updates come to.

    Raises OptionError for a number of stages that contradicts names or ranks, FileError for missing ranks or stages,
    for names that leave open of which stage a pass is, and for stages without passes that others have.
    """
    try:
        return _stages_of(measured, stages, count)
    except FileError as error:
        raise FileError(f"{measured.files}: {error}") from None


def _stages_of(measured: Measured, stages: int | None, count: int | None) -> Stages:
    notes = [*measured.notes]
    spans, usual = of_usual_count(measured.spans, notes)
    passes = [span for span in spans if span.what not in (UPDATE, OVERLAP)]
    if not passes:
        others = ", ".join(map(runs.show, (name for name, _ in measured.names.most_common(_LISTED)))) or "none"
        pairs = "overlapped pairs" if any(span.what == OVERLAP for span in spans) else "weight updates"
        got = f"{pairs} alone" if spans else "none"
        raise FileError(
            f"expected passes, got {got}; the longest spans of other names are {others}: "
            "say with --name PASS=NAME which are passes, as some tools name none (torch's Schedule1F1B)"
        )
    placement = placement_of(measured, passes, stages)
    names, of = placement.names, placement.stage
    if len(names) > runs.MAX_STAGES:
        raise FileError(f"expected at most {runs.MAX_STAGES} stages, got {len(names)}")
    ranks: dict[str, set[int]] = {name: set() for name in names}
    times: dict[tuple[str, str], list[Fraction]] = defaultdict(list)
    for span in passes:
        span.stage = of(span)
        ranks[span.stage].add(span.rank)
        times[span.stage, span.what].append(span.pass_us)
    for (rank, stage), us in _updates(spans):
        own = [stage] if stage in ranks else [name for name in names if rank in ranks[name]]
        for name in own:
            times[name, UPDATE].append(us / len(own))
    _refuse_missing(names, set(times))
    _note_unlike(spans, notes)
    groups = list(dict.fromkeys(frozenset(ranks[name]) for name in names))
    mapping = tuple(groups.index(frozenset(ranks[name])) for name in names)
    figures = {name: _figures(name, times) for name in names}
    stated = any(span.micro_batches > 1 for span in passes)
    how = "stated by the option count" if count else f"{STATED if stated else INFERRED}" if usual else "not known"
    if measured.coverage:
        least, most = (f"{float(share):.0%}" for share in measured.coverage)
        share = least if least == most else f"{least} to {most}"
        notes.append(f"Passes and updates with names take {share} of the time of a rank.")
    if measured.names:
        others = ", ".join(runs.show(name) for name, _ in measured.names.most_common(3))
        notes.append(
            f"Spans of other names are in no pass: {others}{' and others' if len(measured.names) > 3 else ''}."
        )
    known = _known(measured, placement, ranks, str(count or usual or "not known"), how)
    return Stages(measured.tool, figures, mapping, count or usual, tuple(notes), known, tuple(spans))


def _updates(spans: Sequence[Span]) -> list[tuple[tuple[int, str], Fraction]]:
    """Return the update of each step by its rank and stage: the sum of its spans, an optimizer for each chunk."""
    sums: dict[tuple[int, str, int], Fraction] = defaultdict(Fraction)
    for span in spans:
        if span.what == UPDATE:
            sums[span.rank, span.stage, span.step] += span.us - span.waited_us
    return [((rank, stage), us) for (rank, stage, _), us in sums.items()]


def _note_unlike(spans: Sequence[Span], notes: list[str]) -> None:
    """Add notes on spans that are in no median, and on waits and recomputations."""
    pairs = sum(span.what == OVERLAP for span in spans)
    if pairs:
        notes.append(
            f"{counted(pairs, 'overlapped pair')} of a forward and a backward pass are in no median, as their times "
            "cannot be told apart."
        )
    again = [span.recomputed_us / span.us for span in spans if span.recomputed_us]
    if again:
        notes.append(f"Backward passes are recomputation for {float(statistics.median(again)):.0%} of their time.")


def _known(
    measured: Measured, placement: Placement, ranks: Mapping[str, set[int]], count: str, how: str
) -> tuple[tuple[str, str, str, str, str], ...]:
    """Return a row for each file: its ranks, stages and micro-batches, and how they are known."""
    rows = []
    for file, of_file, ranked in measured.known[:_MOST_FILES]:
        stages = [number for number, name in enumerate(placement.names) if ranks[name] & {*of_file}]
        told = f"ranks {ranked}; stages {placement.how}; micro-batches {how}" if of_file else "facts alone"
        listed = enumerated_rows(stages, lambda number: placement.names[number]) if stages else "-"
        rows.append((file, enumerated_rows(of_file) if of_file else "-", listed, count, told))
    if (left := len(measured.known) - _MOST_FILES) > 0:
        rows.append((f"and {left} more", "", "", "", ""))
    return tuple(rows)


def _refuse_missing(names: Sequence[str], there: set[tuple[str, str]]) -> None:
    """Refuse stages without forward passes, and those without a backward pass that others have."""
    for name in names:
        if (name, FORWARD) not in there:
            raise FileError(f"expected forward passes of every stage, got none of stage {name}")
    for kind in BACKWARD:
        having = [name for name in names if (name, kind) in there]
        without = [name for name in names if name not in having]
        whole = [name for name in without if not {(name, other) for other in BACKWARD} & there]
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
