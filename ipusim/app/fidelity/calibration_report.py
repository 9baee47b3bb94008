"""What is printed of rates that were fitted, and the file of them that a scenario names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipusim.api import hardware
from ipusim.app.fidelity.calibration import Calibration, FittedRate
from ipusim.app.fidelity.spread import spread
from ipusim.app.render.tables import Table
from ipusim.app.run_folder.output_file import FITTED

_NANOSECONDS = 10**9
#: Uncertainty, as a share, from which a rate is as good as not known.
_UNSURE = 1.0


def verdict(found: Calibration) -> str:
    """Return in a sentence how far off the simulation was, and is."""
    count, rates = len(found.before), len(found.fitted)
    before, after = (_off(found, errors) for errors in (found.before, found.after))
    return (
        f"{count} row{'s are' if count > 1 else ' is'} {before} before, and {after} with {rates} "
        f"rate{'s' if rates > 1 else ''} fitted to {'them' if count > 1 else 'it'}."
    )


def _off(found: Calibration, errors: Sequence[float]) -> str:
    """Return the mean and the worst error, whatever the sign."""
    _, name = max(zip(map(abs, errors), found.rows.names, strict=True))
    _, mean, worst = spread(errors)
    return f"{mean} off on average and {worst} at worst ({name})"


def rate_table(found: Calibration) -> Table:
    """Return every rate that was fitted: before and after, how sure, and where in its range."""
    header = ("rate", "before", "fitted", "95 % within", "plausible")
    body = tuple(
        (
            each.rate.name,
            each.rate.show(each.before),
            each.rate.show(each.value),
            _sure(each) or "not known",
            (each.rate.plausible_text() or "nothing published") + (" (at its edge)" if each.at_edge else ""),
        )
        for each in found.fitted
    )
    return Table("Fitted rates", header, body)


def row_table(found: Calibration) -> Table:
    """Return the error of every row before and after."""
    pairs = zip(found.rows.names, found.before, found.after, strict=True)
    return Table("Errors", ("row", "before", "after"), tuple((name, f"{a:+.1%}", f"{b:+.1%}") for name, a, b in pairs))


def words(found: Calibration) -> Iterator[str]:
    """Yield what to know of the tables: from how many rows on they help, and what the rows do not tell."""
    yield from _foreseen_words(found)
    for alike in found.alike:
        names = " and ".join(rate.name for rate in alike.rates)
        how = "together" if alike.correlation is None else f"correlation {alike.correlation:.2f}"
        yield f"The rows hardly tell {names} apart ({how}): what one gains, another makes up for."
    if any(each.uncertainty is None for each in found.fitted):
        yield "How sure the rates are is not known, as no row is left over: these rows are met by as many rates."
    for each in found.fitted:
        if each.uncertainty is not None and each.uncertainty > _UNSURE:
            yield f"{each.rate.name} may be anywhere in its range by the scatter of the rows; add some that tell it."
        if each.at_edge:
            yield f"{each.rate.name} would go on beyond its range: something else makes the rows what they are."
    for rate, why in found.left_out:
        yield f"Not fitted: {rate.name}: {why}."
    for source in found.rows.sources:
        yield f"Source: {source}."


def _foreseen_words(found: Calibration) -> Iterator[str]:
    """Yield how far off rows are that a fit leaves out, and from how many rows on that is better than no fit."""
    own, *fitted = found.foreseen.items()
    if not fitted:
        return
    rows, error = fitted[-1]
    others = f"{rows} other{'s' * (rows != 1)}"
    said = f"Left out in turn, a row is {error:.1%} off on average by {others}, and {own[1]:.1%} before"
    if found.better_from is None:
        yield f"{said}: fitted rates are no better yet on rows that they have not seen; add some."
    else:
        yield f"{said}: fitted rates are better from {found.better_from} row{'s' * (found.better_from != 1)} on."


def rates_file(found: Calibration, name: str) -> bytes:
    """Return the file of the rates, called ``name``, whose head says what they come from.

    Those that the scenarios had chosen and that were not fitted are in it too, as it stands in for these.
    """
    lines = [
        f"{FITTED} {', '.join(found.rows.files)}.",
        verdict(found),
        *(f"Source: {source}." for source in found.rows.sources),
        f"A scenario beside this file takes them with `rates: {name}`.",
    ]
    head = "".join(f"# {_printable(line)}\n" for line in lines)
    fitted = {each.rate: each for each in found.fitted}
    body = "".join(
        f"{rate.name}: {_written(rate, found)}  # {_remark(rate, fitted.get(rate))}\n"
        for rate in hardware.RATES
        if rate in fitted or rate in found.rates.chosen()
    )
    return (head + body).encode()


def _written(rate: hardware.Rate, found: Calibration) -> str:
    """Return a value as a scenario has it, in the base unit."""
    value = getattr(found.rates, rate.attribute)
    if rate.unit == "links":
        return str(int(value))
    return repr(float(value / _NANOSECONDS if rate.unit == "ns" else value))


def _remark(rate: hardware.Rate, fitted: FittedRate | None) -> str:
    """Return what stands beside a value."""
    if fitted is None:
        return "as in the scenarios"
    sure = _sure(fitted)
    return f"{rate.show(fitted.value)}{f', 95 % within {sure}' if sure else ''}; before {rate.show(fitted.before)}"


def _sure(fitted: FittedRate) -> str:
    """Return half the range in which a rate lies; nothing where it is not known."""
    if fitted.uncertainty is None:
        return ""
    return f"± {fitted.uncertainty:.1%}" if fitted.uncertainty < 1 else "more than ± 100%"


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)
