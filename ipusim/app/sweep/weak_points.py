"""Weak points: IPUs and cables whose slowing costs most, tried separately."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from statistics import fmean
from typing import Any, Final

from ipusim.api import Request, assemble, runs
from ipusim.app.render.figures import Chart
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.system_map import SystemMap, system_maps
from ipusim.app.render.tables import Table
from ipusim.app.study.result import Result, Rows
from ipusim.app.study.trial import time_alone
from ipusim.app.sweep.report import SweepResult
from ipusim.app.sweep.sweep import Sweep
from ipusim.app.sweep.vary import Axis
from ipusim.base.errors import OptionError

#: Option varied by the points.
_PATH: Final = "disturbances"
#: Most rows of a table.
_MOST_ROWS: Final = 20
#: Slow-downs below this share of the time count as none.
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
    system = assemble(time_alone(request, misfits=True)).system
    disturbances = [
        {key: float(value) if isinstance(value, Fraction) else value for key, value in disturbance.items()}
        for disturbance in runs.plain(runs.options_set(request.options)).get(_PATH) or []
    ]
    cables = sorted({(ipu, peer) for ipu, ends in system.cables.items() for peer in ends if ipu < peer})
    things: list[dict[str, Any]] = [{"ipu": ipu} for ipu in range(system.count)]
    things += [{"link": list(cable)} for cable in cables]
    return Axis(_PATH, ([*disturbances], *([*disturbances, {**thing, "slower": slower}] for thing in things)))


@dataclass(frozen=True)
class WeakPoints(Result):
    """Cost of slower IPUs and cables.

    Attributes:
        sweep: the runs; :func:`one_at_a_time` makes the first axis.
        slower: factor on the time.
        picture: title, size and theme of the maps.
    """

    sweep: Sweep
    slower: float
    picture: Picture = DEFAULT

    @cached_property
    def slowdowns(self) -> dict[str, dict[tuple[str, int | tuple[int, int]], float]]:
        """Slow-down S of every IPU and cable, by the other varied options."""
        cycles: dict[str, dict[Any, int]] = {}
        for (disturbances, *values), outcome in self.sweep.finished_points:
            if outcome.has_run:
                options = ", ".join(map(str, values))
                cycles.setdefault(options, {})[self._thing(disturbances)] = outcome.run_cycles
        return {
            options: {
                thing: run / max(cycles_of_case[None], 1) for thing, run in cycles_of_case.items() if thing is not None
            }
            for options, cycles_of_case in cycles.items()
            if None in cycles_of_case
        }

    def _thing(self, disturbances: Sequence[Mapping[str, Any]]) -> tuple[str, int | tuple[int, int]] | None:
        """Return the slower IPU or cable of a point; None for the unchanged point."""
        if len(disturbances) == len(self.sweep.axes[0].values[0]):
            return None
        last = disturbances[-1]
        if "ipu" in last:
            return "IPU", last["ipu"]
        source, target = last["link"]
        return "cable", (source, target)

    names = ("sweep.csv", "weak_points.json", "weak_points.png", "weak_points.svg")

    def printout(self) -> Iterator[str | Table]:
        """Yield the verdict and the table."""
        yield from self.words()
        yield self.table()

    def rows(self) -> Rows:
        """Return the rows of the points."""
        return SweepResult(self.sweep).rows()

    def words(self) -> Iterator[str]:
        """Yield the costliest IPU and cable, and the most tolerant schedule."""
        means: dict[str, float] = {}
        for options, slowdowns in self.slowdowns.items():
            texts = []
            for kind in ("IPU", "cable"):
                slowdown_at = {place: cost for (thing_kind, place), cost in slowdowns.items() if thing_kind == kind}
                if slowdown_at:
                    texts.append(self._worst(kind, slowdown_at))
            costs = [cost for (kind, _), cost in slowdowns.items() if kind == "IPU"]
            means |= {options: fmean(costs)} if costs else {}
            yield f"{f'{options}: ' if options else ''}{'; '.join(texts)}."
        if len(means) > 1:
            least = min(means.values())
            best = [options for options, mean in means.items() if mean - least < _TOLERANCE]
            comparison = f"least under {' and '.join(best)}" if len(best) < len(means) else "as much under each"
            yield f"A slow IPU costs {comparison}: S = {least:.3f}, the mean over all IPUs."
        refusals = [outcome.message for _, outcome in self.sweep.finished_points if not outcome.has_run]
        if refusals:
            yield f"{len(refusals)} of {len(self.sweep.finished_points)} did not run, for example: {refusals[0]}"

    def _worst(self, kind: str, slowdowns: Mapping[Any, float]) -> str:
        most = max(slowdowns.values())
        if most < 1 + _TOLERANCE:
            return f"no {kind} with {self.slower:g} times the duration has a cost"
        worst = [_place_name(place) for place, cost in slowdowns.items() if cost > most - _TOLERANCE]
        tie = f" ({len(worst)} tie)" if len(worst) > 1 else ""
        return f"{kind} {worst[0]}{tie} costs most with {self.slower:g} times the duration, S = {most:.3f}"

    def table(self) -> Table:
        """Return S of IPUs and cables by schedule, worst first."""
        things = {thing for slowdowns in self.slowdowns.values() for thing in slowdowns}
        worst = sorted(
            things,
            key=lambda thing: (-max(slowdowns.get(thing, 0.0) for slowdowns in self.slowdowns.values()), str(thing)),
        )
        rows = tuple(
            (
                f"{kind} {_place_name(place)}",
                *(
                    f"{slowdowns[kind, place]:.3f}" if (kind, place) in slowdowns else "-"
                    for slowdowns in self.slowdowns.values()
                ),
            )
            for kind, place in worst[:_MOST_ROWS]
        )
        title = f"S with one part at {self.slower:g} times the duration"
        if len(worst) > _MOST_ROWS:
            title += f", the {_MOST_ROWS} worst of {len(worst)}"
        return Table(title, ("slower", *(options or "S" for options in self.slowdowns)), rows)

    def data(self) -> dict[str, Any]:
        """Return the result as plain data for JSON."""
        return {
            "name": self.sweep.request.name,
            "slower": self.slower,
            "slowdowns": [
                {"under": options, "kind": kind.lower(), "at": place, "slowdown": cost}
                for options, slowdowns in self.slowdowns.items()
                for (kind, place), cost in slowdowns.items()
            ],
        }

    def charts(self) -> dict[str, Callable[[], Chart]]:
        """Return the maps of the system, by the other varied options."""
        return {"weak_points": self._chart}

    def _chart(self) -> Chart:
        request = self.sweep.request
        physical = assemble(time_alone(request, misfits=True)).system.ipus
        maps = []
        for options, slowdowns in self.slowdowns.items():
            ipus = {place: cost for (_, place), cost in slowdowns.items() if isinstance(place, int)}
            cables = {place: cost for (_, place), cost in slowdowns.items() if isinstance(place, tuple)}
            maps.append(SystemMap(options, ipus, cables))
        name = self.picture.title or runs.title_of(request.description) or request.name
        words = (
            "S, the time of the run divided by the time without slower parts, with one IPU or cable at "
            f"{self.slower:g} times"
        )
        most = max((cost for slowdowns in self.slowdowns.values() for cost in slowdowns.values()), default=1.0)
        return system_maps(maps, physical, most, f"{name}\n{words} as long", "S", self.picture)


def _place_name(place: int | tuple[int, int]) -> str:
    return str(place) if isinstance(place, int) else f"{place[0]} to {place[1]}"
