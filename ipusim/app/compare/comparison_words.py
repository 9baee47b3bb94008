"""Describe a comparison in sentences and a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ipusim.api import analysis, pipelines, timelines
from ipusim.app.compare.compare import Row
from ipusim.app.compare.comparison import Comparison
from ipusim.app.render.tables import Table
from ipusim.base.units import counted, enumerated, format_bytes, format_seconds

#: Minimum difference printed as a percentage without decimals.
_LEAST_WHOLE_PERCENTAGE: Final = 1.0
#: Minimum ratio printed without decimals.
_LEAST_WHOLE_MULTIPLE: Final = 10.0
#: Maximum difference printed with two decimals.
_MOST_TWO_DECIMALS: Final = 0.01
#: Smallest share printed with a nonzero decimal.
_LEAST_SHOWN_SHARE: Final = 0.00005
#: Minimum ratio printed as a multiple instead of a percentage.
_LEAST_MULTIPLE: Final = 10.0
#: Slowdowns closer than this value tie.
_TIE_TOLERANCE: Final = 5e-4
#: Maximum number of front runs named in a sentence.
_MOST_RUNS: Final = 4
#: First columns of a table.
_FIRST_COLUMNS: Final = ("time_per_weight_update", "throughput")
#: Number of columns before the difference to the first run.
_COLUMNS_BEFORE_DIFFERENCE: Final = 2
#: Number of columns before the slow-down.
_COLUMNS_BEFORE_SLOWDOWN: Final = 4


def verdict(comparison: Comparison) -> Iterator[str]:
    """Yield the verdict: best rows, faster rows out of memory, and the trade-off front.

    Args:
        comparison: the rows.

    Yields:
        Sentences.
    """
    yield from _sync_words(comparison)
    for group in comparison.groups:
        yield from _verdict_of_mode(group)
    if note := pipelines.idealised(row.sync for row in comparison.completed):
        yield f"{note} So each run is compared only with runs of its sync mode."
        if any(len(group.completed) == 1 for group in comparison.groups):
            yield "To compare all runs in one mode, use `--sync lock_step`, in Python `syncs`."
    yield from _what_decides(comparison)
    for group in comparison.groups:
        yield from _disturbance_words(group)
        yield from _front_words(group)


def _sync_words(comparison: Comparison) -> Iterator[str]:
    """Yield a sentence on the sync mode, if the scenario itself runs in another mode."""
    sync, given_sync = comparison.rows[0].sync, comparison.rows[0].given_sync
    if given_sync not in (None, sync) and all(
        (row.sync, row.given_sync) == (sync, given_sync) for row in comparison.rows
    ):
        yield (
            f"Sync mode: {sync.words}, the default of these schedules. The scenario {comparison.title} "
            f"itself uses {given_sync.words}; --sync {given_sync} compares in that mode."
        )


def _verdict_of_mode(group: Comparison) -> Iterator[str]:
    if group.best is None and any(row.can_be_best for row in group.completed):
        yield f"None of them{_mode(group)} that fits its IPUs has a throughput."
        return
    if group.best is None:
        fastest = group.in_order(group.completed)[0]
        name, figures = _title_of(group, fastest), _figure_text(group, fastest)
        yield f"None of them{_mode(group)} fits its IPUs. The fastest is {name}: {figures}."
        return
    yield _best_words(group, group.best)
    for row in _faster_but_too_large(group):
        advantage = f"{_title_of(group, row)}{_mode(group)} {_advantage_if_fitting(group, row, group.best)}"
        yield f"{advantage}, but {_memory_verdict(row)}"


def _mode(group: Comparison) -> str:
    """Return a group's sync mode after a space; empty if only a single mode is compared."""
    return "" if group.enclosing is None else f" in {group.rows[0].sync.words}"


def reasons(comparison: Comparison) -> Iterator[str]:
    """Yield why rows are refused or do not fit, and remarks on unknowns. Rows named by the verdict are left out."""
    faster = [row for group in comparison.groups for row in _faster_but_too_large(group)]
    for row in comparison.rows:
        if row.times is None:
            yield f"{_title_of(comparison, row)}: refused: {row.refusal}"
        elif not row.can_be_best and row not in faster:
            yield f"{_title_of(comparison, row)}: {_memory_verdict(row)}"
        elif not comparison.is_ranked(row):
            yield f"{_title_of(comparison, row)}: the run takes no time, so it has no throughput to compare."
        if row.folder_run is not None and row.folder_run.version_note:
            yield f"{_title_of(comparison, row)}: {row.folder_run.version_note}"
        if row.note:
            yield f"{_title_of(comparison, row)}: {row.note}"
        for remark in row.waterfall.remarks() if row.waterfall else ():
            yield f"{_title_of(comparison, row)}: {remark}"
    for error in sorted({row.throughput_error for row in comparison.completed} - {""}):
        rows = [row for row in comparison.completed if row.throughput_error == error]
        runs_text = (
            ""
            if len(rows) == len(comparison.completed)
            else f" of {enumerated(_title_of(comparison, row) for row in rows)}"
        )
        yield f"Error of throughputs{runs_text}: {error}."
    if all(row.memory is None for row in comparison.rows):
        is_single = len({row.source for row in comparison.rows}) == 1
        reason = (
            "the scenario states no memory of its stages"
            if is_single
            else "no scenario states the memory of its stages"
        )
        yield f"Memory: {analysis.Fits.UNKNOWN}: {reason}."
        if len({row.schedule for row in comparison.rows}) > 1:
            kept_counts = [(comparison.label(row), row.micro_batches_kept) for row in comparison.completed]
            if None not in {most for _, most in kept_counts}:
                most_kept = enumerated(f"{label} {most}" for label, most in kept_counts)
                yield f"Most micro-batches that a stage keeps for its backward passes: {most_kept}."
                if comparison.kept_differ:
                    yield f"These numbers are no measure of memory, because {' and '.join(comparison.kept_differ)}."


def ties(comparison: Comparison) -> Iterator[str]:
    """Yield runs as fast as the best: equal peak memory first, then larger peaks."""
    for larger in (False, True):
        rows = [row for row in comparison.equally_fast if comparison.needs_more_memory(row) == larger]
        if rows:
            clause = f", which {_more_memory(comparison, rows)}" if larger else ""
            yield f"as fast as {enumerated(map(comparison.label, rows), _MOST_RUNS)}{clause}"


def _more_memory(comparison: Comparison, rows: Sequence[Row]) -> str:
    """Return what rows need more than the best; the number of bytes if the table shows equal memory."""
    ending = "s" * (len(rows) == 1)
    if comparison.counts_micro_batches:
        return f"keep{ending} more micro-batches"
    needs = [comparison.memory_need(row) or 0 for row in (*rows, comparison.best) if row is not None]
    if len(rows) == 1 and len({*map(format_bytes, needs)}) == 1:
        return f"holds {format_bytes(needs[0] - needs[1])} more memory"
    return f"hold{ending} more memory"


def _what_decides(comparison: Comparison) -> Iterator[str]:
    """Yield why throughput decides, and the numbers of IPUs if they differ."""
    samples = sorted({work.samples for work in comparison.work})
    causes = []
    if len(samples) > 1:
        causes.append(f"work per weight update differs, from {samples[0]:,} to {samples[-1]:,} samples")
    if len({work.training for work in comparison.work}) > 1:
        causes.append("some runs train, and others do not")
    if comparison.models_differ:
        causes.append("models differ, so a sample is different work")
    if causes:
        text = "; ".join(causes)
        yield f"{text[0].upper()}{text[1:]}: throughput decides, in samples/s."
    ipus = sorted({_ipu_count(row.times) for row in comparison.completed if row.times is not None})
    if len(ipus) > 1:
        yield f"The runs are on {enumerated(ipus)} IPUs."


def _best_words(comparison: Comparison, best: Row) -> str:
    """Return the sentence on the best run: ties, lead over the next, lead over the first."""
    as_fast = comparison.equally_fast
    slower = [
        row
        for row in comparison.in_order(comparison.completed)
        if row.can_be_best and comparison.is_ranked(row) and row not in (best, *as_fast)
    ]
    runners_up = [row for row in slower if comparison.cost(row) == comparison.cost(slower[0])]
    words = list(ties(comparison))
    if runners_up:
        labels = [comparison.label(row) for row in runners_up]
        words.append(f"{_by_how_much(comparison, best, runners_up[0])} the next, {enumerated(labels, _MOST_RUNS)}")
    first = comparison.first_completed
    if comparison.is_ranked(first) and first not in (best, *as_fast, *runners_up):
        misfit = "" if first.can_be_best else ", which does not fit"
        row_text = f"the first row{' that ran' * (first is not comparison.rows[0])}"
        row_text += " of this mode" if comparison.enclosing is not None else ""
        words.append(f"{_by_how_much(comparison, best, first)} {row_text}, {comparison.label(first)}{misfit}")
    has_refusals = any(row.times is None for row in comparison.rows)
    group = (
        " of the runs that fit"
        if any(row.memory and not analysis.fits_or_unknown(row.fits) for row in comparison.rows)
        else ""
    )
    group = group or (" of those that run" if has_refusals else "")
    text = f"Best{_mode(comparison)}{group}: {_title_of(comparison, best)}, {_figure_text(comparison, best)}"
    return f"{'; '.join([text, ', and '.join(words)]) if words else text}."


def _faster_but_too_large(comparison: Comparison) -> list[Row]:
    """Return the rows that do not fit but beat the best, fastest first."""
    best = comparison.best
    return [
        row
        for row in comparison.in_order(comparison.completed)
        if best and not row.can_be_best and comparison.cost(row) < comparison.cost(best)
    ]


def _slowdown(row: Row) -> float | None:
    """Return slow-down S of a row: time over undisturbed time. None without disturbances, or if unknown."""
    if row.waterfall is None or not row.has_disturbances:
        return None
    cycles = row.waterfall.run_cycles
    return analysis.slowdown(cycles, cycles - row.waterfall.cycles.get(timelines.TimePart.DISTURBANCES, 0))


def _disturbance_words(comparison: Comparison) -> Iterator[str]:
    """Yield the run with the cheapest disturbances, if several runs are disturbed."""
    slowdowns = {row: slowdown for row in comparison.completed if (slowdown := _slowdown(row)) is not None}
    if len(slowdowns) > 1:
        least = min(slowdowns.values())
        best = [comparison.label(row) for row, slowdown in slowdowns.items() if slowdown - least < _TIE_TOLERANCE]
        tie = f" (as in {counted(len(best) - 1, 'other run')})" if len(best) > 1 else ""
        run = f"{best[0]}{tie}"
        mode = f"{_mode(comparison).strip().capitalize()}, disturbances" if _mode(comparison) else "Disturbances"
        yield f"{mode} cost least in {run}: S = {least:.3f}, the ratio of times with and without disturbances."


def _front_words(comparison: Comparison) -> Iterator[str]:
    """Yield the trade-off front of time and memory for runs with different times."""
    rows = comparison.in_order(comparison.front)
    if rows and comparison.cost(rows[0]) < comparison.cost(rows[-1]):
        texts = [f"{comparison.label(row)} ({_figure_text(comparison, row, short=True)}, {_peak(row)})" for row in rows]
        trade_offs = f"Best trade-offs of time and memory{_mode(comparison)} (the front)"
        listed = enumerated(texts, _MOST_RUNS)
        yield f"{trade_offs}: {listed}. Each of these runs needs less memory than every faster run."


def comparison_table(comparison: Comparison) -> Table:
    """Return a table with a row for every run; reasons for refusals are in the verdict."""
    periods = {row.times.period for row in comparison.completed if row.times is not None}
    time = f"time per {periods.pop() if len(periods) == 1 else 'update or execution'}"
    several = len({_ipus(row) for row in comparison.completed}) > 1
    slowdowns = [_slowdown(row) for row in comparison.rows]
    disturbed = any(slowdown is not None for slowdown in slowdowns)
    figures = [figure for figure in analysis.FIGURES if figure.in_tables]
    figures = [figure for figure in figures if any(figure.name in row.figures for row in comparison.rows)]
    figures.sort(key=lambda figure: figure.name not in _FIRST_COLUMNS)
    header = [time, *(figure.head for figure in figures[1:])]
    header.insert(
        _COLUMNS_BEFORE_DIFFERENCE, "against the first" if comparison.is_by_time else "samples/s against the first"
    )
    header[_COLUMNS_BEFORE_SLOWDOWN:_COLUMNS_BEFORE_SLOWDOWN] = ["S"] if disturbed else []
    rows = []
    for row, label, slowdown in zip(comparison.rows, comparison.labels, slowdowns, strict=True):
        cells = [figure.cell(row.figures.get(figure.name)) for figure in figures]
        cells.insert(_COLUMNS_BEFORE_DIFFERENCE, signed_text(comparison.to_first(row)))
        cells[_COLUMNS_BEFORE_SLOWDOWN:_COLUMNS_BEFORE_SLOWDOWN] = (
            ["-" if slowdown is None else f"{slowdown:.3f}"] if disturbed else []
        )
        rows.append((label, *([_ipus(row)] if several else []), *cells, mark(comparison, row)))
    title = " ".join(filter(None, [f"Comparison of {comparison.title}", comparison.common]))
    if len(comparison.groups) == 1 and comparison.first_completed is not comparison.rows[0]:
        title += f"; the first that ran is {comparison.label(comparison.first_completed)}"
    return Table(title, ("run", *(["IPUs"] if several else []), *header, "mark"), tuple(rows))


def _ipus(row: Row) -> str:
    """Return a row's number of IPUs as text."""
    return "-" if row.times is None else str(_ipu_count(row.times))


def _ipu_count(times: analysis.RunTimes) -> int:
    """Return the number of IPUs of a run, over every host."""
    return len(times.ipus) * times.hosts


def mark(comparison: Comparison, row: Row) -> str:
    """Return a row's mark in tables and pictures: ``best, front``, ``does not fit``."""
    if row.times is None:
        return "refused"
    if not row.can_be_best:
        return str(row.fits)
    front = comparison.group(row).front
    words = ["best"] if row in comparison.best_rows else []
    words += ["front"] if row in front and len(front) > 1 else []
    has_memory = any(row_of_all.memory is not None for row_of_all in comparison.rows)
    return ", ".join(words) or (str(row.fits) if has_memory else "")


def signed_text(part: float | None) -> str:
    """Return a difference in percent, or as a multiple from 10 up: ``+21.2%``, ``61.4 x``; ``-`` for None."""
    if part is None:
        return "-"
    if 1 + part >= _LEAST_MULTIPLE:
        return f"{_multiple_text(1 + part)} x"
    return f"{'+' if part > 0 else '-' if part else ''}{_percent(abs(part))}"


def _percent(part: float) -> str:
    """Return a percentage: whole from 100 % up, two decimals below 1 %, ``under 0.01%`` instead of zeros."""
    if not part:
        return "0%"
    if part < _LEAST_SHOWN_SHARE:
        return "under 0.01%"
    return (
        f"{part:,.0%}"
        if part >= _LEAST_WHOLE_PERCENTAGE
        else f"{part:.1%}"
        if part >= _MOST_TWO_DECIMALS
        else f"{part:.2%}"
    )


def _by_how_much(comparison: Comparison, row: Row, reference: Row) -> str:
    """Return the lead of a row over another, to be followed by its name."""
    mine, theirs = comparison.cost(row), comparison.cost(reference)
    if mine == theirs:
        return "as fast as"
    if comparison.is_by_time:
        less = f"{_percent(abs(1 - mine / theirs))} " if theirs else ""
        return f"{less}{'less' if mine < theirs else 'more'} time than"
    ratio = theirs / mine
    if ratio >= _LEAST_MULTIPLE:
        return f"{_multiple_text(ratio)} times the samples/s of"
    return f"{_percent(abs(ratio - 1))} {'more' if mine < theirs else 'fewer'} samples/s than"


def _advantage_if_fitting(comparison: Comparison, row: Row, best: Row) -> str:
    """Return the advantage of a row over the best, if it fitted."""
    if comparison.is_by_time:
        return f"would take {_percent(1 - comparison.cost(row) / comparison.cost(best))} less time than the best"
    return f"would have {_percent(comparison.cost(best) / comparison.cost(row) - 1)} more samples/s than the best"


def time_words(comparison: Comparison) -> str:
    """Return the name of the deciding time: ``time per weight update, in lock-step``."""
    unit = "sample" if not comparison.is_by_time else "weight update" if comparison.work[0].training else "execution"
    remark = "each sync mode by itself" if len(comparison.groups) > 1 else ""
    return ", ".join(filter(None, [f"time per {unit}", comparison.common, remark]))


def row_words(comparison: Comparison, row: Row) -> str:
    """Return the text after a run's bar: time, difference to the first run, peak memory, mark."""
    if row.times is None:
        return mark(comparison, row)
    if not comparison.is_ranked(row):
        return ", ".join(filter(None, [_figure_text(comparison, row), mark(comparison, row)]))
    unit = "" if comparison.is_by_time else " samples/s"  # shorter bars mean more samples/s
    difference = (
        "reference" if row is comparison.group(row).first_completed else signed_text(comparison.to_first(row)) + unit
    )
    words = [
        format_seconds(comparison.cost(row)).replace("us", "µs"),
        difference,
        "" if row.memory is None else _peak(row),
    ]
    return ", ".join(filter(None, [*words, mark(comparison, row)]))


def _figure_text(comparison: Comparison, row: Row, *, short: bool = False) -> str:
    """Return the deciding measure with its unit."""
    assert row.times is not None, "only rows that ran have times"
    rates = row.times.throughput
    if not comparison.is_by_time:
        return rates.words
    per = "" if short else f" per {row.times.period}"
    return f"{format_seconds(rates.weight_update_period_s)}{per}"


def _title_of(comparison: Comparison, row: Row) -> str:
    """Return a row's title, with schedule and sync mode in brackets after the name of a run."""
    title, label = comparison.titles[comparison.rows.index(row)], comparison.label(row)
    details = title.removeprefix(f"{label}, ")
    return title if details == title else f"{label} ({details})"


def _multiple_text(number: float) -> str:
    return f"{number:,.0f}" if number >= _LEAST_WHOLE_MULTIPLE else f"{number:.3g}"


def _peak(row: Row) -> str:
    return analysis.figure("peak").cell(row.figures.get("peak"))


def _memory_verdict(row: Row) -> str:
    return row.memory.verdict.removeprefix("Memory: ") if row.memory else ""
