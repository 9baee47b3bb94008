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
_NOTHING: Final = 5e-4


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
    own = [
        {key: float(value) if isinstance(value, Fraction) else value for key, value in disturbance.items()}
        for disturbance in runs.plain(runs.options_set(request.options)).get(_PATH) or []
    ]
    cables = sorted({(ipu, other) for ipu, ends in system.cables.items() for other in ends if ipu < other})
    things: list[dict[str, Any]] = [{"ipu": ipu} for ipu in range(system.count)]
    things += [{"link": list(cable)} for cable in cables]
    return Axis(_PATH, ([*own], *([*own, {**thing, "slower": slower}] for thing in things)))


@dataclass(frozen=True)
class WeakPoints(Result):
    """Cost of slower IPUs and cables.

    Attributes:
        sweep: the runs; :func:`one_at_a_time` makes the first axis.
        slower: factor on the time.
    """

    sweep: Sweep
    slower: float

    @cached_property
    def slowdowns(self) -> dict[str, dict[tuple[str, int | tuple[int, int]], float]]:
        """Slow-down S of every IPU and cable, by the other varied options."""
        cycles: dict[str, dict[Any, int]] = {}
        for (disturbances, *others), outcome in self.sweep.finished:
            if outcome.ran:
                under = ", ".join(map(str, others))
                cycles.setdefault(under, {})[self._thing(disturbances)] = outcome.run_cycles
        return {
            under: {thing: run / max(of[None], 1) for thing, run in of.items() if thing is not None}
            for under, of in cycles.items()
            if None in of
        }

    def _thing(self, disturbances: Sequence[Mapping[str, Any]]) -> tuple[str, int | tuple[int, int]] | None:
        """Return the slower IPU or cable of a point; None for the unchanged point."""
        if len(disturbances) == len(self.sweep.axes[0].values[0]):
            return None
        last = disturbances[-1]
        if "ipu" in last:
            return "IPU", last["ipu"]
        one, other = last["link"]
        return "cable", (one, other)

    names = ("sweep.csv", "weak_points.json", "weak_points.png", "weak_points.svg")

    def shown(self) -> Iterator[str | Table]:
        """Yield the verdict and the table."""
        yield from self.words()
        yield self.table()

    def rows(self) -> Rows:
        """Return the rows of the points."""
        return SweepResult(self.sweep).rows()

    def words(self) -> Iterator[str]:
        """Yield the costliest IPU and cable, and the most tolerant schedule."""
        means: dict[str, float] = {}
        for under, of in self.slowdowns.items():
            named = []
            for kind in ("IPU", "cable"):
                own = {at: cost for (what, at), cost in of.items() if what == kind}
                if own:
                    named.append(self._worst(kind, own))
            costs = [cost for (kind, _), cost in of.items() if kind == "IPU"]
            means |= {under: fmean(costs)} if costs else {}
            yield f"{f'{under}: ' if under else ''}{'; '.join(named)}."
        if len(means) > 1:
            least = min(means.values())
            best = [under for under, mean in means.items() if mean - least < _NOTHING]
            where = f"least under {' and '.join(best)}" if len(best) < len(means) else "as much under each"
            yield f"A slow IPU costs {where}: S = {least:.3f}, the mean over all IPUs."
        refused = [outcome.message for _, outcome in self.sweep.finished if not outcome.ran]
        if refused:
            yield f"{len(refused)} of {len(self.sweep.finished)} did not run, for example: {refused[0]}"

    def _worst(self, kind: str, of: Mapping[Any, float]) -> str:
        most = max(of.values())
        if most < 1 + _NOTHING:
            return f"no {kind} with {self.slower:g} times the duration has a cost"
        worst = [_named(at) for at, cost in of.items() if cost > most - _NOTHING]
        tie = f" ({len(worst)} tie)" if len(worst) > 1 else ""
        return f"{kind} {worst[0]}{tie} costs most with {self.slower:g} times the duration, S = {most:.3f}"

    def table(self) -> Table:
        """Return S of IPUs and cables by schedule, worst first."""
        things = {thing for of in self.slowdowns.values() for thing in of}
        worst = sorted(
            things, key=lambda thing: (-max(of.get(thing, 0.0) for of in self.slowdowns.values()), str(thing))
        )
        rows = tuple(
            (
                f"{kind} {_named(at)}",
                *(f"{of[kind, at]:.3f}" if (kind, at) in of else "-" for of in self.slowdowns.values()),
            )
            for kind, at in worst[:_MOST_ROWS]
        )
        title = f"S with one part at {self.slower:g} times the duration"
        if len(worst) > _MOST_ROWS:
            title += f", the {_MOST_ROWS} worst of {len(worst)}"
        return Table(title, ("slower", *(under or "S" for under in self.slowdowns)), rows)

    def data(self) -> dict[str, Any]:
        """Return the result as plain data for JSON."""
        return {
            "name": self.sweep.request.name,
            "slower": self.slower,
            "slowdowns": [
                {"under": under, "kind": kind.lower(), "at": at, "slowdown": cost}
                for under, of in self.slowdowns.items()
                for (kind, at), cost in of.items()
            ],
        }

    def charts(self) -> dict[str, Callable[[], Chart]]:
        """Return the maps of the system, by the other varied options."""
        return {"weak_points": self._chart}

    def _chart(self) -> Chart:
        request = self.sweep.request
        physical = assemble(time_alone(request, misfits=True)).system.ipus
        maps = []
        for under, of in self.slowdowns.items():
            ipus = {at: cost for (_, at), cost in of.items() if isinstance(at, int)}
            cables = {at: cost for (_, at), cost in of.items() if isinstance(at, tuple)}
            maps.append(SystemMap(under, ipus, cables))
        name = runs.title_of(request.description) or request.name
        words = (
            "S, the time of the run divided by the time without slower parts, with one IPU or cable at "
            f"{self.slower:g} times"
        )
        most = max((cost for of in self.slowdowns.values() for cost in of.values()), default=1.0)
        return system_maps(maps, physical, most, f"{name}\n{words} as long", "S")


def _named(at: int | tuple[int, int]) -> str:
    return str(at) if isinstance(at, int) else f"{at[0]} to {at[1]}"
