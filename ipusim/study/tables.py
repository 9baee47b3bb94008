"""What the command line says beyond a Timeline's own numbers: learning, selection orders, routes, refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ipusim.hardware.system import System
from ipusim.render.tables import Table
from ipusim.study.orders import OrderReport, faster_order
from ipusim.study.run import Learning
from ipusim.units import format_bytes

#: Routes that a table of copies lists before it says how many more there are.
_MOST_ROUTES: Final = 40


def learning_table(learning: Learning) -> Table:
    """Return the mean loss of the first and the last step, what it compares with, and the evaluations."""
    rows = []
    if learning.losses:
        for step in sorted({learning.losses[0].step, learning.losses[-1].step}):
            rows.append((f"mean loss, step {step}", f"{learning.mean_loss(step):.4f}"))
    if learning.constant_loss is not None:
        rows.append(("loss of the best constant predictor", f"{learning.constant_loss:.4f}"))
    for step, evaluation in learning.evaluations:
        accuracy = "" if evaluation.accuracy is None else f", accuracy {evaluation.accuracy:.1%}"
        rows.append(
            (f"held-out data after {step} steps", f"loss {evaluation.loss:.4f}{accuracy}, {evaluation.samples} samples")
        )
    return Table("Learning", ("", ""), tuple(rows))


def order_table(reports: Sequence[OrderReport]) -> Table:
    """Return the selection orders, the routes of all copies in each, and the time of the merged copy."""
    rows = tuple(
        (
            f"{report.order}{' (used)' if report.used else ''}",
            " ".join(map(str, report.ipus)),
            f"{report.direct} of {len(report.routes)}",
            f"{report.longest}",
            f"{report.copy_cycles:,}",
        )
        for report in reports
    )
    return Table("Selection orders", ("order", "IPUs", "direct copies", "longest route", "merged copy"), rows)


def route_table(reports: Sequence[OrderReport]) -> Table:
    """Return the way of every tensor that crosses IPUs, under each selection order."""
    rows = [
        (
            f"{routes[0].source}→{routes[0].target}",
            "gradient" if routes[0].backward else "activations",
            format_bytes(routes[0].bytes),
            *("→".join(map(str, route.ipus)) for route in routes),
        )
        for routes in zip(*(report.routes for report in reports), strict=True)
    ]
    if len(rows) > _MOST_ROUTES:
        rows = [*rows[:_MOST_ROUTES], (f"and {len(rows) - _MOST_ROUTES} more", *("" for _ in range(2 + len(reports))))]
    header = ("stages", "tensor", "bytes", *(f"{report.order}{' (used)' * report.used}" for report in reports))
    return Table("Routes of the inter-IPU copies, in physical IPUs", header, tuple(rows))


def order_words(system: System, reports: tuple[OrderReport, ...]) -> str:
    """Return which selection order was taken and why, and which one would move the copies faster, if any."""
    words = f"Selection order {system.selection_order}: {system.order_reason}"
    best = faster_order(reports)
    if best is None:
        return words
    used = next(report for report in reports if report.used)
    return (
        f"{words} {best.order} would move this program's copies faster: {best.copy_cycles:,} cycles a merged copy "
        f"instead of {used.copy_cycles:,}."
    )
