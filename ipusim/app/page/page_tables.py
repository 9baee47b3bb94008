"""Make the tables of a page from a run folder's summary."""

from __future__ import annotations

from collections.abc import Iterator

from ipusim.api import pipelines
from ipusim.app.render.tables import Table
from ipusim.app.run_folder.stored import StoredRun
from ipusim.base.units import format_bytes


def folder_tables(run: StoredRun) -> Iterator[Table]:
    """Yield nonempty tables of stages, memory, options and selection orders.

    Raises KeyError, TypeError or ValueError for a malformed summary.
    """
    options = tuple((str(name), str(effect)) for name, effect in run.summary["options"].items())
    for table in (_stage_table(run), _memory_table(run), Table("Options", ("", ""), options), _order_table(run)):
        if table.rows:
            yield table


def _stage_table(run: StoredRun) -> Table:
    def rows() -> Iterator[tuple[str, ...]]:
        info, memory = run.timeline.info, run.summary["memory"]["stages"]
        for stage, (cycles, stash) in enumerate(zip(run.summary["stage_cycles"], memory, strict=True)):
            yield (
                info.stages[stage],
                " and ".join(
                    str(ipu) for ipu, stages in info.stages_of_ipu.items() if stage in stages and ipu < info.shards
                ),
                f"{cycles['forward_cycles']:,}",
                f"{cycles['backward_cycles']:,}",
                f"{stash['fifo_depth']}",
                f"{stash['most_micro_batches_kept']}",
                format_bytes(stash["kept_bytes"]),
            )

    header = ("stage", "IPU", "forward, cycles", "backward, cycles", "FIFO depth", "micro-batches kept", "bytes each")
    return Table("Stages", header, tuple(rows()))


def _memory_table(run: StoredRun) -> Table:
    ipus = run.summary["memory"]["ipus"]
    if not any(ipu["peak_bytes"] for ipu in ipus):
        return Table("Memory at each IPU's peak", (), ())
    holders = [holder for holder in pipelines.Holder if any(ipu["holders"][holder.key] for ipu in ipus)]
    rows = tuple(
        (
            f"{ipu['ipu']}",
            format_bytes(ipu["peak_bytes"]),
            str(ipu["peak_pass"]),
            f"{ipu['peak_cycle']:,}",
            *(format_bytes(ipu["holders"][holder.key]) for holder in holders),
        )
        for ipu in ipus
    )
    return Table(
        "Memory at each IPU's peak", ("IPU", "peak", "pass", "cycle", *(holder.short for holder in holders)), rows
    )


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
    header = ("order", "physical IPUs of IPU 0, 1, ...", "longest copy, cycles", "all copies of an execution, cycles")
    return Table("Selection orders", header, rows)
