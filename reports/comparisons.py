"""Pages that compare runs: schedules, their memory, and selection orders.

A selection order assigns a pipeline's IPUs to physical IPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import chain

from ipusim.app.cli.tables import order_table
from ipusim.app.compare.compare import Row, compare
from ipusim.app.compare.comparison import Comparison
from ipusim.app.compare.comparison_files import comparison_chart
from ipusim.app.compare.comparison_words import comparison_table, reasons, verdict
from ipusim.app.render.figures import to_png
from ipusim.app.render.tables import Table
from ipusim.app.scenario import load_request
from ipusim.app.study.result import table_markdown
from ipusim.base.units import format_seconds
from reports.gallery import ORDERS, SCENARIOS, SCHEDULES

_KIB = 1024
_MACHINES = {"c2_server": "C2 server", "pod16": "POD16"}


def schedules() -> str:
    """Compare the schedules shown in the tutorial's figures."""
    rows = compare(load_request(SCENARIOS / "schedules_four_ipus.yaml"), SCHEDULES)
    text = "# The schedules of the tutorial's figures\n\nFour stages, eight micro-batches, the free system.\n\n"
    return f"{text}{_compared(Comparison(rows))}"


def memory() -> str:
    """Compare the memory of Graphcore's schedules."""
    text = (
        "# Memory by schedule\n\nGrouped is fastest, and what it keeps for backward passes does not fit. Interleaved "
        "keeps half as many micro-batches and takes a little longer; one stage at a time keeps one, and takes twice as "
        "long.\n\n"
    )
    picture = "![memory_by_schedule](memory_by_schedule-compared.png)"
    return f"{text}{_compared(_by_schedule())}\n{picture}\n\n{_command('memory_by_schedule')}"


def memory_picture() -> bytes:
    """Draw the traces and memory of Graphcore's schedules, as PNG."""
    return to_png(comparison_chart(_by_schedule()))


def orders() -> str:
    """Compare selection orders of a 16-IPU pipeline on two machines, for three tensor sizes."""
    text = (
        "# Selection orders\n\nA pipeline of 16 stages under each order, whose large tensors leave even stages, "
        "2 MiB behind stages 0 and 8. On a C2 server, the routes of its copies and the load of each link:\n\n"
        "![selection_orders](selection_orders.png)\n\n"
    )
    for system, machine in _MACHINES.items():
        change = [] if system == "c2_server" else [f"--set system.name={system}"]
        command = _command("selection_orders", f"--orders {','.join(ORDERS)}", *change)
        text += f"## On a {machine}\n\n{_compared(_by_order(system, None))}\n{command}\n"
    run = _by_order("c2_server", None).rows[1].result
    assert run is not None, "SNAKE runs"
    return (
        f"{text}## Why direct copies can lose\n\nSNAKE and HOOF use direct links alone. SNAKE has a rung behind each "
        "even stage and a rail behind each odd one; HOOF goes up one rail and down the other, with one rung in the "
        "middle, behind stage 7. A merged copy takes as long as the link with the most to do for its width. On a C2 "
        "server a rung has four links and a rail two, so HOOF, all of it direct, is half again as slow where large "
        "tensors leave even stages. In IPU-Machines a rung's own two IPUs reach less than neighbours on a rail "
        "([as measured](micro_benchmarks.md)), and HOOF wins there, until a large tensor meets its rung. ZIGZAG goes "
        "from an odd stage to the next by way of a third IPU, over a rail and a rung that stands idle in that "
        f"direction: a detour costs no more than a hop.\n\n{table_markdown(_times())}\n"
        f"Where the copies go on the C2 server, with the scenario's own tensors:\n\n"
        f"{table_markdown(order_table(run.summary.selection_orders))}"
    )


def _times() -> Table:
    """Return weight update times under each order, by the stages with large tensors."""
    rows = []
    for system, machine in _MACHINES.items():
        for words, size in (("even stages", None), ("odd stages", _odd), ("none, all are of 1 MiB", _equal)):
            found = _by_order(system, size)
            runs = [row.times for row in found.rows if row.times is not None]
            times = [format_seconds(run.throughput.weight_update_period_s) for run in runs]
            bests = [label for label, row in zip(found.labels, found.rows, strict=True) if _as_good(found, row)]
            rows.append((machine, words, *times, " and ".join(bests)))
    return Table("", ("machine", "large tensors behind", *ORDERS, "best"), tuple(rows))


def _as_good(found: Comparison, row: Row) -> bool:
    return found.best is not None and found.cost(row) == found.cost(found.best)


def _odd(stage: int) -> int:
    return 2048 if stage % 2 else 512


def _equal(_: int) -> int:
    return 1024


@cache
def _by_schedule() -> Comparison:
    return Comparison(compare(load_request(SCENARIOS / "memory_by_schedule.yaml")))


@cache
def _by_order(system: str, kib: Callable[[int], int] | None) -> Comparison:
    """Compare selection orders on ``system``, with ``kib(stage)`` KiB after each stage."""
    request = load_request(SCENARIOS / "selection_orders.yaml", [f"system.name={system}"])
    last = len(request.options.pipeline.stages or ()) - 1
    if kib is not None:
        sizes = {f"pipeline.stages.{stage}.output_bytes": kib(stage) * _KIB for stage in range(last)}
        sizes |= {f"pipeline.stages.{stage + 1}.gradient_bytes": kib(stage) * _KIB for stage in range(last)}
        request = request.replace(sizes)
    return Comparison(compare(request, orders=ORDERS))


def _compared(found: Comparison) -> str:
    """Return a comparison as printed by ``ipusim compare``: verdict and table."""
    words = chain(verdict(found), reasons(found) if any(row.memory for row in found.rows) else ())
    return "".join(f"{line}\n\n" for line in words) + table_markdown(comparison_table(found))


def _command(scenario: str, *words: str) -> str:
    return f"```console\n$ {' '.join([f'ipusim compare scenarios/{scenario}.yaml', *words])}\n```\n"
