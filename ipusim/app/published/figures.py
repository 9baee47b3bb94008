"""Recompute published figures of schedules from runs of their inputs.

A value is one printed number or order; its figure names the kind of value, such as a makespan. Some figures need
constants of a model, which other values of the publication determine; these are fitted values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Final

from ipusim.api import pipelines, schedules
from ipusim.app.published.case_runs import Case, CaseRun, job_of, run_case
from ipusim.app.published.rows import DIGITS, FITTED, PublishedValue

#: Cycles per published unit of time; keeps passes of up to four stages per device whole.
SCALE: Final = 12_000
_GIB: Final = 2**30
#: Bytes per parameter: 16-bit weight, gradient, and optimizer state.
_BYTES_PER_PARAMETER: Final = {"parameter_bytes": 2, "accumulator_bytes": 4, "state_bytes": 12}

#: Function that computes a figure from a value with its inputs, and from the fitted values of its model.
_Figure = Callable[[PublishedValue, Sequence[PublishedValue]], Fraction | str]


def case_of(row: PublishedValue) -> Case:
    """Return a value's case; times are sums over a device's stages, 1 by default."""
    chunks = row.count("v")

    def cycles(key: str) -> int:
        stage_cycles = row.number(key, default=1) * SCALE / chunks
        assert stage_cycles.denominator == 1, f"{row.table}, {row.group}: expected whole cycles of {key}"
        return int(stage_cycles)

    halves = None if "B" in row.inputs else (cycles("I"), cycles("W"))
    pass_cycles = cycles("F"), cycles("B") if halves is None else sum(halves)
    options = (("micro_batch_group_size", row.count("group")),) if "group" in row.inputs else ()
    copy = int(row.number("c") * SCALE)
    return Case(
        row.schedule, row.count("p"), row.count("m"), pass_cycles, halves, copy, chunks, options, row.count("cap", 0)
    )


def _run_of(row: PublishedValue) -> CaseRun:
    return run_case(case_of(row))


def _over_1f1b(figure: Callable[[CaseRun, int], Fraction]) -> _Figure:
    """Return the ratio of a figure to the figure of 1F1B with equal inputs."""

    def ratio(row: PublishedValue, _: Sequence[PublishedValue]) -> Fraction:
        case_of_1f1b = replace(case_of(replace(row, inputs={**row.inputs, "v": "1"})), schedule="1f1b")
        return figure(_run_of(row), row.count("v")) / figure(run_case(case_of_1f1b), 1)

    return ratio


def _throughput(row: PublishedValue, fit_rows: Sequence[PublishedValue]) -> Fraction:
    """Return samples per second and device, with a fitted constant time per iteration."""

    def samples(point: PublishedValue) -> Fraction:
        return point.number("b", 1) * point.count("m") / point.count("p")

    def seconds(point: PublishedValue) -> Fraction:
        return Fraction(_run_of(point).cost, 1000 * SCALE)

    constants = [samples(point) / point.value - seconds(point) for point in fit_rows]
    constant = sum(constants, start=Fraction(0)) / max(1, len(constants))
    return samples(row) / (seconds(row) + constant)


def _iteration(row: PublishedValue, fit_rows: Sequence[PublishedValue]) -> Fraction:
    """Return an iteration's time: proportional to one fitted value, or on the line through two."""
    points = [(Fraction(_run_of(point).makespan), point.value) for point in fit_rows]
    (first_cycles, first_time), (last_cycles, last_time) = [(Fraction(0), Fraction(0)), *points][-2:]
    slope = (last_time - first_time) / (last_cycles - first_cycles)
    return first_time + slope * (_run_of(row).makespan - first_cycles)


def activation_bytes(row: PublishedValue, keeps: str) -> Fraction:
    """Return a layer's activation bytes on a device, divided by s b h. Source: Korthikanti et al. 2022, table 2."""
    parts = row.number("t")
    scores = 5 * row.number("a") * row.number("s") / (row.number("h") * parts)
    if keeps == "full recomputation":
        return Fraction(2)
    recomputes_scores, is_sequence_parallel = "selective" in keeps, "sequence" in keeps
    return (34 / parts if is_sequence_parallel else 10 + 24 / parts) + (0 if recomputes_scores else scores)


def _layers(row: PublishedValue) -> Fraction:
    return row.number("L") / (row.count("p") * row.count("v"))


def _peaks(row: PublishedValue, **holds: Fraction) -> Sequence[pipelines.Peak]:
    """Return the memory peaks of devices, for stages with given bytes."""
    assert all(size.denominator == 1 for size in holds.values()), f"{row.table}, {row.group}: expected whole bytes"
    return job_of(case_of(row), **{key: int(size) for key, size in holds.items()}).memory.peaks


def _activations(row: PublishedValue, _: Sequence[PublishedValue]) -> Fraction:
    byte_count = prod(map(row.number, "sbh"), start=_layers(row)) * activation_bytes(row, row.name)
    live = pipelines.Holder.LIVE
    return max(
        Fraction(peak.fifo_bytes + dict(peak.holders)[live], _GIB) for peak in _peaks(row, stash_bytes=byte_count)
    )


def _weights(row: PublishedValue, _: Sequence[PublishedValue]) -> Fraction:
    weights = 12 * row.number("h") ** 2 * _layers(row) / row.number("t")
    peaks = _peaks(row, **{key: weights * size for key, size in _BYTES_PER_PARAMETER.items()})
    kinds = pipelines.Holder.PARAMETERS, pipelines.Holder.ACCUMULATORS, pipelines.Holder.STATE
    return max(Fraction(sum(dict(peak.holders)[kind] for kind in kinds), _GIB) for peak in peaks)


def _order(row: PublishedValue, _: Sequence[PublishedValue]) -> str:
    """Return a device's passes in torch's notation."""
    lines = schedules.write_torch_csv(job_of(case_of(row)).plan.order).splitlines()
    return " ".join(filter(None, lines[row.count("device", 0)].split(",")))


def _forwards(number: int) -> _Figure:
    """Return a figure that lists the stages (0) or micro-batches (1) of a device's forward passes."""
    return lambda row, _: " ".join(cell.split("F")[number] for cell in _order(row, ()).split() if "F" in cell)


#: Computation of every printed figure.
FIGURES: Final[Mapping[str, _Figure]] = {
    "bubble rate": lambda row, _: _run_of(row).rate,
    "makespan": lambda row, _: Fraction(_run_of(row).makespan, SCALE),
    "idle": lambda row, _: Fraction(_run_of(row).idle, SCALE),
    "peak": lambda row, _: Fraction(_run_of(row).peak),
    "order": _order,
    "stages of forward passes": _forwards(0),
    "micro-batches of forward passes": _forwards(1),
    "samples/s of a GPU": _throughput,
    "samples/s": lambda row, fit_rows: _throughput(row, fit_rows) * row.count("p"),
    "tokens/s of a GPU": _throughput,
    "s of an iteration": _iteration,
    "ms of an iteration": _iteration,
    # Maximum number of micro-batches held by a device, in samples.
    "GB": lambda row, _: Fraction(_run_of(row).peak, row.count("v")) * row.number("b", 1),
    "GiB of activations": _activations,
    "GiB of weights and optimizer": _weights,
    "% of activations": lambda row, _: 100 * activation_bytes(row, row.name) / activation_bytes(row, ""),
    "bubble over 1F1B's": _over_1f1b(lambda run, _: Fraction(run.bubble)),
    "activations over 1F1B's": _over_1f1b(lambda run, chunks: Fraction(run.peak, chunks)),
    "copies over 1F1B's": _over_1f1b(lambda run, _: Fraction(run.copies)),
}


def _with_hidden_copies(row: PublishedValue) -> Fraction:
    """Return the bubble rate of an interleaved order that waits for fewer copies."""
    devices, chunks, count = (row.count(key) for key in "pvm")
    work = sum(map(row.number, "FIW"), start=Fraction(0))
    cost = (count * chunks + devices - 1) * work / chunks + ((2 * chunks - 1) * devices - 2) * row.number("c")
    return 1 - count * work / cost


#: Check of a value that follows from another rule than its schedule.
EXPLAINED: Final = "p copies hidden"
#: The other rule in words.
EXPLANATION: Final = (
    "Printed rates of 1F1B-I obey cost = (m v + p - 1)(F + I + W) / v + ((2 v - 1) p - 2) c, a form found here. "
    "Megatron's order, timed as soon as possible, waits for 2 (p v - 1) copies, which is p more: each copy on the "
    "way of a micro-batch through all p v stages and back delays the next pass. Which p of them the paper's order "
    "hides is not known."
)


@dataclass(frozen=True)
class ComparedValue:
    """A published value with its computed counterpart.

    Attributes:
        row: published value with inputs.
        value: computed value.
    """

    row: PublishedValue
    value: Fraction | str

    @property
    def number(self) -> Fraction:
        """Computed value of a numeric figure."""
        assert not isinstance(self.value, str), f"expected a number as {self.row.figure}"
        return self.value

    @property
    def explained_value(self) -> Fraction | None:
        """Value given by the explanation of the printed value; None without an explanation."""
        return _with_hidden_copies(self.row) if self.row.check == EXPLAINED else None

    @property
    def is_exact(self) -> bool:
        """Whether printed and computed value agree in every digit."""
        return self.row.printed == self.value if isinstance(self.value, str) else self.row.value == self.value

    @property
    def error(self) -> Fraction:
        """Error of the computed value: relative to the printed value, or in its unit if the check has a unit."""
        difference = self.number - self.row.value
        return difference / self.row.value if self.row.check.endswith("%") else difference

    @property
    def text(self) -> str:
        """Computed value as text, with one digit more than printed if inexact."""
        if isinstance(self.value, str):
            return self.value
        return self.row.printed if self.is_exact else f"{float(self.value):.{self.row.decimals + 1}f}"

    @property
    def verdict(self) -> str:
        """Verdict on the value in a few words."""
        row = self.row
        if not self.holds:
            return "does not hold"
        if row.check == DIGITS:
            return "exact" if self.is_exact else "rounded"
        if row.tolerance is None:
            return row.check if self.explained_value is None else f"explained: {row.check}"
        error = f"{float(self.error):+.1%}" if row.check.endswith("%") else f"{float(self.error):+.2f}"
        return f"{error}, within {row.check}"

    @property
    def holds(self) -> bool:
        """Whether the value satisfies its check; single values of rankings and fitted values always do."""
        if self.row.check == DIGITS:
            return self.is_exact or _is_rounded(self.row, self.value)
        if self.explained_value is not None:
            return _is_rounded(self.row, self.explained_value)
        return self.row.tolerance is None or abs(self.error) <= self.row.tolerance


def _is_rounded(row: PublishedValue, value: Fraction | str) -> bool:
    return not isinstance(value, str) and "/" not in row.printed and round(value, row.decimals) == row.value


def held_values(rows: Sequence[PublishedValue]) -> tuple[ComparedValue, ...]:
    """Compute the counterpart of every value from its inputs."""

    def fit_rows_of(row: PublishedValue) -> list[PublishedValue]:
        model = row.table, row.inputs.get("model")
        return [
            candidate
            for candidate in rows
            if candidate.check == FITTED and (candidate.table, candidate.inputs["model"]) == model
        ]

    return tuple(ComparedValue(row, FIGURES[row.figure](row, fit_rows_of(row))) for row in rows)
