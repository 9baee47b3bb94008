"""Report published against simulated throughputs: sentence, tables, CSV and picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final

from ipusim.api import analysis, hardware, runs
from ipusim.app.fidelity.error_intervals import (
    INTERVAL_SHARE,
    Interval,
    distances_in_widths,
    rows_by_kind,
    widening_factor,
)
from ipusim.app.fidelity.product_rows import PRODUCTS_FILE, read_rows
from ipusim.app.fidelity.spread import spread
from ipusim.app.fidelity.throughput_fit import FIT_RATES, fitted_rates
from ipusim.app.fidelity.throughput_rows import COLUMNS, ThroughputRow
from ipusim.app.fidelity.throughputs import PreparedRow, SimulatedRow, sensitivities
from ipusim.app.render.figures import Chart
from ipusim.app.render.tables import Table
from ipusim.app.render.throughputs import ThroughputPoint, throughput_chart
from ipusim.base.csv_table import csv_bytes
from ipusim.base.units import format_figure

#: Names of frameworks in tables.
_FRAMEWORKS: Final = {
    "popart": "PopART",
    "tensorflow1": "TensorFlow 1",
    "tensorflow2": "TensorFlow 2",
    "pytorch": "PyTorch",
    "": "no framework",
}

#: Remarks on a row's use in tables.
_REMARKS_ON_USES: Final = {
    "held": "",
    "fitted": "fits rates",
    "incomplete": "lacks a part",
    "small": "small network",
    "input": "bound by its host",
    "pods": "several pods",
}
#: Name of the trainings on one pod to which rates are fitted.
_FIT_KIND: Final = "BERT and ResNet-50 on one pod"
#: Names of the rows of each use in a verdict.
_NAMES_OF_USES: Final = {
    "held": "models unlike all fitted ones",
    "incomplete": "models that lack a part",
    "small": "small networks",
    "input": "trainings that their host may hold back",
    "pods": "trainings on several pods",
}


def verdict(rows: Sequence[SimulatedRow]) -> str:
    """Return the errors of BERT and ResNet-50 on one pod, then the errors of other kinds, a sentence per kind."""
    fit_rows = _rows_of(rows, "fitted")
    if not fit_rows:
        return f"Throughputs of whole trainings: {_error_words(rows, ',')}."
    label = f" of {_FIT_KIND}, each with rates fitted without its source,"
    text = f"Throughputs of whole trainings: {_error_words(fit_rows, label)}."
    means = [
        f"{name} {spread(row.reported_error for row in group)[1]}" for name, group in rows_by_kind(fit_rows).items()
    ]
    text += f" On average off: {'; '.join(means)}."
    for use, name in _NAMES_OF_USES.items():
        if group := _rows_of(rows, use):
            text += f" {_error_words(group, f' more, of {name}:')}."
    return text


def _rows_of(rows: Sequence[SimulatedRow], use: str) -> list[SimulatedRow]:
    """Return the rows of a use; every training on several pods counts as ``pods``."""
    return [
        result
        for result in rows
        if ("pods" if result.training.kind.endswith(runs.SEVERAL_PODS) else result.row.use) == use
    ]


def _error_words(rows: Sequence[SimulatedRow], label: str) -> str:
    """Return number, mean error and worst error of the rows in words; ``label`` follows the number."""
    number, mean, worst_error = spread(row.reported_error for row in rows)
    worst = max(rows, key=lambda row: abs(row.reported_error))
    direction = "fast" if worst.reported_error > 0 else "slow"
    return f"{number}{label} {mean} off on average, {worst_error} at worst ({row_name(worst.row)}, too {direction})"


def throughput_table(rows: Sequence[SimulatedRow]) -> Table:
    """Return published and simulated throughputs and errors of the rows, and the time of a micro-batch."""
    has_unseen = any(result.unseen_error is not None for result in rows)

    def cells(result: SimulatedRow) -> dict[str, str]:
        row, fits = result.row, result.training.fits
        unseen = "" if result.unseen_error is None else f"{result.unseen_error:+.1%}"
        return {
            "model": row.model,
            "framework": _FRAMEWORKS[row.framework],
            "system": row.machine,
            "IPUs": str(row.ipus),
            "count": str(row.count),
            "published": "-".join(format_figure(end, 4) for end in row.band or (row.items_per_s,)),
            "simulated": format_figure(result.items_per_s, 4),
            "error": f"{result.error:+.1%}",
            **({"left out": unseen} if has_unseen else {}),
            "micro-batch": f"{result.time.micro_batch * 1e3:.3f} ms",
            "use": ", ".join(filter(None, (_REMARKS_ON_USES[row.use], "" if fits is analysis.Fits.YES else fits))),
        }

    return Table.of("Throughputs in items a second, published and simulated", map(cells, rows))


def throughput_error_table(rows: Sequence[SimulatedRow]) -> Table:
    """Return mean, worst and range of the errors of all rows, by use and by kind, with the interval of each kind.

    Errors are with rates fitted without the row's source, if its source has a fitted row. The last column counts the
    rows inside the interval computed from rows of other sources.
    """
    groups = {"all": list(rows)}
    if _rows_of(rows, "fitted"):
        groups |= {f"of {_FIT_KIND}, with rates fitted without their source": _rows_of(rows, "fitted")}
        groups |= {f"of {name}": group for use, name in _NAMES_OF_USES.items() if (group := _rows_of(rows, use))}
    body = [(name, *_errors(group), "", "") for name, group in groups.items()]
    widening = widening_factor(rows)
    for name, group in rows_by_kind(rows).items():
        inside = [distance <= widening for distance in distances_in_widths(group)]
        inside_text = f"{sum(inside)} of {len(inside)}" if inside else ""
        body.append((name, *_errors(group), str(Interval.from_rows(group, widening) or "not known"), inside_text))
    title = "Errors of throughputs, mean and worst whatever their sign"
    header = ("rows", "number", "mean", "worst", "range")
    interval = (f"{INTERVAL_SHARE:.0%} of such lie in", "without their source inside")
    return Table(title, (*header, *interval), tuple(body))


def _errors(rows: Sequence[SimulatedRow]) -> tuple[str, str, str, str]:
    """Return number, mean, worst and range of the errors of ``rows`` as texts."""
    errors = [row.reported_error for row in rows]
    return (*spread(errors), f"{min(errors):+.0%} to {max(errors):+.0%}")


def fitted_rate_table(rows: Sequence[SimulatedRow]) -> Table:
    """Return the fitted rates with value, plausible range, and number of measurements that determine each."""
    fits, counts = fitted_rates(rows)
    products = len(read_rows(PRODUCTS_FILE))
    body = []
    for rate in hardware.RATES:
        fit, determined_by = "", ""
        if rate.attribute in FIT_RATES:
            fit = rate.show(Fraction(f"{fits[rate.attribute]:.4g}"))
            determined_by = f"{counts[rate.attribute]} trainings"
        elif rate.is_fitted:
            determined_by = f"{products} products"
        elif rate.source.startswith("derived from PopLibs"):
            determined_by = "PopLibs' benchmarks"
        if determined_by:
            body.append((rate.name, rate.show(rate.default), fit, rate.plausible_text(), determined_by))
    header = ("rate", "value", "by all trainings", "plausible", "told by")
    return Table("Fitted rates, and the rows that determine each", header, tuple(body))


def sensitivity_table(trainings: Sequence[PreparedRow]) -> Table:
    """Return the change of a throughput for a one per cent increase of each rate, with the rate's value and range.

    The throughput is the first row's; a rate of another host has its effect on the first row with this host.
    """
    host_trainings = [training for training in trainings if training.row.framework == "pytorch"][:1]
    host_trainings += [training for training in trainings if training.jobs[0].system.optimizer_interval][:1]
    example_trainings = [trainings[0], *host_trainings]
    effects: dict[str, tuple[PreparedRow, float]] = {}
    for training in example_trainings:
        effects |= {name: (training, share) for name, share in sensitivities(training, known_rates=effects).items()}
    rows = []
    for rate in hardware.RATES:
        if rate.attribute in effects:
            training, share = effects[rate.attribute]
            value = getattr(training.rates, rate.attribute)
            kind = "fitted" if rate.is_fitted else "assumed" if rate.source.startswith("assumed") else "published"
            edge = " (at its edge)" if rate.is_fitted and rate.at_edge(value) else ""
            effect = f"{100 * share:+.3f} %"
            rows.append(
                (rate.name, rate.show(value), kind, rate.plausible_text() + edge, row_name(training.row), effect)
            )
    title = "Effect of one per cent more of a rate on a throughput"
    return Table(title, ("rate", "value", "is", "plausible", "throughput of", "change"), tuple(rows))


def throughput_words(rows: Sequence[SimulatedRow]) -> Iterator[str]:
    """Yield the notes on the tables."""
    if _rows_of(rows, "fitted"):
        yield (
            "Three kinds of rates were fitted to the rows marked `fits rates`: the host's time for new optimizer "
            "values, the time of optimizer state off chip, and the time of variables at an update. An error with the "
            "source left out uses rates fitted without rows of this publisher; a rate without rows takes the middle of "
            "its range. An interval predicts the error of a further training, and needs three rows. It is Student's "
            f"interval of logarithms, made {widening_factor(rows):.2f} times as wide, so that it contains four of five "
            "rows of other sources."
        )
    else:
        yield "Nothing was fitted to these rows."
    if any(result.row.band for result in rows):
        yield "If editions of one program differ, their figures are a range; a value in the range has no error."
    if any(result.training.fits is analysis.Fits.NO for result in rows):
        yield "A plan that does not fit an IPU's memory could not run; `ipusim run` of its scenario prints the excess."
    for source in dict.fromkeys(result.row.source for result in rows if result.row.source):
        yield f"Source: {source}."


def row_name(row: ThroughputRow) -> str:
    """Return the name of a row in texts: model, framework and system."""
    return f"{row.model}, {_FRAMEWORKS[row.framework]}, {row.machine}"


def throughputs_csv(rows: Sequence[SimulatedRow]) -> bytes:
    """Return the rows as CSV, with simulated figures and errors."""
    lines: list[tuple[object, ...]] = [(*COLUMNS, "simulated_items_per_s", "error", "micro_batch_s", "fixed_s")]
    for result in rows:
        row, time = result.row, result.time
        cells = {name: getattr(row, name) for name in COLUMNS} | {"settings": "; ".join(row.settings)}
        figures = (f"{result.items_per_s:.6g}", f"{result.error:.5f}", f"{time.micro_batch:.6g}", f"{time.fixed:.6g}")
        lines.append((*cells.values(), *figures))
    return csv_bytes(lines)


def _family(row: ThroughputRow) -> str:
    """Return a row's family in a picture: the first part of the model's name, or a common name for small networks."""
    if row.use in {"small", "pods"}:
        return _NAMES_OF_USES[row.use]
    return row.model.partition("_")[0]


def throughputs_chart(rows: Sequence[SimulatedRow]) -> Chart:
    """Return the picture of simulated against published throughputs."""
    points = []
    for result in rows:
        family = _family(result.row) + (", lacks a part" if result.row.use == "incomplete" else "")
        published = result.items_per_s / (1 + result.error)  # with a range, the end that the table's error refers to
        points.append(ThroughputPoint(family, published, result.items_per_s, result.row.use == "fitted"))
    return throughput_chart(points, "Throughput of training, simulated against published")
