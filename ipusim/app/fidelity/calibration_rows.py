"""Prepare measured trainings or stages, so that a fit can simulate them again with any rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

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


class Measurements(Protocol):
    """Rows of one kind of measurement (trainings or stages), prepared for a fit.

    Attributes:
        names: names of the rows.
        scenarios: scenarios of the rows, including rates.
        frameworks: frameworks whose time on the host is part of a row.
        sources: authors of the measurements.
    """

    names: Sequence[str]
    scenarios: Sequence[tuple[Path, Rates]]
    frameworks: Sequence[str]
    sources: Sequence[str]

    def time_ratios(self, rates: Rates) -> list[float]:
        """Return simulated over measured time per row, with ``rates``."""

    def errors(self, rates: Rates) -> list[float]:
        """Return the relative error of the simulated figure per row; positive if too large."""


class Throughputs(Measurements):
    """Throughputs of whole trainings, in items a second."""

    def __init__(self, rows: Sequence[ThroughputRow]) -> None:
        """Prepare the rows.

        Raises FileError, with a row's position, for errors of its scenario and for a pipeline that is never full.
        """
        self._trainings = prepare_rows(rows)
        self._times: dict[Rates, list[UpdateTime]] = {}
        self.names = [f"{row_name(row)}, {row.count} micro-batches" for row in rows]
        self.scenarios = [(training.row.scenario, training.rates) for training in self._trainings]
        self.frameworks = [row.framework for row in rows if row.framework]
        self.sources = [row.source for row in rows if row.source]

    def time_ratios(self, rates: Rates) -> list[float]:
        """Return simulated over measured time of a weight update per row, with ``rates``."""
        return [1 / simulated.row.ratio(simulated.items_per_s) for simulated in self._simulate(rates)]

    def errors(self, rates: Rates) -> list[float]:
        """Return the relative error of the simulated throughput per row; positive if too fast."""
        return [simulated.error for simulated in self._simulate(rates)]

    def _simulate(self, rates: Rates) -> list[SimulatedRow]:
        device_rates = rates.with_values(**_DEFAULT_HOST_RATES)
        if device_rates not in self._times:
            self._times[device_rates] = update_times(self._trainings, device_rates)
        pairs = zip(self._trainings, self._times[device_rates], strict=True)
        return [SimulatedRow(training, replace(time, rates=rates)) for training, time in pairs]


@dataclass(frozen=True)
class _ScenarioRows:
    """Measured stages of a scenario."""

    scenario: Path
    job: Job
    rows: tuple[runs.MeasuredStage, ...]


class Profiles(Measurements):
    """Cycles of stages, pass by pass."""

    frameworks = ()

    def __init__(self, path: Path) -> None:
        """Read a file with scenario paths relative to its folder; raises FileError, ScenarioError and OSError."""
        self._file = str(path)
        jobs: dict[str, Job] = {}

        def load_and_get_clock(name: str) -> int:
            """Load a scenario's Job into ``jobs``, and return its clock in Hz."""
            jobs[name] = _job(path, name)
            return jobs[name].system.ipu.clock_hz

        stages = runs.read_profiles(path, load_and_get_clock)
        self._by_scenario = [_ScenarioRows(path.parent / name, jobs[name], rows) for name, rows in stages.items()]
        self.scenarios = [
            (scenario_rows.scenario, scenario_rows.job.system.rates) for scenario_rows in self._by_scenario
        ]
        self.sources = [row.source for scenario_rows in self._by_scenario for row in scenario_rows.rows if row.source]
        passes = [
            (scenario_rows, stage_pass)
            for scenario_rows in self._by_scenario
            for stage_pass in self._passes(scenario_rows)
        ]
        # A pass without measured or simulated time has the same error at any rates.
        self._is_in_fit = [stage_pass.measured > 0 and stage_pass.simulated > 0 for _, stage_pass in passes]
        self.names = [
            f"{scenario_rows.job.name}, {stage_pass.name} of {stage_pass.stage}"
            for (scenario_rows, stage_pass), is_in_fit in zip(passes, self._is_in_fit, strict=True)
            if is_in_fit
        ]

    def time_ratios(self, rates: Rates) -> list[float]:
        """Return simulated over measured cycles per pass, with ``rates``."""
        passes = [
            stage_pass for scenario_rows in self._by_scenario for stage_pass in self._passes(scenario_rows, rates)
        ]
        return [
            stage_pass.simulated / stage_pass.measured
            for stage_pass, is_in_fit in zip(passes, self._is_in_fit, strict=True)
            if is_in_fit
        ]

    def errors(self, rates: Rates) -> list[float]:
        """Return the relative error of the simulated cycles per pass; positive if too long."""
        return [ratio - 1 for ratio in self.time_ratios(rates)]

    def _passes(self, scenario_rows: _ScenarioRows, rates: Rates | None = None) -> Sequence[MeasuredPass]:
        return passes_of(scenario_rows.job, scenario_rows.rows, f"{self._file}: {scenario_rows.scenario.name}", rates)


def _job(path: Path, name: str) -> Job:
    """Return the Job, with priced pass cycles, of a scenario named in the file ``path``."""
    with placed_request(path.parent / name, (WITHOUT_ARITHMETIC, ALLOW_OVERSIZED)) as request:
        try:
            return priced_job(request, "scenario")
        except OptionError as error:
            raise FileError(f"{path}: column scenario: {error.args[1]}: {name}") from None


@dataclass(frozen=True)
class Rows:
    """Rows of several files.

    Attributes:
        files: names of the files.
        parts: rows per file.
    """

    files: tuple[str, ...]
    parts: tuple[Measurements, ...]

    @property
    def names(self) -> list[str]:
        """Names of the rows."""
        return [name for part in self.parts for name in part.names]

    @property
    def frameworks(self) -> set[str]:
        """Frameworks whose time on the host is part of a row."""
        return {name for part in self.parts for name in part.frameworks}

    @property
    def sources(self) -> list[str]:
        """Distinct authors of the measurements."""
        return list(dict.fromkeys(source for part in self.parts for source in part.sources))

    @property
    def rates(self) -> Rates:
        """Common rates of the scenarios."""
        return self.parts[0].scenarios[0][1]

    def time_ratios(self, rates: Rates) -> list[float]:
        """Return simulated over measured time per row, with ``rates``."""
        return [time for part in self.parts for time in part.time_ratios(rates)]

    def errors(self, rates: Rates) -> list[float]:
        """Return the relative error of the simulated figure per row; positive if too large."""
        return [error for part in self.parts for error in part.errors(rates)]


def read_measured(paths: Sequence[Path]) -> Rows:
    """Return the rows of CSV files; a file has whole trainings in the format of :func:`read_throughputs`, or stages.

    A file of stages has the columns of a profile and a column ``scenario``, a path relative to the file's folder.
    Raises FileError for mistakes in a file and for scenarios with different rates, OSError for an unreadable file, and
    ScenarioError for mistakes in a scenario.
    """
    parts: tuple[Measurements, ...] = tuple(
        Profiles(path) if runs.has_stages(path) else Throughputs(read_throughputs(path)) for path in paths
    )
    rows = Rows(tuple(map(str, paths)), parts)
    for scenario, rates in (entry for part in parts for entry in part.scenarios):
        if rates != rows.rates:
            mismatch = next(
                rate for rate in hardware.RATES if getattr(rates, rate.attribute) != getattr(rows.rates, rate.attribute)
            )
            values = [mismatch.show(getattr(rate_set, mismatch.attribute)) for rate_set in (rows.rates, rates)]
            raise FileError(
                f"{scenario}: expected the rates of {parts[0].scenarios[0][0]}, since a fit starts from the same "
                f"rates for all scenarios, got a different {mismatch.name}: {values[1]} instead of {values[0]}"
            )
    return rows
