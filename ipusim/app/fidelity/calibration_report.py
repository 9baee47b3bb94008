"""Report of fitted rates, and a file of rates for scenarios."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ipusim.api import hardware
from ipusim.app.fidelity.calibration import Calibration, FittedRate
from ipusim.app.fidelity.spread import spread
from ipusim.app.render.tables import Table
from ipusim.app.run_folder.output_file import FITTED
from ipusim.app.study.result import Result

_NANOSECONDS = 10**9
#: Uncertainty, as a share, above which a rate counts as undetermined.
_UNSURE = 1.0


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
                "rate": fitted.rate.name,
                "unit": fitted.rate.unit,
                "before": float(fitted.before),
                "fitted": float(fitted.value),
                "uncertainty": fitted.uncertainty,
                "at_edge": fitted.at_edge,
            }
            for fitted in self.calibration.fitted
        ]

    def data(self) -> dict[str, Any]:
        """Return the rates, the errors of the rows, and the rates left unfitted."""
        errors = zip(self.calibration.rows.names, self.calibration.before, self.calibration.after, strict=True)
        return {
            "rates": self.rows(),
            "errors": [{"row": name, "before": before, "after": after} for name, before, after in errors],
            "not_fitted": {rate.name: why for rate, why in self.calibration.left_out},
            "sources": list(self.calibration.rows.sources),
        }


def verdict(calibration: Calibration) -> str:
    """Return a sentence with the errors of the simulation before and after the fit."""
    count, rates = len(calibration.before), len(calibration.fitted)
    before, after = (_off(calibration, errors) for errors in (calibration.before, calibration.after))
    return (
        f"{count} row{'s are' if count > 1 else ' is'} {before} before, and {after} with {rates} "
        f"rate{'s' if rates > 1 else ''} fitted to {'them' if count > 1 else 'it'}."
    )


def _off(calibration: Calibration, errors: Sequence[float]) -> str:
    """Return the mean and the worst absolute error."""
    _, name = max(zip(map(abs, errors), calibration.rows.names, strict=True))
    _, mean, worst = spread(errors)
    return f"{mean} off on average and {worst} at worst ({name})"


def rate_table(calibration: Calibration) -> Table:
    """Return a row per fitted rate: values before and after, uncertainty, and plausible range."""
    header = ("rate", "before", "fitted", "95 % within", "plausible")
    body = tuple(
        (
            fitted.rate.name,
            fitted.rate.show(fitted.before),
            fitted.rate.show(fitted.value),
            _sure(fitted) or "not known",
            (fitted.rate.plausible_text() or "nothing published") + (" (at its edge)" if fitted.at_edge else ""),
        )
        for fitted in calibration.fitted
    )
    return Table("Fitted rates", header, body)


def row_table(calibration: Calibration) -> Table:
    """Return row errors before and after the fit."""
    pairs = zip(calibration.rows.names, calibration.before, calibration.after, strict=True)
    return Table("Errors", ("row", "before", "after"), tuple((name, f"{a:+.1%}", f"{b:+.1%}") for name, a, b in pairs))


def words(calibration: Calibration) -> Iterator[str]:
    """Yield the notes below the tables: rows needed, undetermined or unfitted rates, and sources."""
    yield from _foreseen_words(calibration)
    for alike in calibration.alike:
        names = " and ".join(rate.name for rate in alike.rates)
        how = "together" if alike.correlation is None else f"correlation {alike.correlation:.2f}"
        yield f"The rows hardly distinguish {names} ({how}): a larger value of one offsets another."
    if any(fitted.uncertainty is None for fitted in calibration.fitted):
        yield "The uncertainty of the rates is not known, as the fit has as many rates as rows."
    for fitted in calibration.fitted:
        if fitted.uncertainty is not None and fitted.uncertainty > _UNSURE:
            yield (
                f"{fitted.rate.name} may be anywhere in its range, given the scatter of the rows; add rows that "
                "depend on the rate."
            )
        if fitted.at_edge:
            yield f"{fitted.rate.name} would leave its range: another cause explains the rows."
    for rate, why in calibration.left_out:
        yield f"Not fitted: {rate.name}: {why}."
    for source in calibration.rows.sources:
        yield f"Source: {source}."


def _foreseen_words(calibration: Calibration) -> Iterator[str]:
    """Yield the error of left-out rows, and the number of rows needed."""
    own, *fitted = calibration.foreseen.items()
    if not fitted:
        return
    rows, error = fitted[-1]
    others = f"{rows} other{'s' * (rows != 1)}"
    said = f"With each row left out in turn, its error is {error:.1%} on average by {others}, and {own[1]:.1%} before"
    if (needed := calibration.better_from) is None:
        yield f"{said}: fitted rates are not yet better on unseen rows; add rows."
    else:
        yield f"{said}: fitted rates are better from {needed} row{'s' * (needed != 1)} on."


def rates_file(calibration: Calibration, name: str) -> bytes:
    """Return a YAML file, to be called ``name``, with the rates and a comment on their origin.

    The file also contains the scenarios' unfitted rates, since a scenario names a single file for its rates.
    """
    lines = [
        f"{FITTED} {', '.join(calibration.rows.files)}.",
        verdict(calibration),
        *(f"Source: {source}." for source in calibration.rows.sources),
        f"A scenario in the same folder uses these rates with `rates: {name}`.",
    ]
    head = "".join(f"# {''.join(sign if sign.isprintable() else '?' for sign in line)}\n" for line in lines)
    fitted = {entry.rate: entry for entry in calibration.fitted}
    body = "".join(
        f"{rate.name}: {_written(rate, calibration)}  # {_remark(rate, fitted.get(rate))}\n"
        for rate in hardware.RATES
        if rate in fitted or rate in calibration.rates.changed_rates()
    )
    return (head + body).encode()


def _written(rate: hardware.Rate, calibration: Calibration) -> str:
    """Return a value in scenario notation, in the base unit."""
    value = getattr(calibration.rates, rate.attribute)
    if rate.unit == "links":
        return str(int(value))
    return repr(float(value / _NANOSECONDS if rate.unit == "ns" else value))


def _remark(rate: hardware.Rate, fitted: FittedRate | None) -> str:
    """Return the comment behind a rate's value."""
    if fitted is None:
        return "as in the scenarios"
    sure = _sure(fitted)
    return f"{rate.show(fitted.value)}{f', 95 % within {sure}' if sure else ''}; before {rate.show(fitted.before)}"


def _sure(fitted: FittedRate) -> str:
    """Return a rate's uncertainty as text; empty if unknown."""
    if fitted.uncertainty is None:
        return ""
    return f"± {fitted.uncertainty:.1%}" if fitted.uncertainty < 1 else "more than ± 100%"
