"""The tables of a run's page, out of what its folder says."""

from __future__ import annotations

from collections.abc import Iterator

from ipusim.analysis.causes import IdleCauses
from ipusim.analysis.critical_path import PathPart, Rows, path_parts
from ipusim.pipeline.holders import Holder
from ipusim.render.tables import Table, ipu_table, summary_table
from ipusim.study.stored import StoredRun
from ipusim.timeline.timeline import NONE
from ipusim.units import format_bytes, format_seconds


def run_tables(run: StoredRun, causes: IdleCauses, path: Rows | None) -> tuple[Table, ...]:
    """Return all tables of a run that have rows, what matters most first.

    Raises KeyError, TypeError or ValueError for a summary that is not as a run writes it.
    """
    found = [
        summary_table(run.times),
        ipu_table(run.times),
        _cause_table(causes),
        _path_table(run, path),
        _stage_table(run),
        _memory_table(run),
        Table("Options", ("", ""), tuple((str(name), str(effect)) for name, effect in run.summary["options"].items())),
        _order_table(run),
    ]
    return tuple(table for table in found if table.rows)


def part_words(run: StoredRun, part: PathPart) -> str:
    """Return what a part of the critical path is: ``backward of dense1``."""
    of = f" of {run.timeline.info.stages[part.stage]}" if part.stage != NONE else ""
    return f"{part.kind.name.lower().replace('_', ' ')}{of}"


def _cause_table(causes: IdleCauses) -> Table:
    used = [number for number, cycles in enumerate(causes.cycles.sum(axis=0).tolist()) if cycles]
    rows = tuple(
        (f"{ipu}", *(f"{cycles / causes.window_cycles:.1%}" for cycles in (busy, *(idle[number] for number in used))))
        for ipu, (busy, idle) in enumerate(zip(causes.busy.tolist(), causes.cycles.tolist(), strict=True))
    )
    return Table(
        "Why IPUs are idle, over the whole run", ("IPU", "arithmetic", *(causes.causes[n] for n in used)), rows
    )


def _path_table(run: StoredRun, path: Rows | None) -> Table:
    def row(part: PathPart) -> tuple[str, ...]:
        kind = part.kind.name.lower().replace("_", " ")
        stage = run.timeline.info.stages[part.stage] if part.stage != NONE else ""
        cycles, seconds = part.cycles, part.cycles / run.timeline.info.clock_hz
        share = cycles / run.timeline.makespan_cycles
        return kind, stage, f"{part.spans:,}", f"{cycles:,}", format_seconds(seconds), f"{share:.1%}"

    header = ("kind", "stage", "spans", "cycles", "time", "of the run")
    rows = () if path is None else tuple(map(row, path_parts(run.timeline, path)))
    return Table("The critical path", header, rows)


def _stage_table(run: StoredRun) -> Table:
    def rows() -> Iterator[tuple[str, ...]]:
        info, memory = run.timeline.info, run.summary["memory"]["stages"]
        for stage, (cycles, kept) in enumerate(zip(run.summary["stage_cycles"], memory, strict=True)):
            yield (
                info.stages[stage],
                f"{info.mapping[stage]}",
                f"{cycles['forward_cycles']:,}",
                f"{cycles['backward_cycles']:,}",
                f"{kept['fifo_depth']}",
                f"{kept['most_micro_batches_kept']}",
                format_bytes(kept["kept_bytes"]),
            )

    header = ("stage", "IPU", "forward, cycles", "backward, cycles", "FIFO depth", "micro-batches kept", "each")
    return Table("Stages", header, tuple(rows()))


def _memory_table(run: StoredRun) -> Table:
    ipus = run.summary["memory"]["ipus"]
    if not any(ipu["peak_bytes"] for ipu in ipus):
        return Table("Memory at each IPU's peak", (), ())
    holders = [holder for holder in Holder if any(ipu["holders"][holder] for ipu in ipus)]
    rows = tuple(
        (
            f"{ipu['ipu']}",
            format_bytes(ipu["peak_bytes"]),
            str(ipu["peak_pass"]),
            f"{ipu['peak_cycle']:,}",
            *(format_bytes(ipu["holders"][holder]) for holder in holders),
        )
        for ipu in ipus
    )
    return Table("Memory at each IPU's peak", ("IPU", "peak", "pass", "cycle", *(each.short for each in holders)), rows)


def _order_table(run: StoredRun) -> Table:
    orders = run.summary["selection_orders"]
    rows = tuple(
        (
            f"{order['order']}{' (used)' if order['used'] else ''}",
            " ".join(map(str, order["ipus"])),
            f"{order['copy_cycles']:,}",
            f"{order['execution_cycles']:,}",
        )
        for order in orders
        if order["routes"]
    )
    header = ("order", "IPUs", "longest copy, cycles", "all of an execution, cycles")
    return Table("Selection orders", header, rows)
