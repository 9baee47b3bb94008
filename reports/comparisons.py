"""Pages that compare runs: schedules, their memory, and selection orders.

A selection order assigns a pipeline's IPUs to physical IPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import chain
from typing import Final

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

_SCHEDULES: Final = """\
# The schedules of Graphcore's tutorial

Compare here the times of the three schedules in Graphcore's tutorial: four stages, eight micro-batches, and a system
with free copies. `python -m reports` makes the page, with the comparison of this command:
"""
_MEMORY: Final = """\
# Memory by schedule

See here how the schedule decides whether a program fits, and how much time a schedule with less memory costs.
`python -m reports` makes the page, with the comparison of the command at its end.

Grouped is fastest, but its activations for backward passes do not fit. Interleaved keeps half as many micro-batches
and takes a little longer. Schedules that run one stage at a time keep one micro-batch and take twice as long.
"""
_ORDERS: Final = """\
# Selection orders

Choose a selection order for a pipeline here, and see why direct copies can lose. `python -m reports` makes the page,
with the comparisons of the commands below: 16 stages, with larger tensors behind even stages than behind odd stages,
and the largest, 2 MiB, behind stages 0 and 8. The picture shows routes and link loads on a C2 server:
"""
_LINKS: Final = """\
SNAKE and HOOF use only direct links. SNAKE crosses a rung behind each even stage and a rail behind each odd stage.
HOOF goes up one rail and down the other, with one rung behind stage 7. A merged copy takes as long as the link with the
most bytes for its width. On a C2 server a rung has four links and a rail two, so HOOF takes half again as long if large
tensors leave even stages. In IPU-Machines the two IPUs of a rung have less bandwidth than neighbours on a rail ([as
measured](micro_benchmarks.md)). So HOOF wins on a POD16, unless a large tensor crosses its rung. ZIGZAG reaches an even
stage through a third IPU, over a rail and over a rung without other traffic in this direction: the detour costs no more
than a hop.
"""


def schedules() -> str:
    """Compare the schedules of Graphcore's tutorial."""
    rows = compare(load_request(SCENARIOS / "schedules_four_ipus.yaml"), SCHEDULES)
    command = _command("schedules_four_ipus", f"--schedules {','.join(SCHEDULES)}")
    return f"{_SCHEDULES}\n{command}\n{_compared(Comparison(rows))}"


def memory() -> str:
    """Compare the memory of Graphcore's schedules."""
    picture = "![memory_by_schedule](memory_by_schedule-compared.png)"
    return f"{_MEMORY}\n{_compared(_by_schedule())}\n{picture}\n\n{_command('memory_by_schedule')}"


def memory_picture() -> bytes:
    """Draw the traces and memory of Graphcore's schedules, as PNG."""
    return to_png(comparison_chart(_by_schedule()))


def orders() -> str:
    """Compare selection orders of a 16-IPU pipeline on two machines, for three tensor sizes."""
    text = f"{_ORDERS}\n![selection_orders](selection_orders.png)\n\n"
    for system, machine in _MACHINES.items():
        change = [] if system == "c2_server" else [f"--set system.name={system}"]
        command = _command("selection_orders", f"--orders {','.join(ORDERS)}", *change)
        text += f"## On a {machine}\n\n{_compared(_by_order(system, None))}\n{command}\n"
    run = _by_order("c2_server", None).rows[1].result
    assert run is not None, "SNAKE runs"
    return (
        f"{text}## Why direct copies can lose\n\n{_LINKS}\n{table_markdown(_times())}\n"
        f"Routes of the copies on the C2 server, with the tensors of the scenario:\n\n"
        f"{table_markdown(order_table(run.summary.selection_orders))}"
    )


def _times() -> Table:
    """Return weight update times under each order, by the stages with large tensors."""
    rows = []
    for system, machine in _MACHINES.items():
        for words, size in (
            ("even stages", None),
            ("odd stages", _larger_after_odd),
            ("none, all are of 1 MiB", _equal_kib),
        ):
            result = _by_order(system, size)
            runs = [row.times for row in result.rows if row.times is not None]
            times = [format_seconds(run.throughput.weight_update_period_s) for run in runs]
            best_labels = [
                label for label, row in zip(result.labels, result.rows, strict=True) if _is_best(result, row)
            ]
            rows.append((machine, words, *times, " and ".join(best_labels)))
    return Table("", ("machine", "large tensors behind", *ORDERS, "best"), tuple(rows))


def _is_best(result: Comparison, row: Row) -> bool:
    return result.best is not None and result.cost(row) == result.cost(result.best)


def _larger_after_odd(stage: int) -> int:
    return 2048 if stage % 2 else 512


def _equal_kib(_: int) -> int:
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


def _compared(result: Comparison) -> str:
    """Return a comparison as printed by ``ipusim compare``: verdict and table."""
    words = chain(verdict(result), reasons(result) if any(row.memory for row in result.rows) else ())
    return "".join(f"{line}\n\n" for line in words) + table_markdown(comparison_table(result))


def _command(scenario: str, *words: str) -> str:
    return f"```console\n$ {' '.join([f'ipusim compare scenarios/{scenario}.yaml', *words])}\n```\n"
