"""Summaries as rows of text, for a terminal or a Markdown page; no drawing."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len

from ipusim.analysis.run_times import RunTimes
from ipusim.analysis.utilisation import IpuUse, ratio
from ipusim.timeline.kinds import USES
from ipusim.units import format_seconds

#: Characters between two columns of a drawn table, and on both of its sides together.
BETWEEN: Final = 3
SIDES: Final = 2
#: A number with its unit, as cells of tables have them.
_NUMBER: Final = re.compile(r"-|[+-]?[\d,.]+([ %][A-Za-zµ/%-]*)?|\d+ of \d+")
#: Text is broken into about so many lines, or lines of so many characters if these are fewer, but never within a word.
_LINES: Final = 3
_NARROWEST_TEXT: Final = 18


@dataclass(frozen=True)
class Table:
    """A header and rows of as many cells, all text."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def has_numbers(self, column: int) -> bool:
        """Return whether a column has numbers alone, which are written flush right; the first one has names."""
        return column > 0 and all(_NUMBER.fullmatch(row[column]) for row in self.rows if row[column])


@dataclass(frozen=True)
class Part:
    """A table that fits a terminal: ``widths`` are the characters of its columns."""

    table: Table
    widths: tuple[int, ...]


def fitted(table: Table, width: int) -> list[Part]:
    """Return ``table`` for a terminal of ``width`` characters, in several parts if it takes them.

    No column is left out, and no number or name in the first column is broken: first headers
    are broken into words, then text into lines, and then the columns into parts that
    all begin with the first column.
    """
    columns = range(len(table.header))
    cells = [max((cell_len(row[column]) for row in table.rows), default=0) for column in columns]
    least = [_least(table, column, cells[column]) for column in columns]
    groups: list[list[int]] = [[0]]
    for column in columns[1:]:
        if len(groups[-1]) > 1 and _drawn([least[each] for each in (*groups[-1], column)]) > width:
            groups.append([0])
        groups[-1].append(column)
    parts = []
    for number, group in enumerate(groups):
        widths = {column: max(cells[column], cell_len(table.header[column])) for column in group}
        while _drawn(widths.values()) > width:
            wide = [column for column in group if widths[column] > least[column]]
            if not wide:
                break
            widths[max(wide, key=lambda column: (widths[column] > cells[column], widths[column]))] -= 1
        rows = tuple(tuple(row[column] for column in group) for row in table.rows)
        title = f"{table.title} (continued)" if number else table.title
        parts.append(Part(Table(title, tuple(table.header[column] for column in group), rows), tuple(widths.values())))
    return parts


def _least(table: Table, column: int, cells: int) -> int:
    """Return the least width of a column whose widest cell has ``cells`` characters."""
    header = _longest_word(table.header[column])
    if column == 0 or table.has_numbers(column):
        return max(header, cells)
    words = max((_longest_word(row[column]) for row in table.rows), default=0)
    return max(header, words, min(cells // _LINES, _NARROWEST_TEXT))


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def _drawn(widths: Collection[int]) -> int:
    """Return the width of a drawn table of columns of ``widths``."""
    return sum(widths) + BETWEEN * (len(widths) - 1) + SIDES


def summary_table(summary: RunTimes) -> Table:
    """Return the main numbers of a run: what, and how much."""
    found, rates = summary.bubble, summary.throughput
    last = f" (execution {summary.execution} of {summary.executions})" if summary.executions > 1 else ""
    call = summary.run_use[0].cycles["host_call"] // summary.executions
    rows = [
        ("schedule", summary.order_and_sync),
        ("system", f"{summary.system}, {len(summary.ipus)} IPUs, selection order {summary.selection_order}"),
        *([("replicas", _replicas(summary))] if summary.replicas > 1 else []),
        (
            "effective batch size",
            f"{summary.micro_batch_size} x {summary.count}{f' x {summary.replicas}' * (summary.replicas > 1)} = "
            f"{rates.effective_batch_size} samples",
        ),
        (f"makespan{last}", _time(summary, summary.makespan_cycles)),
        *((f"  {phase.name}", _time(summary, phase.cycles)) for phase in summary.phases),
        ("pipeline and weight update", _time(summary, summary.execution_cycles)),
        *([("  host between session runs", _time(summary, call))] if call else []),
        ("utilisation", _percent(summary.utilisation)),
        ("bubble: idle / (IPUs x makespan)", _percent(found.idle_fraction)),
        ("bubble: (makespan - ideal) / ideal", _percent(found.overhead)),
        ("bubble: per rank, (cost - ideal) / cost", _percent(found.rank_cost_rate)),
        ("bubble: idle in each IPU's own span", _percent(found.span_idle_fraction)),
        ("throughput", f"{rates.samples_per_s:,.0f} samples/s, {rates.micro_batches_per_s:,.0f} micro-batches/s"),
        (
            "time per weight update" if summary.training else "time per execution",
            _seconds(rates.weight_update_period_s),
        ),
    ]
    if summary.idle_ipus:
        rows.append(("IPUs without a stage", ", ".join(map(str, summary.idle_ipus))))
    return Table(summary.name, ("", ""), tuple(rows))


def _replicas(summary: RunTimes) -> str:
    """Return how many replicas there are, and what summing up their gradients takes of each weight update."""
    cycles = summary.run_use[0].cycles["all_reduce"] // summary.executions
    reduced = f", all-reduce of gradients {_time(summary, cycles)} an update" if cycles else ""
    return f"{summary.replicas} of {len(summary.ipus) // summary.replicas} IPUs{reduced}"


def ipu_table(summary: RunTimes) -> Table:
    """Return how each IPU spends the makespan, in parts of it."""
    mode = "meets" if summary.sync.meets else "alone"
    shown = [use for use in sorted(USES, key=lambda use: use.place) if use.column]
    used = {use.name for use in shown if any(each.cycles[use.name] for each in summary.pipeline_use)}
    columns = [use for use in shown if mode in use.always or use.name in used]

    def part(cycles: int) -> str:
        return _percent(ratio(cycles, summary.makespan_cycles))

    def row(use: IpuUse) -> tuple[str, ...]:
        return (
            str(use.ipu) if use.ipu == use.physical_ipu else f"{use.ipu} (on {use.physical_ipu})",
            ", ".join(summary.stages[stage] for stage in use.stages) or "none",
            part(use.compute_cycles),
            *(part(use.cycles[column.name]) for column in columns),
        )

    return Table(
        "Time of each IPU",
        ("IPU", "stages", "compute", *(column.column for column in columns)),
        tuple(row(use) for use in summary.pipeline_use),
    )


def _time(summary: RunTimes, cycles: int) -> str:
    return f"{cycles:,} cycles, {_seconds(summary.seconds(cycles))}"


def _seconds(seconds: float) -> str:
    return format_seconds(seconds)


def _percent(part: float) -> str:
    return f"{part:.1%}"
