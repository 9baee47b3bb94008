"""Fits rates to a person's own rows: which of them the rows tell, their values, and how sure these are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from ipusim.api import Rates, hardware, pricing, runs
from ipusim.app.fidelity.calibration_rows import Rows
from ipusim.app.fidelity.rate_problem import Problem, Vector, rounded
from ipusim.base.errors import IpusimError, OptionError
from ipusim.base.near_names import did_you_mean, expected_last, listed

#: Standard deviation of a measured time against a simulated one, as a share: what rows are taken to say of rates that
#: nobody named (assumed; of published throughputs it is no less).
_SPREAD: Final = 0.025
#: What was known of a rate: its range is four standard deviations, and at most a factor of two to both sides (assumed).
_DEVIATIONS: Final = 4
_KNOWN: Final = math.log(4)
#: What of a row a rate must be able to change within its range, for the row to feel it.
_FELT: Final = 1e-3
#: Rates are told apart badly where what the rows feel of one is all but so much like what they feel of others.
_ALIKE: Final = 0.95
#: They act together alone where it is unlike by a ten thousandth: each is then a hundred times less sure than alone.
_TOGETHER: Final = 1 - 1e-4
#: Share of a combination of rates below which one has no part in it.
_PART: Final = 0.1
_SURE: Final = 0.95
_DIGITS: Final = 4


class UndeterminedError(IpusimError):
    """Rates that the rows do not determine; the text says which, and what would tell them."""


@dataclass(frozen=True)
class FittedRate:
    """One rate that was fitted.

    Attributes:
        rate: which.
        before: what the scenarios have.
        value: what explains the rows best, to four digits.
        uncertainty: half the range in which it lies in 95 of 100 cases, as a share; None where no row is to spare.
        at_edge: whether it lies within a hundredth of an end of its range.
    """

    rate: hardware.Rate
    before: Fraction
    value: Fraction
    uncertainty: float | None
    at_edge: bool


@dataclass(frozen=True)
class Alike:
    """Rates that the rows tell apart badly: what one gains another makes up for; ``correlation`` is that of two."""

    rates: tuple[hardware.Rate, ...]
    correlation: float | None


@dataclass(frozen=True)
class Calibration:
    """What was fitted, and how far off the rows are.

    Attributes:
        rows: what it was fitted to.
        rates: the value of every rate, fitted or not.
        fitted: those that were.
        before, after: how much too large what is simulated of each row is, as a share of what was measured.
        alike: rates that are told apart badly.
        left_out: those that were not asked for by name and are not told by the rows, each with the reason.
        foreseen: how far off rows that a fit leaves out are on average, as a logarithm, by how many rows it has; with
            none, by the scenarios' rates.
    """

    rows: Rows
    rates: Rates
    fitted: tuple[FittedRate, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    alike: tuple[Alike, ...]
    left_out: tuple[tuple[hardware.Rate, str], ...]
    foreseen: Mapping[int, float]

    @property
    def better_from(self) -> int | None:
        """The number of rows from which on rows left out are met better than by the scenarios' rates; None for none."""
        own, *fitted = self.foreseen.items()
        worse = [count for count, error in fitted if error >= own[1]]
        better = [count for count, _ in fitted if count > max(worse, default=0)]
        return min(better, default=None)


def calibrate(rows: Rows, names: Sequence[str] = ()) -> Calibration:
    """Return the rates called ``names`` that explain the rows best.

    Without names they are those of computation and of the rows' hosts of which the rows say more than was known, with
    a row left over if there are several. Raises OptionError for names that are no rates to fit, UndeterminedError for
    rates that the rows do not determine, and what pricing does.
    """
    asked = _named(names)
    count = len(rows.names)
    if not count:
        raise UndeterminedError(f"{', '.join(rows.files)}: expected a row of which some time is measured and simulated")
    if len(asked) > count:
        raise UndeterminedError(
            f"expected at least as many rows as rates, {len(asked)}, got {count}: measure more, or fit fewer rates"
        )
    problem = Problem(rows, asked or _usual(rows))
    left_out: tuple[tuple[hardware.Rate, str], ...] = ()
    if not asked:
        problem, left_out = _told(problem)
    _refuse_undetermined(problem, problem.slopes(problem.start))
    x = problem.best()
    _refuse_undetermined(problem, problem.slopes(x))
    return _calibration(problem, x, left_out)


def _named(names: Sequence[str]) -> tuple[hardware.Rate, ...]:
    """Return the rates of these names; raises OptionError for names of none that can be fitted."""
    known = {rate.name: rate for rate in hardware.RATES}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, list(known))
            raise OptionError("rates", expected_last(f"got {name!r}", hint, f"rates out of {listed([*known], name)}"))
        if known[name].unit == "links":
            raise OptionError("rates", f"expected rates that can take any value, got {name}, a whole number of links")
        if list(names).count(name) > 1:
            raise OptionError("rates", f"expected each rate once, got {name} twice")
    return tuple(known[name] for name in names)


def _usual(rows: Rows) -> tuple[hardware.Rate, ...]:
    """Return the rates of computation, and of the hosts whose time is in some row."""
    hosts = {"session_run_ns", "offchip_stream_ns"} if rows.frameworks else set()
    hosts |= {"pytorch_offchip_state_ns" if name == "pytorch" else "offchip_state_ns" for name in rows.frameworks}
    return tuple(rate for rate in hardware.RATES if rate.part == "computation" or rate.attribute in hosts)


def _told(problem: Problem) -> tuple[Problem, tuple[tuple[hardware.Rate, str], ...]]:
    """Return the problem of the rates of which the rows say more than was known, and the others with the reason.

    The rates that most of the time follows come first, each taken if it and those before it are all told.
    """
    slopes = problem.slopes(problem.start)
    known = np.minimum(problem.high - problem.low, _KNOWN) / _DEVIATIONS
    felt = _felt(problem, slopes)
    chosen: list[int] = []
    left_out: dict[int, str] = {}
    for at in np.argsort(-np.linalg.norm(slopes, axis=0) * known, kind="stable").tolist():
        rate, others = problem.fitted[at], [problem.fitted[each].name for each in chosen]
        more = [*chosen, at]
        if felt[at] < _FELT:
            left_out[at] = f"no row feels it; {_telling(rate)}"
        elif np.any(_deviations(slopes[:, [at]], _SPREAD) > known[at]):
            left_out[at] = f"the rows say less of it than is known; {_telling(rate)}"
        elif len(chosen) == max(1, len(slopes) - 1):
            left_out[at] = f"{len(slopes)} rows tell no more than {runs.one_of(others)}"
        elif np.any(_deviations(slopes[:, more], _SPREAD) > known[more]):
            left_out[at] = f"the rows do not tell it from {runs.one_of(others)}; {_telling(rate)}"
        else:
            chosen.append(at)
    if not chosen:
        reasons = [f"{problem.fitted[at].name}: {why}" for at, why in sorted(left_out.items())]
        raise UndeterminedError("\n".join(["expected rows that tell some rate, got none", *reasons]))
    return (
        Problem(problem.rows, [problem.fitted[at] for at in sorted(chosen)]),
        tuple((problem.fitted[at], left_out[at]) for at in sorted(left_out)),
    )


def _deviations(slopes: Vector, spread: float) -> Vector:
    """Return the standard deviation of each rate's logarithm where ``spread`` is that of a row's."""
    if _least_unlike(slopes) < 1 - _TOGETHER:
        return np.full(slopes.shape[1], np.inf)
    deviations: Vector = spread * np.sqrt(np.diag(np.linalg.inv(slopes.T @ slopes)))
    return deviations


def _refuse_undetermined(problem: Problem, slopes: Vector) -> None:
    """Raise UndeterminedError for rates that no row feels, and for those that only act together."""
    unfelt = [rate for rate, felt in zip(problem.fitted, _felt(problem, slopes), strict=True) if felt < _FELT]
    if unfelt:
        raise UndeterminedError(
            "\n".join(f"{rate.name}: expected a row that feels it, got none: {_telling(rate)}" for rate in unfelt)
        )
    if _least_unlike(slopes) < 1 - _TOGETHER:
        direction = _unlike(slopes)[1][:, 0]
        together = [rate for rate, part in zip(problem.fitted, direction, strict=True) if abs(part) > _PART]
        names = [rate.name for rate in together]
        terms = Counter(law.name for rate in together for law in pricing.laws_with(rate.attribute))
        telling = [name for name, times in terms.items() if times == 1]
        raise UndeterminedError(
            f"{', '.join(names)}: expected rows that tell them apart, got some in which they act together alone: fit "
            f"{runs.one_of(names)}{f', or {_with_more(telling)}' if telling else ' alone'}"
        )


def _felt(problem: Problem, slopes: Vector) -> Vector:
    """Return how much each rate changes the row that feels it most, over its whole range, as a logarithm."""
    felt: Vector = np.max(np.abs(slopes), axis=0) * (problem.high - problem.low)
    return felt


def _telling(rate: hardware.Rate) -> str:
    """Return what row would tell a rate."""
    if rate.name == "session_run":
        return "add a row of a program with a framework whose session run takes milliseconds"
    if rate.part == "host":
        of = "framework pytorch" if rate.name.startswith("pytorch") else "another framework than pytorch"
        return f"add a row of {of} with optimizer state off chip and few micro-batches to a weight update"
    return _with_more([law.name for law in pricing.laws_with(rate.attribute)])


def _with_more(terms: Sequence[str]) -> str:
    return f"add a row in which more of the time is {runs.one_of(terms)} (`ipusim check SCENARIO --costs`)"


def _unlike(slopes: Vector) -> tuple[Vector, Vector]:
    """Return the eigenvalues, ascending, and eigenvectors of what the rates' slopes, each of length 1, have in common.

    The least is 0 where a rate does what others do together, and 1 - c of two rates whose slopes have the cosine c.
    """
    unit = slopes / np.linalg.norm(slopes, axis=0)
    values, vectors = np.linalg.eigh(unit.T @ unit)
    return values, vectors


def _least_unlike(slopes: Vector) -> float:
    return float(_unlike(slopes)[0][0])


def _alike(problem: Problem, slopes: Vector) -> tuple[Alike, ...]:
    """Return rates that are told apart badly: those that correlate, by pairs, in one group."""
    inverse = np.linalg.inv(slopes.T @ slopes)
    deviations = np.sqrt(np.diag(inverse))
    correlations = inverse / np.outer(deviations, deviations)
    groups: list[set[int]] = []
    for one, other in np.argwhere(np.triu(np.abs(correlations) > _ALIKE, 1)).tolist():
        joined = [group for group in groups if group & {one, other}]
        groups = [group for group in groups if group not in joined] + [set.union({one, other}, *joined)]
    return tuple(
        Alike(
            tuple(problem.fitted[at] for at in sorted(group)),
            float(correlations[min(group), max(group)]) if len(group) == 2 else None,
        )
        for group in groups
    )


def _calibration(problem: Problem, x: Vector, left_out: tuple[tuple[hardware.Rate, str], ...]) -> Calibration:
    """Return what was fitted with logarithms ``x``, rounded, and how sure it is."""
    slopes = problem.slopes(x)
    values = [rounded(math.exp(at), _DIGITS) for at in x]
    rates = problem.rows.rates.with_values(
        **{rate.attribute: value for rate, value in zip(problem.fitted, values, strict=True)}
    )
    places = (x - problem.low) / (problem.high - problem.low)
    fitted = tuple(
        FittedRate(rate, getattr(problem.rows.rates, rate.attribute), value, sure, not 0.01 < place < 0.99)
        for rate, value, sure, place in zip(
            problem.fitted, values, _uncertainties(problem.misfits(rates), slopes), places.tolist(), strict=True
        )
    )
    return Calibration(
        problem.rows,
        rates,
        fitted,
        tuple(problem.rows.errors(problem.rows.rates)),
        tuple(problem.rows.errors(rates)),
        _alike(problem, slopes),
        left_out,
        _foreseen(problem),
    )


def _foreseen(problem: Problem) -> dict[int, float]:
    """Return how far off rows are on average that a fit leaves out, by how many rows it has.

    Each row is left out in turn, and rates are fitted to so many of those behind it, the first following the last; by
    the slopes of the rows at the scenarios' rates, as if each were all that a rate did.
    """
    start, slopes = problem.start, problem.slopes(problem.start)
    misfits = problem.misfits(problem.rates(start))
    count, rates = slopes.shape
    found = {0: float(np.mean(np.abs(misfits)))}
    for size in range(rates, count):
        errors = []
        for row in range(count):
            chosen = [(row + 1 + behind) % count for behind in range(size)]
            step = np.linalg.lstsq(slopes[chosen], -misfits[chosen], rcond=None)[0]
            step = np.clip(start + step, problem.low, problem.high) - start
            errors.append(abs(misfits[row] + slopes[row] @ step))
        found[size] = float(np.mean(errors))
    return found


def _uncertainties(misfits: Vector, slopes: Vector) -> list[float | None]:
    """Return half the range in which each rate lies in 95 of 100 cases, as a share of it.

    The rows' own misfits say how far off a row is; none can where there are as many rates as rows.
    """
    from scipy.stats import t  # noqa: PLC0415, 0.5 s to import

    count, rates = slopes.shape
    if count == rates:
        return [None] * rates
    spread = math.sqrt(float(np.sum(np.square(misfits))) / (count - rates))
    times = t.ppf((1 + _SURE) / 2, count - rates)
    return [float(np.expm1(deviation * times)) for deviation in _deviations(slopes, spread)]
