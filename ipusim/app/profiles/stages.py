"""Compute stages from spans on ranks: median times of passes, and stages that share an IPU."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ipusim.api import runs
from ipusim.app.profiles.names import BACKWARD, FORWARD, OVERLAP, PASSES, UPDATE
from ipusim.app.profiles.placement import placement_of
from ipusim.app.profiles.ranks import INFERRED, STATED, Measurement
from ipusim.app.profiles.spans import Span
from ipusim.app.profiles.steps import with_usual_count
from ipusim.base.errors import FileError
from ipusim.base.units import counted, enumerated_rows

#: Maximum number of span names in a message.
_MOST_NAMES: Final = 6
#: Maximum number of files in a table.
_MOST_FILES: Final = 16


@dataclass(frozen=True)
class PassTimes:
    """Statistics of a stage's pass or update: median, minimum and maximum in microseconds, number of measurements."""

    median: Fraction
    least: Fraction
    most: Fraction
    count: int


@dataclass(frozen=True)
class Stages:
    """Measured times of a pipeline.

    Attributes:
        tool: program that measured.
        stages: for each stage in order, by name or number: statistics by pass or update, in the order of PASSES.
        mapping: IPU of each stage; stages that share ranks share an IPU.
        count: micro-batches per weight update; None if unknown.
        notes: sentences for the user.
        sources: a row per file: its name, ranks, stages and micro-batches, and how these are known.
        spans: passes with stage names, and updates.
    """

    tool: str
    stages: Mapping[str, Mapping[str, PassTimes]]
    mapping: tuple[int, ...]
    count: int | None
    notes: tuple[str, ...] = ()
    sources: tuple[tuple[str, str, str, str, str], ...] = ()
    spans: tuple[Span, ...] = ()


def stages_of(measurement: Measurement, stages: int | None = None, count: int | None = None) -> Stages:
    """Return measured stages: stated by names, or else equal groups of ranks.

    A weight update is divided equally among the stages of its rank; several updates after the same passes count as one.
    Every pass on every rank of a stage is a measurement, so a replica counts like further passes.

    Args:
        measurement: spans of files.
        stages: number of stages; by default stated by files, otherwise the number of ranks.
        count: micro-batches per weight update; by default stated by files, or derived from names and updates.

    Raises OptionError for a number of stages that contradicts names or ranks, and FileError for missing ranks or
    stages, for passes of an unknown stage, for a stage without forward passes, and for a stage without backward passes
    if other stages have some.
    """
    try:
        return _stages_of(measurement, stages, count)
    except FileError as error:
        raise FileError(f"{measurement.files}: {error}") from None


def _stages_of(measurement: Measurement, stages: int | None, count: int | None) -> Stages:
    notes = [*measurement.notes]
    spans, usual_count = with_usual_count(measurement.spans, notes)
    passes = [span for span in spans if span.activity not in (UPDATE, OVERLAP)]
    if not passes:
        names_text = (
            ", ".join(map(runs.show, (name for name, _ in measurement.names.most_common(_MOST_NAMES)))) or "none"
        )
        pairs = "overlapped pairs" if any(span.activity == OVERLAP for span in spans) else "weight updates"
        reason = f"{pairs} alone" if spans else "none"
        if not spans and not measurement.names:
            raise FileError("expected passes, got no event with a name, a time and a length")
        raise FileError(
            f"expected passes, got {reason}; the longest spans of other names are {names_text}: name the passes with "
            "--name PASS=NAME, because some tools name none (torch's Schedule1F1B)"
        )
    names, stage_of, stages_source = placement_of(measurement, passes, stages)
    if len(names) > runs.MAX_STAGES:
        raise FileError(f"expected at most {runs.MAX_STAGES} stages, got {len(names)}")
    ranks: dict[str, set[int]] = {name: set() for name in names}
    times: dict[tuple[str, str], list[Fraction]] = defaultdict(list)
    for span in passes:
        span.stage = stage_of(span)
        ranks[span.stage].add(span.rank)
        times[span.stage, span.activity].append(span.pass_us)
    for (rank, stage), us in _updates(spans):
        rank_stages = [stage] if stage in ranks else [name for name in names if rank in ranks[name]]
        for name in rank_stages:
            times[name, UPDATE].append(us / len(rank_stages))
    _refuse_missing(names, set(times))
    _note_unused_spans(spans, notes)
    groups = list(dict.fromkeys(frozenset(ranks[name]) for name in names))
    mapping = tuple(groups.index(frozenset(ranks[name])) for name in names)
    figures = {name: _figures(name, times) for name in names}
    source = STATED if any(span.micro_batches > 1 for span in passes) else INFERRED
    if count or not usual_count:
        source = "stated by the option count" if count else "not known"
    if measurement.coverage:
        least, most = (f"{float(share):.0%}" for share in measurement.coverage)
        share = least if least == most else f"{least} to {most}"
        notes.append(f"Passes and updates with names take {share} of the time of a rank.")
    if measurement.names:
        names_text = ", ".join(runs.show(name) for name, _ in measurement.names.most_common(3))
        notes.append(
            f"Spans of other names are in no pass: {names_text}{' and others' if len(measurement.names) > 3 else ''}."
        )
    words = f"stages {stages_source}; micro-batches {source}"
    sources = _sources(measurement, ranks, str(count or usual_count or "not known"), words)
    return Stages(measurement.tool, figures, mapping, count or usual_count, tuple(notes), sources, tuple(spans))


def _updates(spans: Sequence[Span]) -> list[tuple[tuple[int, str], Fraction]]:
    """Return updates by step, rank and stage, summed over optimizers of chunks."""
    sums: dict[tuple[int, str, int], Fraction] = defaultdict(Fraction)
    for span in spans:
        if span.activity == UPDATE:
            sums[span.rank, span.stage, span.step] += span.us - span.subtracted_us
    return [((rank, stage), us) for (rank, stage, _), us in sums.items()]


def _note_unused_spans(spans: Sequence[Span], notes: list[str]) -> None:
    """Add notes on overlapped pairs (excluded from medians) and on recomputation."""
    pairs = sum(span.activity == OVERLAP for span in spans)
    if pairs:
        notes.append(
            f"{counted(pairs, 'overlapped pair')} of a forward and a backward pass are in no median, because their "
            "times cannot be separated."
        )
    shares = [span.recomputed_us / span.us for span in spans if span.recomputed_us]
    if shares:
        notes.append(f"Recomputation takes {float(statistics.median(shares)):.0%} of the time of backward passes.")


def _sources(
    measurement: Measurement, ranks: Mapping[str, set[int]], count: str, source: str
) -> tuple[tuple[str, str, str, str, str], ...]:
    """Return a row for every file: ranks, stages, micro-batches, and their sources."""
    rows, names = [], list(ranks)
    for file, ranks_of_file, ranks_text in measurement.sources[:_MOST_FILES]:
        stages = [number for number, name in enumerate(names) if ranks[name] & {*ranks_of_file}]
        words = f"ranks {ranks_text}; {source}" if ranks_of_file else "facts alone"
        stages_text = enumerated_rows(stages, names.__getitem__) if stages else "-"
        rows.append((file, enumerated_rows(ranks_of_file) if ranks_of_file else "-", stages_text, count, words))
    if (more_files := len(measurement.sources) - _MOST_FILES) > 0:
        rows.append((f"and {more_files} more", "", "", "", ""))
    return tuple(rows)


def _refuse_missing(names: Sequence[str], times: set[tuple[str, str]]) -> None:
    """Refuse stages without forward passes, or without backward passes if other stages have some."""
    for name in names:
        if (name, FORWARD) not in times:
            raise FileError(f"expected forward passes of every stage, got none of stage {name}")
    for kind in BACKWARD:
        present = [name for name in names if (name, kind) in times]
        absent = [name for name in names if name not in present]
        lacking = [name for name in absent if not {(name, backward) for backward in BACKWARD} & times]
        if present and lacking:
            raise FileError(
                f"expected backward passes of every stage, because stage {present[0]} has some, "
                f"got none of stage {lacking[0]}"
            )


def _figures(name: str, times: Mapping[tuple[str, str], Sequence[Fraction]]) -> dict[str, PassTimes]:
    """Return a stage's statistics by pass and update."""
    return {
        kind: PassTimes(statistics.median(values), min(values), max(values), len(values))
        for kind in PASSES
        if (values := times.get((name, kind)))
    }
