"""Make the tables of a page from a run folder's summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    info, memory = run.timeline.info, run.summary["memory"]["stages"]

    def row(stage: int, cycles: Mapping[str, int], stash: Mapping[str, int]) -> dict[str, str]:
        ipus = (ipu for ipu, stages in info.stages_of_ipu.items() if stage in stages and ipu < info.shards)
        return {
            "stage": info.stages[stage],
            "IPU": " and ".join(map(str, ipus)),
            "forward, cycles": f"{cycles['forward_cycles']:,}",
            "backward, cycles": f"{cycles['backward_cycles']:,}",
            "FIFO depth": f"{stash['fifo_depth']}",
            "micro-batches kept": f"{stash['most_micro_batches_kept']}",
            "bytes each": format_bytes(stash["kept_bytes"]),
        }

    pairs = zip(run.summary["stage_cycles"], memory, strict=True)
    return Table.of("Stages", (row(stage, *pair) for stage, pair in enumerate(pairs)))


def _memory_table(run: StoredRun) -> Table:
    peaks = run.summary["memory"]["ipus"]
    ipus = peaks if any(ipu["peak_bytes"] for ipu in peaks) else ()
    holders = [holder for holder in pipelines.Holder if any(ipu["holders"][holder.key] for ipu in ipus)]
    rows = (
        {
            "IPU": f"{ipu['ipu']}",
            "peak": format_bytes(ipu["peak_bytes"]),
            "pass": str(ipu["peak_pass"]),
            "cycle": f"{ipu['peak_cycle']:,}",
            **{holder.short: format_bytes(ipu["holders"][holder.key]) for holder in holders},
        }
        for ipu in ipus
    )
    return Table.of("Memory at each IPU's peak", rows)


def _order_table(run: StoredRun) -> Table:
    rows = (
        {
            "order": f"{order['order']}{' (used)' if order['used'] else ''}",
            "physical IPUs of IPU 0, 1, ...": " ".join(map(str, order["ipus"])),
            "longest copy, cycles": f"{order['copy_cycles']:,}",
            "all copies of an execution, cycles": f"{order['execution_cycles']:,}",
        }
        for order in run.summary["selection_orders"]
        if order["routes"]
    )
    return Table.of("Selection orders", rows)
