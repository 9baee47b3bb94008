"""Report fitted rates, and write a file of rates for scenarios."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ipusim.api import hardware
from ipusim.app.fidelity.calibration import Calibration, FittedRate
from ipusim.app.fidelity.spread import spread
from ipusim.app.render.tables import Table
from ipusim.app.run_folder.output_file import FIT_WORDS
from ipusim.app.study.result import Result

_NANOSECONDS = 10**9
#: Uncertainty, as a share, above which a rate counts as undetermined.
_UNDETERMINED_ABOVE = 1.0


@dataclass(frozen=True)
class CalibrationResult(Result):
    """Fitted rates as printout, data and rows."""

    calibration: Calibration

    def printout(self) -> Iterator[str | Table]:
        """Yield the verdict, the rates, the errors of the rows, and notes."""
        yield verdict(self.calibration)
        yield ""
        yield rate_table(self.calibration)
        yield row_table(self.calibration)
        yield from words(self.calibration)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per fitted rate: values before and after in the rate's unit, and uncertainty as a share."""
        return [
            {
                "rate": fit.rate.name,
                "unit": fit.rate.unit,
                "before": float(fit.before),
                "fitted": float(fit.value),
                "uncertainty": fit.uncertainty,
                "at_edge": fit.at_edge,
            }
            for fit in self.calibration.fitted
        ]

    def data(self) -> dict[str, Any]:
        """Return the rates, the errors of the rows, and the rates that were not fitted."""
        errors = zip(self.calibration.rows.names, self.calibration.before, self.calibration.after, strict=True)
        return {
            "rates": self.rows(),
            "errors": [
                {"row": name, "before": error_before, "after": error_after}
                for name, error_before, error_after in errors
            ],
            "not_fitted": {rate.name: reason for rate, reason in self.calibration.left_out},
            "sources": list(self.calibration.rows.sources),
        }


def verdict(calibration: Calibration) -> str:
    """Return a sentence with the errors of the simulation before and after the fit."""
    count, rates = len(calibration.before), len(calibration.fitted)
    before, after = (_error_words(calibration, errors) for errors in (calibration.before, calibration.after))
    return (
        f"{count} row{'s are' if count > 1 else ' is'} {before} before, and {after} with {rates} "
        f"rate{'s' if rates > 1 else ''} fitted to {'them' if count > 1 else 'it'}."
    )


def _error_words(calibration: Calibration, errors: Sequence[float]) -> str:
    """Return the mean and the worst absolute error in words."""
    _, name = max(zip(map(abs, errors), calibration.rows.names, strict=True))
    _, mean, worst = spread(errors)
    return f"{mean} off on average and {worst} at worst ({name})"


def rate_table(calibration: Calibration) -> Table:
    """Return a row per fitted rate: values before and after, uncertainty, and plausible range."""
    rows = (
        {
            "rate": fit.rate.name,
            "before": fit.rate.show(fit.before),
            "fitted": fit.rate.show(fit.value),
            "95 % within": _uncertainty_text(fit) or "not known",
            "plausible": (fit.rate.plausible_text() or "nothing published") + " (at its edge)" * fit.at_edge,
        }
        for fit in calibration.fitted
    )
    return Table.of("Fitted rates", rows)


def row_table(calibration: Calibration) -> Table:
    """Return row errors before and after the fit."""
    pairs = zip(calibration.rows.names, calibration.before, calibration.after, strict=True)
    return Table("Errors", ("row", "before", "after"), tuple((name, f"{a:+.1%}", f"{b:+.1%}") for name, a, b in pairs))


def words(calibration: Calibration) -> Iterator[str]:
    """Yield the notes below the tables: rows to add, undetermined rates, unfitted rates, sources."""
    yield from _held_out_words(calibration)
    for correlated in calibration.correlated:
        names = " and ".join(rate.name for rate in correlated.rates)
        correlation = "" if correlated.correlation is None else f" (correlation {correlated.correlation:.2f})"
        yield f"The rows hardly distinguish {names}{correlation}: a larger value of one offsets another."
    if any(fit.uncertainty is None for fit in calibration.fitted):
        yield "The uncertainty of the rates is not known, because the fit has as many rates as rows."
    for fit in calibration.fitted:
        if fit.uncertainty is not None and fit.uncertainty > _UNDETERMINED_ABOVE:
            yield (
                f"{fit.rate.name} may be anywhere in its range, given the scatter of the rows; add rows that "
                "depend on the rate."
            )
        if fit.at_edge:
            yield f"{fit.rate.name} would leave its range: another cause explains the rows."
    for rate, reason in calibration.left_out:
        yield f"Not fitted: {rate.name}: {reason}."
    for source in calibration.rows.sources:
        yield f"Source: {source}."


def _held_out_words(calibration: Calibration) -> Iterator[str]:
    """Yield the error of held-out rows, and the number of rows from which a fit helps."""
    start, *fits = calibration.held_out_errors.items()
    if not fits:
        return
    rows, error = fits[-1]
    others = f"{rows} other row{'s' * (rows != 1)}"
    text = (
        f"A row left out of the fit has an error of {error:.1%} on average with rates fitted to {others}, and "
        f"{start[1]:.1%} before"
    )
    if (least := calibration.better_from) is None:
        yield f"{text}: fitted rates are not yet better on unseen rows; add rows."
    else:
        yield f"{text}: rates fitted to at least {least} row{'s' * (least != 1)} are better on unseen rows."


def rates_file(calibration: Calibration, name: str) -> bytes:
    """Return a YAML file, to be called ``name``, with the rates and a comment on their origin.

    The file also contains the scenarios' unfitted rates, since a scenario names a single file for its rates.
    """
    lines = [
        f"{FIT_WORDS} {', '.join(calibration.rows.files)}.",
        verdict(calibration),
        *(f"Source: {source}." for source in calibration.rows.sources),
        f"A scenario in the same folder uses these rates with `rates: {name}`.",
    ]
    head = "".join(f"# {''.join(sign if sign.isprintable() else '?' for sign in line)}\n" for line in lines)
    fit = {entry.rate: entry for entry in calibration.fitted}
    body = "".join(
        f"{rate.name}: {_value_text(rate, calibration)}  # {_remark(rate, fit.get(rate))}\n"
        for rate in hardware.RATES
        if rate in fit or rate in calibration.rates.changed_rates()
    )
    return (head + body).encode()


def _value_text(rate: hardware.Rate, calibration: Calibration) -> str:
    """Return a value in scenario notation, in the base unit."""
    value = getattr(calibration.rates, rate.attribute)
    if rate.unit == "links":
        return str(int(value))
    return repr(float(value / _NANOSECONDS if rate.unit == "ns" else value))


def _remark(rate: hardware.Rate, fit: FittedRate | None) -> str:
    """Return the comment after a rate's value."""
    if fit is None:
        return "as in the scenarios"
    uncertainty = _uncertainty_text(fit)
    uncertainty_words = f", 95 % within {uncertainty}" if uncertainty else ""
    return f"{rate.show(fit.value)}{uncertainty_words}; before {rate.show(fit.before)}"


def _uncertainty_text(fit: FittedRate) -> str:
    """Return a rate's uncertainty as text; empty if unknown."""
    if fit.uncertainty is None:
        return ""
    return f"± {fit.uncertainty:.1%}" if fit.uncertainty < 1 else "more than ± 100%"
