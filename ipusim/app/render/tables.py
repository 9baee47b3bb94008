"""Define tables of text, and summarise a run as tables, for a terminal or a Markdown page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ipusim.api import analysis, timelines
from ipusim.base.units import format_figure, format_seconds

#: Number with unit in a table's cell.
_NUMBER: Final = re.compile(r"-|(?:[-+]|± ?)?[\d,.]+(?:-[\d,.]+)?([ %][A-Za-zµ/%-]*)?|\d+ of \d+")


@dataclass(frozen=True)
class Table:
    """Table of text: title, header, and rows with a cell per header."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, title: str, rows: Iterable[Mapping[str, str]]) -> Table:
        """Build a table from rows that map each header to a cell; without rows it has no header."""
        lines = [*rows]
        return cls(title, tuple(lines[0]) if lines else (), tuple(tuple(line.values()) for line in lines))

    def has_numbers(self, column: int) -> bool:
        """Return whether a column holds only numbers, written flush right; the first holds names."""
        return column > 0 and all(_NUMBER.fullmatch(row[column]) for row in self.rows if row[column])


def text_of(value: Any) -> str:
    """Return a value as text; values other than text become JSON, which is valid YAML."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def summary_table(summary: analysis.RunTimes) -> Table:
    """Return the main figures of a run with their names."""
    idle_part, rates = summary.bubble, summary.throughput
    last = f" (execution {summary.execution} of {summary.executions})" if summary.executions > 1 else ""
    call = summary.run_use[0].cycles["host_call"] // summary.executions
    alike = (number for number in (summary.replicas, summary.hosts) if number > 1)
    factors = (summary.micro_batch_size, summary.count, *alike)
    rows = [
        ("schedule", summary.order_and_sync),
        ("system", f"{summary.system}, {len(summary.ipus)} IPUs, selection order {summary.selection_order}"),
        *([("replicas", _replicas(summary))] if summary.replicas > 1 else []),
        (
            "effective batch size",
            f"{' x '.join(map(str, factors))} = {rates.effective_batch_size} samples",
        ),
        (f"makespan{last}", _time(summary, summary.makespan_cycles)),
        *((f"  {phase.name}", _time(summary, phase.cycles)) for phase in summary.phases),
        ("pipeline and weight update", _time(summary, summary.execution_cycles)),
        *([("  host between session runs", _time(summary, call))] if call else []),
        ("utilisation", _percent(summary.utilisation)),
        ("bubble: idle / (IPUs x makespan)", _percent(idle_part.idle_fraction)),
        ("bubble: (makespan - most work of an IPU) / work", _percent(idle_part.overhead)),
        ("bubble: (longest span of an IPU - work) / span", _percent(idle_part.rank_cost_rate)),
        ("bubble: idle in each IPU's own span", _percent(idle_part.span_idle_fraction)),
        (
            "throughput",
            f"{rates.words}, {format_figure(rates.micro_batches_per_s)} micro-batches/s",
        ),
        (
            f"time per {summary.period}",
            format_seconds(rates.weight_update_period_s),
        ),
    ]
    if summary.idle_ipus:
        rows.append(("IPUs without a stage", ", ".join(map(str, summary.idle_ipus))))
    return Table(summary.name, ("", ""), tuple(rows))


def _replicas(summary: analysis.RunTimes) -> str:
    """Return the number of replicas, and the gradients' all-reduce time per weight update."""
    cycles = summary.run_use[0].cycles["all_reduce"] // summary.executions
    reduced = f", all-reduce of gradients {_time(summary, cycles)} an update" if cycles else ""
    return f"{summary.replicas} of {len(summary.ipus) // summary.replicas} IPUs{reduced}"


def ipu_table(summary: analysis.RunTimes) -> Table:
    """Return the use of each IPU's time, as shares of the makespan."""
    mode = "time_steps" if summary.sync.has_time_steps else "no_time_steps"
    uses = [use for use in sorted(timelines.USES, key=lambda use: use.rank) if use.column]
    used_names = {use.name for use in uses if any(ipu.cycles[use.name] for ipu in summary.pipeline_use)}
    columns = [use for use in uses if mode in use.sync_modes or use.name in used_names]
    # In point-to-point an IPU begins its weight update while passes still run on another IPU.
    updates = [
        0 if summary.sync.has_time_steps or not ipu.holds_stage else summary.makespan_cycles - sum(ipu.cycles.values())
        for ipu in summary.pipeline_use
    ]
    has_updates = any(updates)

    def part(cycles: int) -> str:
        return _percent(analysis.ratio(cycles, summary.makespan_cycles))

    def row(use: analysis.IpuUse, update: int) -> tuple[str, ...]:
        return (
            str(use.ipu),
            ", ".join(summary.stages[stage] for stage in use.stages) or "none",
            part(use.compute_cycles),
            *(part(use.cycles[column.name]) for column in columns),
            *([part(update)] if has_updates else []),
        )

    return Table(
        "Time of each IPU",
        ("IPU", "stages", "compute", *(column.column for column in columns), *(["weight update"] * has_updates)),
        tuple(map(row, summary.pipeline_use, updates)),
    )


def _time(summary: analysis.RunTimes, cycles: int) -> str:
    return f"{cycles:,} cycles, {format_seconds(summary.seconds(cycles))}"


def _percent(part: float) -> str:
    return f"{part:.1%}"
