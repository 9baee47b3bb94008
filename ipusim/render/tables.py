"""Summaries as rows of text, for a terminal or a Markdown page; no drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipusim.analysis.summary import Summary
from ipusim.analysis.utilisation import IpuUse, ratio
from ipusim.units import format_seconds


@dataclass(frozen=True)
class Table:
    """A header and rows of as many cells, all text."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def summary_table(summary: Summary) -> Table:
    """Return the main numbers of a run: what, and how much."""
    found, rates = summary.bubble, summary.throughput
    last = f" (execution {summary.execution} of {summary.executions})" if summary.executions > 1 else ""
    rows = [
        ("schedule", summary.schedule),
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


def _replicas(summary: Summary) -> str:
    """Return how many replicas there are, and what summing up their gradients takes of each weight update."""
    cycles = summary.run_use[0].all_reduce_cycles // summary.executions
    reduced = f", all-reduce of gradients {_time(summary, cycles)} an update" if cycles else ""
    return f"{summary.replicas} of {len(summary.ipus) // summary.replicas} IPUs{reduced}"


def ipu_table(summary: Summary) -> Table:
    """Return how each IPU spends the makespan, in parts of it."""
    header: tuple[str, ...] = ("IPU", "stages", "compute", "exchange", "sync", "host I/O", "host wait", "sync wait")
    beside = any(use.overlapped_io_cycles for use in summary.pipeline_use)
    if beside:
        header += ("I/O tiles",)
    gathers = any(use.all_gather_cycles for use in summary.pipeline_use)
    if gathers:
        header += ("all-gather",)
    streams = any(use.remote_cycles for use in summary.pipeline_use)
    if streams:
        header += ("Streaming Memory",)

    def part(cycles: int) -> str:
        return _percent(ratio(cycles, summary.makespan_cycles))

    def row(use: IpuUse) -> tuple[str, ...]:
        return (
            str(use.ipu) if use.ipu == use.physical_ipu else f"{use.ipu} (on {use.physical_ipu})",
            ", ".join(summary.stages[stage] for stage in use.stages) or "none",
            part(use.compute_cycles),
            part(use.exchange_cycles),
            part(use.sync_cycles),
            part(use.host_transfer_cycles),
            part(use.host_wait_cycles),
            part(use.sync_wait_cycles),
            *((part(use.overlapped_io_cycles),) if beside else ()),
            *((part(use.all_gather_cycles),) if gathers else ()),
            *((part(use.remote_cycles),) if streams else ()),
        )

    return Table(
        "Time of each IPU",
        header,
        tuple(row(use) for use in summary.pipeline_use),
    )


def comparison_table(summaries: Sequence[Summary], refused: Sequence[tuple[str, str]] = ()) -> Table:
    """Return a row for each run, and one for each ``refused`` schedule: its name and why."""
    against = f"against {summaries[0].schedule}" if summaries else "against"
    header = ("schedule", "makespan (cycles)", "makespan", against, "bubble", "samples/s", "note")
    first = summaries[0].makespan_cycles if summaries else 0
    rows = [
        (
            summary.schedule,
            f"{summary.makespan_cycles:,}",
            _seconds(summary.seconds(summary.makespan_cycles)),
            f"{ratio(summary.makespan_cycles, first):.3g} x" if first else "-",
            _percent(summary.bubble.idle_fraction),
            f"{summary.throughput.samples_per_s:,.0f}",
            "",
        )
        for summary in summaries
    ]
    rows += [(name, "-", "-", "-", "-", "-", f"refused: {reason}") for name, reason in refused]
    return Table("Schedules on the same work", header, tuple(rows))


def _time(summary: Summary, cycles: int) -> str:
    return f"{cycles:,} cycles, {_seconds(summary.seconds(cycles))}"


def _seconds(seconds: float) -> str:
    return format_seconds(seconds)


def _percent(part: float) -> str:
    return f"{part:.1%}"
