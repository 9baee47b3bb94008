"""Prepare measured trainings or stages, so that a fit can simulate them again with any rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, compress
from pathlib import Path

from ipusim.api import Job, Rates, hardware, runs
from ipusim.app.fidelity.profile import MeasuredPass, passes_of, priced_job
from ipusim.app.fidelity.throughput_report import row_name
from ipusim.app.fidelity.throughput_rows import ThroughputRow, read_throughputs
from ipusim.app.fidelity.throughputs import SimulatedRow, UpdateTime, prepare_rows, update_times
from ipusim.app.scenario.load import placed_request
from ipusim.app.study.trial import ALLOW_OVERSIZED, WITHOUT_ARITHMETIC
from ipusim.base.errors import FileError, OptionError

#: Default host rates. Cycles do not depend on host rates, so one simulation with these rates serves rows of every host.
_DEFAULT_HOST_RATES = {rate.attribute: rate.default for rate in hardware.RATES if rate.part == "host"}


@dataclass(frozen=True)
class Rows:
    """Measured rows, prepared for a fit.

    Attributes:
        names: names of the rows.
        scenarios: scenarios of the rows, including rates.
        sources: authors of the measurements.
        time_ratios: function from rates to simulated over measured time per row.
        errors: function from rates to the relative error of the simulated figure per row; positive if too large.
        frameworks: frameworks whose time on the host is part of a row.
        files: names of the files.
    """

    names: Sequence[str]
    scenarios: Sequence[tuple[Path, Rates]]
    sources: Sequence[str]
    time_ratios: Callable[[Rates], list[float]]
    errors: Callable[[Rates], list[float]]
    frameworks: Sequence[str] = ()
    files: Sequence[str] = ()

    @property
    def rates(self) -> Rates:
        """Common rates of the scenarios."""
        return self.scenarios[0][1]


def throughputs(rows: Sequence[ThroughputRow]) -> Rows:
    """Prepare throughputs of whole trainings, in items a second.

    Raises FileError, with a row's position, for errors of its scenario and for a pipeline that is never full.
    """
    trainings = prepare_rows(rows)

    @cache
    def times(device_rates: Rates) -> list[UpdateTime]:
        return update_times(trainings, device_rates)

    def simulate(rates: Rates) -> list[SimulatedRow]:
        pairs = zip(trainings, times(rates.with_values(**_DEFAULT_HOST_RATES)), strict=True)
        return [SimulatedRow(training, replace(time, rates=rates)) for training, time in pairs]

    return Rows(
        [f"{row_name(row)}, {row.count} micro-batches" for row in rows],
        [(training.row.scenario, training.rates) for training in trainings],
        [row.source for row in rows if row.source],
        lambda rates: [1 / simulated.row.ratio(simulated.items_per_s) for simulated in simulate(rates)],
        lambda rates: [simulated.error for simulated in simulate(rates)],
        [row.framework for row in rows if row.framework],
    )


def _profiles(path: Path) -> Rows:
    """Prepare cycles of stages, pass by pass, from a file with scenario paths relative to its folder."""
    jobs: dict[str, Job] = {}

    def load_and_get_clock(name: str) -> int:
        """Return a scenario's clock in Hz, keeping the Job in ``jobs``."""
        jobs[name] = _job(path, name)
        return jobs[name].system.ipu.clock_hz

    stages = runs.read_profiles(path, load_and_get_clock)

    def passes(rates: Rates | None = None) -> list[tuple[str, MeasuredPass]]:
        return [
            (jobs[name].name, stage_pass)
            for name, rows in stages.items()
            for stage_pass in passes_of(jobs[name], rows, f"{path}: {Path(name).name}", rates)
        ]

    # A pass without measured or simulated time has the same error at any rates.
    is_in_fit = [stage_pass.measured > 0 and stage_pass.simulated > 0 for _, stage_pass in passes()]

    def time_ratios(rates: Rates) -> list[float]:
        return [stage_pass.simulated / stage_pass.measured for _, stage_pass in compress(passes(rates), is_in_fit)]

    return Rows(
        [f"{name}, {stage_pass.name} of {stage_pass.stage}" for name, stage_pass in compress(passes(), is_in_fit)],
        [(path.parent / name, jobs[name].system.rates) for name in stages],
        [row.source for row in chain.from_iterable(stages.values()) if row.source],
        time_ratios,
        lambda rates: [ratio - 1 for ratio in time_ratios(rates)],
    )


def _job(path: Path, name: str) -> Job:
    """Return the Job, with priced pass cycles, of a scenario named in the file ``path``."""
    with placed_request(path.parent / name, (WITHOUT_ARITHMETIC, ALLOW_OVERSIZED)) as request:
        try:
            return priced_job(request, "scenario")
        except OptionError as error:
            raise FileError(f"{path}: column scenario: {error.args[1]}: {name}") from None


def read_measured(paths: Sequence[Path]) -> Rows:
    """Return the rows of CSV files; a file has whole trainings in the format of :func:`read_throughputs`, or stages.

    A file of stages has the columns of a profile and a column ``scenario``, a path relative to the file's folder.
    Raises OptionError for a repeated file, FileError for mistakes in a file and for scenarios with different rates,
    OSError for an unreadable file, and ScenarioError for mistakes in a scenario.
    """
    if repeated := next((path for path in paths if paths.count(path) > 1), None):
        raise OptionError("fit", f"expected each file once, got {repeated} a second time")
    parts = [_profiles(path) if runs.has_stages(path) else throughputs(read_throughputs(path)) for path in paths]
    rows = Rows(
        [name for part in parts for name in part.names],
        [scenario for part in parts for scenario in part.scenarios],
        list(dict.fromkeys(source for part in parts for source in part.sources)),
        lambda rates: [time for part in parts for time in part.time_ratios(rates)],
        lambda rates: [error for part in parts for error in part.errors(rates)],
        [name for part in parts for name in part.frameworks],
        [*map(str, paths)],
    )
    for scenario, rates in rows.scenarios:
        if rates != rows.rates:
            mismatch = next(
                rate for rate in hardware.RATES if getattr(rates, rate.attribute) != getattr(rows.rates, rate.attribute)
            )
            values = [mismatch.show(getattr(rate_set, mismatch.attribute)) for rate_set in (rows.rates, rates)]
            raise FileError(
                f"{scenario}: expected the rates of {rows.scenarios[0][0]}, since a fit starts from the same "
                f"rates for all scenarios, got a different {mismatch.name}: {values[1]} instead of {values[0]}"
            )
    return rows
