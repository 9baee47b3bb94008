"""Measurements that rates are fitted to: whole trainings and stages, simulated by any rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from ipusim.api import Job, Rates, hardware, runs
from ipusim.app.fidelity.profile import MeasuredPass, passes_of, priced
from ipusim.app.fidelity.throughput_report import row_name
from ipusim.app.fidelity.throughput_rows import ThroughputRow, read_throughputs
from ipusim.app.fidelity.throughputs import SimulatedRow, UpdateTime, prepare_rows, update_times
from ipusim.app.scenario.load import placed_request
from ipusim.app.study.trial import WITH_MISFITS, WITHOUT_ARITHMETIC
from ipusim.base.errors import FileError, OptionError

#: Defaults of the host's rates. Cycles of executions do not depend on these, so that one set of times serves all.
_HOSTS = {rate.attribute: rate.default for rate in hardware.RATES if rate.part == "host"}


class Measured(Protocol):
    """Rows of one kind of measurement, as a fit uses them.

    Attributes:
        names: what each row is.
        scenarios: the scenarios, each with its rates.
        frameworks: the frameworks whose hosts take a part of the time.
        sources: who measured them.
    """

    names: Sequence[str]
    scenarios: Sequence[tuple[Path, Rates]]
    frameworks: Sequence[str]
    sources: Sequence[str]

    def times(self, rates: Rates) -> list[float]:
        """Return the time that each row takes simulated by ``rates``, over the measured one."""

    def errors(self, rates: Rates) -> list[float]:
        """Return how much too large what is simulated of each row is, as a share of what was measured."""


class Throughputs(Measured):
    """Throughputs of whole trainings, in items a second."""

    def __init__(self, rows: Sequence[ThroughputRow]) -> None:
        """Lay the rows out; raises what :func:`ipusim.app.fidelity.throughputs.prepare` does."""
        self._prepared = prepare_rows(rows)
        self._times: dict[Rates, list[UpdateTime]] = {}
        self.names = [f"{row_name(row)}, {row.count} micro-batches" for row in rows]
        self.scenarios = [(training.row.scenario, training.rates) for training in self._prepared]
        self.frameworks = [row.framework for row in rows if row.framework]
        self.sources = [row.source for row in rows if row.source]

    def times(self, rates: Rates) -> list[float]:
        """Return simulated over measured times of a weight update."""
        return [1 / row.row.over(row.items_per_s) for row in self._simulated(rates)]

    def errors(self, rates: Rates) -> list[float]:
        """Return how much too fast each row is simulated."""
        return [row.error for row in self._simulated(rates)]

    def _simulated(self, rates: Rates) -> list[SimulatedRow]:
        apart = rates.with_values(**_HOSTS)
        if apart not in self._times:
            self._times[apart] = update_times(self._prepared, apart)
        pairs = zip(self._prepared, self._times[apart], strict=True)
        return [SimulatedRow(training.row, replace(time, rates=rates)) for training, time in pairs]


@dataclass(frozen=True)
class _Stages:
    """The rows of one scenario's stages."""

    scenario: Path
    job: Job
    rows: tuple[runs.MeasuredStage, ...]


class Profiles(Measured):
    """Cycles of stages, pass by pass."""

    frameworks = ()

    def __init__(self, path: Path) -> None:
        """Read a file, whose scenarios are named from its folder; raises FileError, ScenarioError and OSError."""
        self._called = str(path)
        jobs: dict[str, Job] = {}

        def clock_hz(name: str) -> int:
            jobs[name] = _job(path, name)
            return jobs[name].system.ipu.clock_hz

        stages = runs.read_profiles(path, clock_hz)
        self._stages = [_Stages(path.parent / name, jobs[name], rows) for name, rows in stages.items()]
        self.scenarios = [(stage.scenario, stage.job.system.rates) for stage in self._stages]
        self.sources = [row.source for stage in self._stages for row in stage.rows if row.source]
        passes = [(stage, stage_pass) for stage in self._stages for stage_pass in self._passes(stage)]
        # No rate changes the error of a pass that takes no time measured or simulated.
        self._counts = [stage_pass.measured > 0 and stage_pass.simulated > 0 for _, stage_pass in passes]
        self.names = [
            f"{stage.job.name}, {stage_pass.what} of {stage_pass.stage}"
            for (stage, stage_pass), counts in zip(passes, self._counts, strict=True)
            if counts
        ]

    def times(self, rates: Rates) -> list[float]:
        """Return simulated over measured cycles."""
        passes = [stage_pass for stage in self._stages for stage_pass in self._passes(stage, rates)]
        return [timed.simulated / timed.measured for timed, counts in zip(passes, self._counts, strict=True) if counts]

    def errors(self, rates: Rates) -> list[float]:
        """Return how much too long each pass is simulated."""
        return [time - 1 for time in self.times(rates)]

    def _passes(self, of: _Stages, rates: Rates | None = None) -> Sequence[MeasuredPass]:
        return passes_of(of.job, of.rows, f"{self._called}: {of.scenario.name}", rates)


def _job(path: Path, name: str) -> Job:
    """Return a scenario of the file ``path`` laid out for its passes to be priced."""
    with placed_request(path.parent / name, (WITHOUT_ARITHMETIC, WITH_MISFITS)) as request:
        try:
            return priced(request, "scenario")
        except OptionError as error:
            raise FileError(f"{path}: column scenario: {error.args[1]}: {name}") from None


@dataclass(frozen=True)
class Rows:
    """All rows of some files.

    Attributes:
        files: their names.
        parts: the rows of each.
    """

    files: tuple[str, ...]
    parts: tuple[Measured, ...]

    @property
    def names(self) -> list[str]:
        """What each row is."""
        return [name for part in self.parts for name in part.names]

    @property
    def frameworks(self) -> set[str]:
        """The frameworks whose hosts take a part of some row's time."""
        return {name for part in self.parts for name in part.frameworks}

    @property
    def sources(self) -> list[str]:
        """Who measured them, each once."""
        return list(dict.fromkeys(source for part in self.parts for source in part.sources))

    @property
    def rates(self) -> Rates:
        """The rates of the scenarios, which have the same."""
        return self.parts[0].scenarios[0][1]

    def times(self, rates: Rates) -> list[float]:
        """Return the time that each row takes simulated by ``rates``, over the measured one."""
        return [time for part in self.parts for time in part.times(rates)]

    def errors(self, rates: Rates) -> list[float]:
        """Return how much too large what is simulated of each row is, as a share of what was measured."""
        return [error for part in self.parts for error in part.errors(rates)]


def read_measured(paths: Sequence[Path]) -> Rows:
    """Return the rows of CSV files, each of whole trainings, as :func:`read_throughputs` takes them, or of stages.

    A file of stages has a column ``scenario``, a path from the file's folder, beside the columns of a profile. Raises
    FileError with all mistakes of a file, and for scenarios of different rates; OSError for a file that cannot be
    read; ScenarioError for the mistakes of a scenario.
    """
    parts: tuple[Measured, ...] = tuple(
        Profiles(path) if runs.has_stages(path) else Throughputs(read_throughputs(path)) for path in paths
    )
    rows = Rows(tuple(map(str, paths)), parts)
    for scenario, rates in (entry for part in parts for entry in part.scenarios):
        if rates != rows.rates:
            other = next(
                rate for rate in hardware.RATES if getattr(rates, rate.attribute) != getattr(rows.rates, rate.attribute)
            )
            values = [other.show(getattr(rate_set, other.attribute)) for rate_set in (rows.rates, rates)]
            raise FileError(
                f"{scenario}: expected the rates of {parts[0].scenarios[0][0]}, the start of the fit, got a different "
                f"{other.name}: {values[1]} instead of {values[0]}"
            )
    return rows
