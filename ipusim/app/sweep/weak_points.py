"""Find weak points: the IPUs and cables that cost most time if they become slower, tried one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from statistics import fmean
from typing import Any, Final

from ipusim.api import Request, analysis, assemble, runs
from ipusim.app.render.figures import Chart
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.system_map import SystemMap, system_maps
from ipusim.app.render.tables import Table, text_of
from ipusim.app.study.result import Result, Rows
from ipusim.app.study.trial import time_alone
from ipusim.app.sweep.report import SweepResult
from ipusim.app.sweep.sweep import Sweep
from ipusim.app.sweep.vary import Axis
from ipusim.base.errors import OptionError
from ipusim.base.units import counted

#: Option varied by the points.
_PATH: Final = "disturbances"
#: Maximum number of rows of a table.
_MOST_ROWS: Final = 20
#: Slow-downs by less than this share of the time count as none.
_TOLERANCE: Final = 5e-4


def one_at_a_time(request: Request, slower: float) -> Axis:
    """Return the axis that slows IPUs and cables, one at a time.

    Its first value leaves the request unchanged. Raises OptionError for an invalid factor, and RequestError for an
    invalid request.
    """
    if not 1 < slower < 1000:
        raise OptionError(
            "slower", f"expected a factor on the duration of the work, from above 1 to 1000, got {slower:g}"
        )
    system = assemble(time_alone(request, allow_oversized=True)).system
    disturbances = [
        {key: float(value) if isinstance(value, Fraction) else value for key, value in disturbance.items()}
        for disturbance in runs.plain(runs.options_set(request.options)).get(_PATH) or []
    ]
    cables = sorted({(ipu, peer) for ipu, ends in system.cables.items() for peer in ends if ipu < peer})
    parts: list[dict[str, Any]] = [{"ipu": ipu} for ipu in range(system.count)]
    parts += [{"link": list(cable)} for cable in cables]
    return Axis(_PATH, ([*disturbances], *([*disturbances, {**part, "slower": slower}] for part in parts)))


@dataclass(frozen=True)
class WeakPoints(Result):
    """Cost of slower IPUs and cables.

    Attributes:
        sweep: the runs; :func:`one_at_a_time` gives the first axis.
        slower: factor on the time.
        picture: title, size and theme of the maps.
    """

    sweep: Sweep
    slower: float
    picture: Picture = DEFAULT

    @cached_property
    def slowdowns(self) -> dict[str, dict[str, dict[Any, float]]]:
        """Slow-down S by values of the other varied options, by ``IPU`` or ``cable``, and by its number or ends."""
        count = len(self.sweep.axes[0].values[0])
        undisturbed_cycles: dict[str, int] = {}
        slowdowns: dict[str, dict[str, dict[Any, float]]] = {}
        for (disturbances, *values), outcome in self.sweep.finished_points:  # undisturbed points come first
            options, added = ", ".join(map(str, values)), disturbances[count:]
            if outcome.has_run and not added:
                undisturbed_cycles[options], slowdowns[options] = outcome.run_cycles, {"IPU": {}, "cable": {}}
            for item in added if outcome.has_run and options in undisturbed_cycles else ():
                kind, place = ("IPU", item["ipu"]) if "ipu" in item else ("cable", tuple(item["link"]))
                slowdowns[options][kind][place] = analysis.slowdown(outcome.run_cycles, undisturbed_cycles[options])
        return slowdowns

    @cached_property
    def _labels(self) -> dict[str, str]:
        """Label for each key of ``slowdowns``: words stand alone, other values follow the option's name."""
        names = self.sweep.names[1:]
        return {
            ", ".join(map(str, values)): ", ".join(
                value if isinstance(value, str) else f"{name} {text_of(value)}"
                for name, value in zip(names, values, strict=True)
            )
            for (_, *values), _ in self.sweep.finished_points
        }

    names = ("sweep.csv", "weak_points.json", "weak_points.png", "weak_points.svg")

    def printout(self) -> Iterator[str | Table]:
        """Yield the verdict and the table."""
        yield from self.words()
        yield self.table()

    def rows(self) -> Rows:
        """Return the rows of the points."""
        return SweepResult(self.sweep).rows()

    def words(self) -> Iterator[str]:
        """Yield the IPU and the cable that cost most, and the schedule under which slow IPUs cost least."""
        means: dict[str, float] = {}
        for options, slowdowns in self.slowdowns.items():
            texts = [self._worst(kind, slowdown_at) for kind, slowdown_at in slowdowns.items() if slowdown_at]
            costs = slowdowns["IPU"].values()
            means |= {options: fmean(costs)} if costs else {}
            yield f"{f'{self._labels[options]}: ' if options else ''}{'; '.join(texts)}."
        if len(means) > 1:
            least = min(means.values())
            best = [self._labels[options] for options, mean in means.items() if mean - least < _TOLERANCE]
            comparison = f"least under {' and '.join(best)}" if len(best) < len(means) else "as much under each"
            yield f"A slow IPU costs {comparison}: S = {least:.3f}, the mean over all IPUs."
        refusals = [outcome.message for _, outcome in self.sweep.finished_points if not outcome.has_run]
        if refusals:
            yield f"{len(refusals)} of {len(self.sweep.finished_points)} did not run, for example: {refusals[0]}"

    def _worst(self, kind: str, slowdowns: Mapping[Any, float]) -> str:
        most = max(slowdowns.values())
        if most < 1 + _TOLERANCE:
            return f"no {kind} with {self.slower:g} times the duration has a cost"
        ranked = sorted(slowdowns.items(), key=lambda item: -item[1])
        worst = [_place_name(place) for place, slowdown in ranked if slowdown > most - _TOLERANCE]
        others = len(worst) - 1
        tie = f" ({counted(others, 'other')} cost{'s' if others == 1 else ''} as much)" if others else ""
        return f"{kind} {worst[0]} costs most{tie} with {self.slower:g} times the duration, S = {most:.3f}"

    def table(self) -> Table:
        """Return a table of S by slower IPU or cable, with a column for each combination of options, worst first."""
        columns = [
            {
                (kind, place): slowdown
                for kind, slowdown_at in slowdowns.items()
                for place, slowdown in slowdown_at.items()
            }
            for slowdowns in self.slowdowns.values()
        ]
        parts = {part: max(column.get(part, 0.0) for column in columns) for column in columns for part in column}
        worst = sorted(parts, key=lambda part: (-parts[part], str(part)))
        rows = tuple(
            (
                f"{kind} {_place_name(place)}",
                *(f"{column[kind, place]:.3f}" if (kind, place) in column else "-" for column in columns),
            )
            for kind, place in worst[:_MOST_ROWS]
        )
        title = f"S with one part at {self.slower:g} times the duration"
        if len(worst) > _MOST_ROWS:
            title += f", the {_MOST_ROWS} worst of {len(worst)}"
        return Table(title, ("slower", *(self._labels[options] or "S" for options in self.slowdowns)), rows)

    def data(self) -> dict[str, Any]:
        """Return the result as plain data for JSON."""
        return {
            "name": self.sweep.request.name,
            "slower": self.slower,
            "slowdowns": [
                {"under": options, "kind": kind.lower(), "at": place, "slowdown": cost}
                for options, slowdowns in self.slowdowns.items()
                for kind, slowdown_at in slowdowns.items()
                for place, cost in slowdown_at.items()
            ],
        }

    def charts(self) -> dict[str, Callable[[], Chart]]:
        """Return the maps of the system, by the other varied options."""
        return {"weak_points": self._chart}

    def _chart(self) -> Chart:
        request = self.sweep.request
        physical = assemble(time_alone(request, allow_oversized=True)).system.ipus
        maps = [
            SystemMap(self._labels[options], kinds["IPU"], kinds["cable"]) for options, kinds in self.slowdowns.items()
        ]
        name = self.picture.title or runs.title_of(request.description) or request.name
        words = (
            "S, the time of the run divided by the time without slower parts, with one IPU or cable at "
            f"{self.slower:g} times"
        )
        most = max((cost for shown in maps for cost in (*shown.ipus.values(), *shown.cables.values())), default=1.0)
        return system_maps(maps, physical, most, f"{name}\n{words} as long", "S", self.picture)


def _place_name(place: int | tuple[int, int]) -> str:
    return str(place) if isinstance(place, int) else f"{place[0]} to {place[1]}"
