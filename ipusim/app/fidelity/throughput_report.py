"""What is printed and drawn of published throughputs and what is simulated of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Final

from ipusim.api import hardware
from ipusim.app.fidelity.spread import spread
from ipusim.app.fidelity.throughput_rows import COLUMNS, ThroughputRow
from ipusim.app.fidelity.throughputs import Prepared, SimulatedRow, fitted_hosts, host_sensitivity, sensitivities
from ipusim.app.render.figures import to_png
from ipusim.app.render.tables import Table
from ipusim.app.render.throughputs import ThroughputPoint, throughput_chart
from ipusim.base.units import format_figure

_FRAMEWORKS: Final = {
    "popart": "PopART",
    "tensorflow1": "TensorFlow 1",
    "tensorflow2": "TensorFlow 2",
    "pytorch": "PyTorch",
    "": "no framework",
}

_USES: Final = {"held": "", "fitted": "fits host", "incomplete": "lacks a part", "small": "small network"}


def verdict(rows: Sequence[SimulatedRow]) -> str:
    """Return in a sentence how far off the simulation is, in others for models that lack a part and small networks."""
    held = _of(rows, "held")
    what = " that nothing was fitted to" if _of(rows, "fitted") else ""
    text = f"Throughputs of whole trainings: {_how_far(held or rows, f'{what},')}."
    for use, of in (("incomplete", "models that lack a part"), ("small", "small networks")):
        if held and (more := _of(rows, use)):
            text += f" {_how_far(more, f' more, of {of}:')}."
    return text


def _of(rows: Sequence[SimulatedRow], use: str) -> list[SimulatedRow]:
    return [row for row in rows if row.row.use == use]


def _how_far(rows: Sequence[SimulatedRow], what: str) -> str:
    number, mean, most = spread(row.error for row in rows)
    worst = max(rows, key=lambda each: abs(each.error))
    direction = "fast" if worst.error > 0 else "slow"
    return f"{number}{what} {mean} off on average, {most} at worst ({row_name(worst.row)}, too {direction})"


def throughput_table(rows: Sequence[SimulatedRow]) -> Table:
    """Return published, simulated and error of every row, and what a weight update is made of."""
    with_unseen = any(each.unseen_error is not None for each in rows)
    header = ("model", "framework", "system", "IPUs", "count", "published", "simulated", "error")
    header += (*(("left out",) if with_unseen else ()), "micro-batch", "use")
    body = []
    for each in rows:
        row = each.row
        unseen = "" if each.unseen_error is None else f"{each.unseen_error:+.1%}"
        body.append(
            (
                row.model,
                _FRAMEWORKS[row.framework],
                row.machine,
                str(row.ipus),
                str(row.count),
                format_figure(row.items_per_s, 4),
                format_figure(each.items_per_s, 4),
                f"{each.error:+.1%}",
                *((unseen,) if with_unseen else ()),
                f"{each.time.micro_batch * 1e3:.3f} ms",
                ", ".join(filter(None, (_USES[row.use], "" if each.fits else "does not fit"))),
            )
        )
    return Table("Throughputs in items a second, published and simulated", header, tuple(body))


def throughput_error_table(rows: Sequence[SimulatedRow]) -> Table:
    """Return mean and worst error of all rows, of those that were fitted and not, and by model."""
    groups = {"all": rows}
    if fitted := _of(rows, "fitted"):
        groups |= {
            "held": _of(rows, "held"),
            "fitted, for the host's time alone": fitted,
            "of models that lack a part": _of(rows, "incomplete"),
            "of small networks": _of(rows, "small"),
        }
    for model in dict.fromkeys(row.row.model for row in rows):
        groups[model] = [row for row in rows if row.row.model == model]
    body = [(name, *spread(each.error for each in of)) for name, of in groups.items() if of]
    return Table("Errors of throughputs, whatever their sign", ("rows", "number", "mean", "worst"), tuple(body))


def sensitivity_table(prepared: Sequence[Prepared]) -> Table:
    """Return what one per cent of each rate does to a throughput, and its value and what is plausible.

    The throughput is the first row's, and of the rate of another framework's host the first row of that.
    """
    first_of = {each.row.framework: each for each in reversed(prepared)}
    found = {name: (prepared[0], share) for name, share in sensitivities(prepared[0]).items()}
    for framework, each in first_of.items():
        if framework not in ("", prepared[0].row.framework):
            found[f"{framework}_host_ns"] = each, host_sensitivity(each)
    rows = []
    for rate in hardware.RATES:
        if rate.attribute in found:
            of, share = found[rate.attribute]
            value = getattr(of.rates, rate.attribute)
            kind = "fitted" if rate.is_fitted else "assumed" if rate.source.startswith("assumed") else "published"
            edge = " (at its edge)" if rate.is_fitted and rate.at_edge(value) else ""
            effect = f"{100 * share:+.3f} %"
            rows.append((rate.name, rate.show(value), kind, rate.plausible_text() + edge, row_name(of.row), effect))
    title = "What one per cent more of a rate does to a throughput"
    return Table(title, ("rate", "value", "is", "plausible", "throughput of", "change"), tuple(rows))


def throughput_words(rows: Sequence[SimulatedRow]) -> Iterator[str]:
    """Yield what to know of the tables."""
    if _of(rows, "fitted"):
        found = ", ".join(f"{_FRAMEWORKS[name]} {value:.3f} s" for name, value in fitted_hosts(rows).items())
        yield (
            "Fitted to these rows is nothing but the time of each framework's host between two session runs, to those "
            f"that say so: {found}. An error with a row left out has that time from the other rows of its framework "
            "and model."
        )
    else:
        yield "Nothing was fitted to these rows."
    if not all(row.fits for row in rows):
        yield "What does not fit an IPU's memory could not run so; `ipusim run` of its scenario says by how much."
    for source in dict.fromkeys(row.row.source for row in rows if row.row.source):
        yield f"Source: {source}."


def row_name(row: ThroughputRow) -> str:
    """Return which row one is, for people."""
    return f"{row.model}, {_FRAMEWORKS[row.framework]}, {row.machine}"


def throughputs_csv(rows: Sequence[SimulatedRow]) -> bytes:
    """Return the rows as CSV, with what is simulated, and the error."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*COLUMNS, "simulated_items_per_s", "error", "micro_batch_s", "fixed_s"))
    for each in rows:
        row, time = each.row, each.time
        own = (row.model, row.machine, row.ipus, row.micro_batch, row.count, row.items_per_s, row.framework)
        rest = (row.items, row.use, "; ".join(row.settings), row.source)
        found = (f"{each.items_per_s:.6g}", f"{each.error:.5f}", f"{time.micro_batch:.6g}", f"{time.fixed:.6g}")
        writer.writerow((*own, *rest, *found))
    return text.getvalue().encode()


def throughputs_png(rows: Sequence[SimulatedRow]) -> bytes:
    """Return the picture of simulated against published throughputs."""
    points = [
        ThroughputPoint(
            row.row.model + (", lacks a part" if row.row.use == "incomplete" else ""),
            row.row.items_per_s,
            row.items_per_s,
            row.row.use == "fitted",
        )
        for row in rows
    ]
    return to_png(throughput_chart(points, "Throughput of training, simulated against published"))
