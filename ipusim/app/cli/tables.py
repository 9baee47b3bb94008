"""Make tables and lines of the command line: expectations, learning, memory, selection orders, routes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ipusim.api import Timeline, analysis, pipelines
from ipusim.app.render.tables import Table
from ipusim.base.units import format_bytes

if TYPE_CHECKING:
    from ipusim.api import runs
    from ipusim.app.regression.expectations import Judgement

#: Maximum number of routes per table.
_MOST_ROUTES: Final = 40


def learning_table(learning: analysis.Learning) -> Table:
    """Return first and last mean losses, a constant predictor's loss, and the evaluations."""
    rows = []
    if learning.losses:
        for step in sorted({learning.losses[0].step, learning.losses[-1].step}):
            rows.append((f"mean loss, step {step}", f"{learning.mean_loss(step):.4f}"))
    if learning.diverged_at is not None:
        rows.append(("diverged", f"not finite from step {learning.diverged_at}: lower the learning rate"))
    if learning.constant_loss is not None:
        rows.append(("loss of the best constant predictor", f"{learning.constant_loss:.4f}"))
    for step, evaluation in learning.evaluations:
        accuracy = "" if evaluation.accuracy is None else f", accuracy {evaluation.accuracy:.1%}"
        text = f"loss {evaluation.loss:.4f}{accuracy}, {evaluation.samples} samples"
        rows.append((f"held-out data after step {step - 1}", text))
    return Table("Learning", ("", ""), tuple(rows))


def memory_table(fit: analysis.Fit, timeline: Timeline | None = None) -> Table:
    """Return the peak of each IPU, with its cycle if a Timeline is given."""
    size = fit.sram_bytes
    rows = (
        {
            "IPU": f"{peak.ipu}",
            "peak": format_bytes(peak.bytes),
            **({} if size is None else {f"of {format_bytes(size)}": f"{peak.bytes / size:.1%}"}),
            **({"too much by": format_bytes(excess) if excess else "-"} if fit.too_large else {}),
            "pass": peak.during,
            **({} if timeline is None else {"cycle": f"{analysis.moment(timeline, peak):,}"}),
        }
        for peak, excess in zip(fit.peaks, map(fit.excess_bytes, fit.peaks), strict=True)
    )
    return Table.of("Memory at each IPU's peak", rows)


def holder_table(fit: analysis.Fit) -> Table:
    """Return each IPU's memory at its peak by holder (weights, FIFOs and others), without empty holders."""
    holders = [holder for holder in pipelines.Holder if any(dict(peak.holders)[holder] for peak in fit.peaks)]
    rows = tuple(
        (f"{peak.ipu}", *(format_bytes(dict(peak.holders)[holder]) for holder in holders)) for peak in fit.peaks
    )
    return Table("Contents of each IPU's memory", ("IPU", *(holder.short for holder in holders)), rows)


def holder_words(fit: analysis.Fit) -> str:
    """Explain the less obvious columns of :func:`holder_table`."""
    words_of = {
        pipelines.Holder.FIFOS: "FIFOs: activations kept for their backward passes",
        pipelines.Holder.TEMPORARY: "products: temporary memory of products and convolutions",
        pipelines.Holder.LIVE: "live: activations and gradients of the running pass",
    }
    holders = {holder for peak in fit.peaks for holder, size in peak.holders if size}
    return "; ".join(words for holder, words in words_of.items() if holder in holders)


def order_table(reports: Sequence[analysis.OrderReport]) -> Table:
    """Return a row for each selection order: IPUs, routes of copies between stages, and cycles of copies."""
    rows = (
        {
            "order": f"{report.order}{' (used)' if report.used else ''}",
            "physical IPUs of IPU 0, 1, ...": " ".join(map(str, report.ipus)),
            "direct copies": f"{report.direct_routes} of {len(report.routes)}",
            "longest route, links": f"{report.most_links}",
            "longest copy, cycles": f"{report.copy_cycles:,}",
            "all copies of an execution, cycles": f"{report.execution_cycles:,}",
        }
        for report in reports
    )
    return Table.of("Selection orders", rows)


def route_table(reports: Sequence[analysis.OrderReport]) -> Table:
    """Return the route of each tensor that crosses IPUs, under each selection order."""
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


def expectation_lines(judgements: Sequence[Judgement], still_open: Sequence[runs.Expectation] = ()) -> Iterator[str]:
    """Yield a line per judged expectation, and a line per expectation that needs a run."""
    yield from map(str, judgements)
    yield from (f"open    {expectation.name}: {expectation.text}, known after a run" for expectation in still_open)
