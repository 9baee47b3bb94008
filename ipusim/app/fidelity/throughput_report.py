"""What is printed and drawn of published throughputs and what is simulated of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final

from ipusim.api import hardware
from ipusim.app.fidelity.product_rows import MEASURED, read_rows
from ipusim.app.fidelity.spread import spread
from ipusim.app.fidelity.throughput_fit import FITTED, fitted_rates, speaking
from ipusim.app.fidelity.throughput_rows import COLUMNS, ThroughputRow
from ipusim.app.fidelity.throughputs import Prepared, SimulatedRow, sensitivities
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

_USES: Final = {
    "held": "",
    "fitted": "fits rates",
    "incomplete": "lacks a part",
    "small": "small network",
    "input": "bound by input",
    "pods": "several pods",
}
#: What a verdict calls the rows of each use.
_KINDS: Final = {
    "held": "models like none of them",
    "incomplete": "models that lack a part",
    "small": "small networks",
    "input": "trainings that their input may hold back",
    "pods": "trainings on several pods",
}


def verdict(rows: Sequence[SimulatedRow]) -> str:
    """Return in a sentence how far off the simulation is, in others for kinds of models that no rate is fitted to."""
    fitted = _of(rows, "fitted")
    if not fitted:
        return f"Throughputs of whole trainings: {_how_far(rows, ',')}."
    models = ", ".join(dict.fromkeys(row.row.model for row in fitted))
    text = f"Throughputs of whole trainings: {_how_far(fitted, f' of {models}, each with its source in no fit,')}."
    for use, of in _KINDS.items():
        if more := _of(rows, use):
            text += f" {_how_far(more, f' more, of {of}:')}."
    return text


def _of(rows: Sequence[SimulatedRow], use: str) -> list[SimulatedRow]:
    return [row for row in rows if row.row.use == use]


def _how_far(rows: Sequence[SimulatedRow], what: str) -> str:
    number, mean, most = spread(row.judged for row in rows)
    worst = max(rows, key=lambda each: abs(each.judged))
    direction = "fast" if worst.judged > 0 else "slow"
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
                "-".join(format_figure(end, 4) for end in row.band or (row.items_per_s,)),
                format_figure(each.items_per_s, 4),
                f"{each.error:+.1%}",
                *((unseen,) if with_unseen else ()),
                f"{each.time.micro_batch * 1e3:.3f} ms",
                ", ".join(filter(None, (_USES[row.use], "" if each.fits else "does not fit"))),
            )
        )
    return Table("Throughputs in items a second, published and simulated", header, tuple(body))


def throughput_error_table(rows: Sequence[SimulatedRow]) -> Table:
    """Return mean and worst error of all rows, by use and by model, and between which errors each model's lie.

    Rows that rates are fitted to count with their source left out.
    """
    groups = {"all": list(rows)}
    if _of(rows, "fitted"):
        groups |= {"with their source in no fit": _of(rows, "fitted")}
        groups |= {f"of {name}": of for use, name in _KINDS.items() if (of := _of(rows, use))}
    for model in dict.fromkeys(row.row.model for row in rows):
        groups[model] = [row for row in rows if row.row.model == model]
    body = [(name, *spread(each.judged for each in of), error_range(of)) for name, of in groups.items()]
    title = "Errors of throughputs, whatever their sign"
    return Table(title, ("rows", "number", "mean", "worst", "range"), tuple(body))


def error_range(rows: Sequence[SimulatedRow]) -> str:
    """Return between which errors some rows lie, in whole per cent."""
    errors = [each.judged for each in rows]
    return f"{min(errors):+.0%} to {max(errors):+.0%}"


def dial_table(prepared: Sequence[Prepared], rows: Sequence[SimulatedRow]) -> Table:
    """Return the rates that were fitted to anything: value, range, and how many measurements speak to each."""
    found, said = fitted_rates(prepared, rows), speaking(prepared, rows)
    products = len(read_rows(MEASURED))
    body = []
    for rate in hardware.RATES:
        value = rate.show(rate.default)
        if rate.attribute in FITTED:
            own = rate.show(Fraction(f"{found[rate.attribute]:.4g}"))
            body.append((rate.name, value, own, rate.plausible_text(), f"{said[rate.attribute]} trainings"))
        elif rate.is_fitted:
            body.append((rate.name, value, "", rate.plausible_text(), f"{products} products"))
        elif rate.source.startswith("derived from PopLibs"):
            body.append((rate.name, value, "", rate.plausible_text(), "PopLibs' benchmarks"))
    header = ("rate", "value", "by all trainings", "plausible", "told by")
    return Table("Rates that were fitted, and what tells each", header, tuple(body))


def sensitivity_table(prepared: Sequence[Prepared]) -> Table:
    """Return what one per cent of each rate does to a throughput, and its value and what is plausible.

    The throughput is the first row's, and of rates of the host that it does not feel the first row's that does.
    """
    others = [each for each in prepared if each.row.framework == "pytorch"][:1]
    others += [each for each in prepared if each.jobs[0].system.updates_optimizer][:1]
    firsts = [prepared[0], *others]
    found: dict[str, tuple[Prepared, float]] = {}
    for each in firsts:
        found |= {name: (each, share) for name, share in sensitivities(each, known=found).items()}
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
        yield (
            "Fitted to the rows that say so are what an optimizer whose values are sent anew takes of the host, what "
            "its state off chip takes, and what variables take at an update. An error with its source left out is by "
            "rates fitted without any row that the same publisher has: what a rate loses then is the middle of its "
            "range."
        )
    else:
        yield "Nothing was fitted to these rows."
    if any(row.row.band for row in rows):
        yield "Where editions of one program differ, their figures are a range, within which nothing is off."
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


def _family(row: ThroughputRow) -> str:
    """Return what a picture calls a row's model: those of one family alike, and all small networks."""
    if row.use in {"small", "pods"}:
        return _KINDS[row.use]
    return row.model.partition("_")[0]


def throughputs_png(rows: Sequence[SimulatedRow]) -> bytes:
    """Return the picture of simulated against published throughputs."""
    points = [
        ThroughputPoint(
            _family(row.row) + (", lacks a part" if row.row.use == "incomplete" else ""),
            row.items_per_s / (1 + row.error),  # of a published range, the figure that the table's error is against
            row.items_per_s,
            row.row.use == "fitted",
        )
        for row in rows
    ]
    return to_png(throughput_chart(points, "Throughput of training, simulated against published"))
