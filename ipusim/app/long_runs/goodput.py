"""What is left of a training's time where parts of the system fail: goodput, and the checkpoints that cost least."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import exp, sqrt
from typing import Any, Final

import numpy as np

from ipusim.api import Timeline, analysis, hardware, timelines
from ipusim.app.long_runs.renewal import Lived, Renewal
from ipusim.app.render.figures import Chart, to_png
from ipusim.app.render.goodput import LostTime, goodput_chart
from ipusim.app.render.tables import Table
from ipusim.app.run_folder.report import json_bytes
from ipusim.base.errors import OptionError, QuantityError
from ipusim.base.near_names import did_you_mean
from ipusim.base.units import format_figure, format_long, parse_quantity

#: Every file that following a training writes.
GOODPUT_FILES: Final = ("goodput.json", "goodput.png")
#: Seconds that a training may be followed for, and failures of all trainings that are drawn at most.
_LONGEST_S: Final = 3.2e9
_MOST_FAILURES: Final = 20_000_000
#: Trainings at most, each with failures of its own.
_MOST_TRAININGS: Final = 100_000
#: How many times as long and as short as the best times between checkpoints a picture shows, and its points.
_AROUND: Final = 16
_POINTS: Final = 240
#: Times between checkpoints that a picture has trainings of.
_DRAWN: Final = 7
#: The name of the time between checkpoints that loses least.
_LEAST: Final = "least lost"
#: Spans of losses, and of checkpoints against them.
_LOSSES: Final = timelines.kinds_with(lambda row: row.category == "fault")
#: Percentiles of trainings that are printed.
_PERCENTILES: Final = (5, 95)


@dataclass(frozen=True)
class Period:
    """The time between two checkpoints, by the source that recommends it.

    Attributes:
        name: of the rule.
        updates: weight updates between checkpoints.
        waste: the share of the time that is lost, exactly.
        trainings: with failures drawn at random.
        wall_s: seconds of a training.
    """

    name: str
    updates: int
    waste: float
    trainings: tuple[Lived, ...]
    wall_s: float

    @cached_property
    def wastes(self) -> list[float]:
        """The share of the time that is lost by each training."""
        return [1 - lived.work_s / self.wall_s for lived in self.trainings]

    @property
    def mean_waste(self) -> float:
        """The share of the time that the trainings lose on average."""
        return float(np.mean(self.wastes))

    @property
    def standard_error(self) -> float:
        """Of the mean; 0 of a single training."""
        return float(np.std(self.wastes, ddof=1)) / sqrt(len(self.wastes)) if len(self.wastes) > 1 else 0.0


@dataclass(frozen=True)
class Goodput:
    """The goodput of a training of days, and the parts of its time.

    Attributes:
        name: of what trains.
        run_devices: IPUs of the run.
        samples_per_s: while nothing fails.
        settings: failures, checkpoints and days.
        renewal: update, failures, checkpoints and recovery.
        periods: times between checkpoints, the one that trainings are judged by first.
    """

    name: str
    run_devices: int
    samples_per_s: float
    settings: Settings
    renewal: Renewal
    periods: tuple[Period, ...]

    @property
    def chosen(self) -> Period:
        """The time between checkpoints that trainings are judged by."""
        return self.periods[0]

    @property
    def effective(self) -> float:
        """The effective training time: the share of the time that goes into updates that are kept, on average."""
        return 1 - self.chosen.mean_waste

    @property
    def restarting(self) -> float:
        """The share of the time that detection and restarts take, exactly: 1 - e^(-R / mu)."""
        return 1 - exp(-self.renewal.recovery_s / self.renewal.mtbf_s)

    def words(self) -> Iterator[str]:
        """Yield the verdict."""
        renewal, chosen, over = self.renewal, self.chosen, format_long(self.settings.wall_s)
        low, high = (1 - waste for waste in np.percentile(chosen.wastes, _PERCENTILES[::-1]))
        trainings = len(chosen.trainings)
        spread = "of one training"
        if trainings > 1:
            spread = f"5th to 95th percentile of {trainings} trainings: {_percent(low)} to {_percent(high)}"
        of_copies = f" on the {self.run_devices:,} IPUs of the run" if self.settings.devices != self.run_devices else ""
        yield (
            f"{_percent(self.effective)} of {over} is effective training time ({spread}): "
            f"{format_figure(self.effective * self.settings.wall_s / renewal.update_s, 4)} weight updates of "
            f"{format_long(renewal.update_s)}, {format_figure(self.effective * self.samples_per_s, 4)} samples/s "
            f"instead of {format_figure(self.samples_per_s, 4)}{of_copies}."
        )
        of = f"{self.settings.devices:,} IPUs fail" if self.settings.devices > 1 else "The IPU fails"
        yield (
            f"{of} every {format_long(renewal.mtbf_s)} on average, "
            f"{format_figure(self.settings.wall_s / renewal.mtbf_s)} times in {over}"
            + (f" ({'; '.join(self.settings.sources)})." if self.settings.sources else ".")
        )
        best = next(period for period in self.periods if _LEAST in period.name)
        if best is not chosen:
            yield (
                f"A checkpoint every {_updates(best.updates)} would lose least, {_percent(best.waste)} instead of "
                f"{_percent(chosen.waste)}."
            )

    def tables(self) -> Iterator[Table]:
        """Yield tables of the parts of the time, the times between checkpoints, and the failures of each component."""
        yield self._time_table()
        yield self._period_table()
        if len(self.settings.mtbf_s) > 1:
            rows = tuple(
                (name, format_long(mtbf), format_figure(self.settings.wall_s / mtbf))
                for name, mtbf in self.settings.mtbf_s.items()
            )
            yield Table("Failures", ("component", "mean time between", "expected"), rows)

    def _time_table(self) -> Table:
        trainings = self.chosen.trainings
        parts = {
            "weight updates": [lived.work_s for lived in trainings],
            "writing checkpoints": [lived.checkpoints_s for lived in trainings],
            "work lost": [lived.lost_s for lived in trainings],
            "detection": [lived.detection_s for lived in trainings],
            "restarts": [lived.restart_s for lived in trainings],
        }
        rows = []
        for name, seconds in parts.items():
            low, high = np.percentile(seconds, _PERCENTILES)
            mean = float(np.mean(seconds))
            cells = (_percent(share / self.settings.wall_s) for share in (mean, low, high))
            rows.append((name, format_long(mean), *cells))
        title = (
            f"Where {format_long(self.settings.wall_s)} go, of {len(trainings)} training{'s' * (len(trainings) > 1)}"
        )
        return Table(title, ("", "mean", "share", "5th percentile", "95th percentile"), tuple(rows))

    def _period_table(self) -> Table:
        rows = tuple(
            (
                period.name,
                f"{period.updates:,}",
                format_long(period.updates * self.renewal.update_s),
                _percent(period.waste),
                f"{100 * period.mean_waste:.2f} ± {100 * period.standard_error:.2f} %",
            )
            for period in self.periods
        )
        title = "Time between checkpoints"
        if self.renewal.checkpoint_s and self.renewal.first_order_waste < 1:  # else it is no estimate
            title += f"; to first order, the best loses {_percent(self.renewal.first_order_waste)}"
        return Table(title, ("by", "updates", "time", "lost, exactly", "lost, drawn"), rows)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data for JSON: seconds, and shares of 1."""
        trainings = self.chosen.trainings
        return {
            "name": self.name,
            "devices": self.settings.devices,
            "wall_s": self.settings.wall_s,
            "samples_per_s": self.samples_per_s,
            "renewal": asdict(self.renewal),
            "mtbf_s": dict(self.settings.mtbf_s),
            "sources": list(self.settings.sources),
            "effective_training_time": self.effective,
            "goodput_samples_per_s": self.effective * self.samples_per_s,
            "first_order_waste": self.renewal.first_order_waste,
            "periods": [
                {
                    "by": period.name,
                    "updates": period.updates,
                    "waste": period.waste,
                    "drawn_waste": period.mean_waste,
                    "standard_error": period.standard_error,
                }
                for period in self.periods
            ],
            "seed": self.settings.seed,
            "trainings": {key: [asdict(lived)[key] for lived in trainings] for key in asdict(trainings[0])},
        }


def mean_times(failures: Sequence[str], devices: int) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return the mean seconds between failures by component, and the sources of those of a record.

    Args:
        failures: words of a user, such as ``llama3`` (a record, scaled to the devices), ``3.1 h`` (of the system) or
            ``host=2000 h`` (of all components of a name together).
        devices: that may fail, of records.

    Raises:
        OptionError: for words that are none of these, and a component that is there twice.
    """
    times: dict[str, float] = {}
    sources = []
    for words in failures:
        record = hardware.FAILURES.get(words.strip())
        if record is not None:
            rate = f"{record.per_device_hour:.3g} failures of a device in an hour"
            sources.append(f"{record.source}: {rate}")
            more = record.mtbf_s(devices)
        else:
            name, equals, text = words.rpartition("=")
            more = {name.strip() if equals else "the system": _positive_s(text, words)}
        if twice := [name for name in more if name in times]:
            raise OptionError("mtbf", f"expected each component once, got {twice[0]} a second time")
        times |= more
    return times, tuple(sources)


def _positive_s(text: str, words: str) -> float:
    try:
        seconds = float(parse_quantity(text, "time"))
    except QuantityError as error:
        names = tuple(hardware.FAILURES)
        known = f"or the name of a record, {', '.join(names)}{did_you_mean(words, names)}"
        raise OptionError("mtbf", f"{error}; {known}") from None
    if seconds <= 0:
        raise OptionError("mtbf", f"expected a time above 0, got {words!r}")
    return seconds


@dataclass(frozen=True)
class Settings:
    """The settings of trainings with failures.

    Attributes:
        mtbf_s, sources: as :func:`mean_times` returns them.
        devices: that may fail.
        wall_s: seconds of a training.
        checkpoint_s, detect_s, restart_s: those of :class:`~ipusim.app.long_runs.renewal.Renewal`.
        every: weight updates between checkpoints; None for those that lose least.
        trainings: how many, each with failures of its own.
        seed: of the first.
    """

    mtbf_s: Mapping[str, float]
    sources: tuple[str, ...]
    devices: int
    wall_s: float
    checkpoint_s: float = 0.0
    detect_s: float = 0.0
    restart_s: float = 0.0
    every: int | None = None
    trainings: int = 200
    seed: int = 0

    def check(self) -> None:
        """Raise OptionError for what is out of bounds."""
        if not 0 < self.wall_s <= _LONGEST_S:
            raise OptionError("over", f"expected a time above 0 of at most 100 years, got {format_long(self.wall_s)}")
        if not 1 <= self.trainings <= _MOST_TRAININGS:
            raise OptionError("seeds", f"expected from 1 to {_MOST_TRAININGS:,} trainings, got {self.trainings:,}")
        expected = self.trainings * self.wall_s * sum(1 / mtbf for mtbf in self.mtbf_s.values())
        if expected > _MOST_FAILURES:
            limit = f"at most {_MOST_FAILURES:,} failures in all trainings together"
            raise OptionError(
                "seeds", f"expected {limit}, got some {expected:,.0f}: fewer trainings or days have fewer"
            )


def goodput(timeline: Timeline, settings: Settings) -> Goodput:
    """Return the goodput of a training with failures whose weight updates take as long as a run's.

    Args:
        timeline: of the run.
        settings: failures, checkpoints and days.

    Raises:
        OptionError: for what is out of bounds, a run without weight updates, and one with losses of its own.
    """
    settings.check()
    rates = analysis.throughput_of(timeline)
    if not timeline.info.training:
        raise OptionError("run", "expected a run that trains, got one of inference")
    if not rates.weight_update_period_s:
        raise OptionError("run", "expected a run whose weight update takes time, got one that takes none")
    if len(timeline.rows(*_LOSSES)):
        text = "expected a run without losses of IPUs and checkpoints, which are drawn here, got one whose disturbances"
        raise OptionError("run", f"{text} have them")
    mtbf_s = 1 / sum(1 / mtbf for mtbf in settings.mtbf_s.values())
    renewal = Renewal(
        rates.weight_update_period_s, mtbf_s, settings.checkpoint_s, settings.detect_s, settings.restart_s
    )
    rules = {
        **({} if settings.every is None else {"the option": settings.every}),
        _LEAST: renewal.best_updates(),
        "Young (1974)": renewal.updates(renewal.young_s),
        "Daly (2006)": renewal.updates(renewal.daly_s),
    }
    names: dict[int, list[str]] = {}
    for name, updates in rules.items():
        names.setdefault(updates, []).append(name)
    periods = tuple(followed(renewal, ", ".join(words), updates, settings) for updates, words in names.items())
    return Goodput(
        name=timeline.info.name,
        run_devices=devices_of(timeline),
        samples_per_s=rates.samples_per_s,
        settings=settings,
        renewal=renewal,
        periods=periods,
    )


def followed(renewal: Renewal, name: str, updates: int, settings: Settings) -> Period:
    """Return the times of trainings with a checkpoint after so many updates, each with failures by a seed."""
    draws = (np.random.default_rng(settings.seed + number) for number in range(settings.trainings))
    lived = tuple(renewal.lived(updates, settings.wall_s, rng) for rng in draws)
    return Period(name, updates, renewal.waste(updates), lived, settings.wall_s)


def devices_of(timeline: Timeline) -> int:
    """Return the IPUs that a run takes, of all its replicas and hosts."""
    info = timeline.info
    return len(info.ipu_rows) * info.hosts


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _updates(number: int) -> str:
    return f"{number:,} weight updates" if number != 1 else "weight update"


def goodput_files(result: Goodput) -> dict[str, bytes]:
    """Return the content of every file of what became of a training, by its name."""
    return {"goodput.json": json_bytes(result.to_dict()), "goodput.png": to_png(_chart(result))}


def _chart(result: Goodput) -> Chart:
    """Return a chart of the lost time by the time between checkpoints, around the least."""
    renewal, chosen = result.renewal, result.chosen
    update_s = renewal.update_s
    best_s = renewal.best_updates() * update_s
    work_s = np.geomspace(max(best_s / _AROUND, update_s), max(best_s, 2 * update_s) * _AROUND, _POINTS)
    waste = np.array([renewal.waste(work / update_s) for work in work_s])
    written = (1 - waste) * renewal.checkpoint_s / work_s
    restarting = np.full_like(waste, result.restarting)
    shown = {renewal.updates(work) for work in np.geomspace(work_s[0], work_s[-1], _DRAWN + 2)[1:-1]}
    drawn = [followed(renewal, "", updates, result.settings) for updates in sorted(shown)]
    name = f"{_updates(chosen.updates)}, {format_long(chosen.updates * update_s)}: {_percent(chosen.waste)}"
    lost = LostTime(
        work_s,
        (restarting, np.maximum(waste - restarting - written, 0.0), written),
        renewal.first_order(work_s),
        [(period.updates * update_s, period.mean_waste, period.standard_error) for period in drawn],
        (chosen.updates * update_s, chosen.waste, name),
    )
    words = f"{result.settings.devices:,} IPUs, a failure every {format_long(renewal.mtbf_s)}"
    return goodput_chart(lost, f"{result.name}\n{words}")
