"""Page on stragglers: simulated cost of a slow IPU, a bad cable and jitter, by schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from statistics import fmean
from typing import Any, Final

import numpy as np

from ipusim.analysis.disturbed import DisturbanceCost
from ipusim.app.render.comparison import TracedRun, comparison
from ipusim.app.render.figures import Chart, to_png
from ipusim.app.render.panel import BOX_HEIGHT
from ipusim.app.render.style import REDONE, STAGE_SIZE
from ipusim.app.render.sweep import Panel, sweep_chart
from ipusim.app.render.sweep_panel import ChartAxis
from ipusim.app.render.tables import Table
from ipusim.app.study.result import table_markdown
from ipusim.pipeline.plan import Sync
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.request.request import Request
from ipusim.runs.run import Run
from ipusim.timeline.kinds import SpanKind

#: Schedules and sync modes in table order.
MODES: Final = (
    ("grouped", Sync.LOCK_STEP),
    ("1f1b", Sync.LOCK_STEP),
    ("1f1b", Sync.POINT_TO_POINT),
    ("eager_1f1b", Sync.LOCK_STEP),
    ("eager_1f1b", Sync.POINT_TO_POINT),
    ("zero_bubble_h2", Sync.LOCK_STEP),
    ("zero_bubble_h2", Sync.POINT_TO_POINT),
)
#: Cycles of a stage's passes: forward, input gradient, weight gradients.
_PASSES: Final = (100_000, 100_000, 100_000)
#: Factor on the time of the slow IPU.
_FACTOR: Final = 1.5
#: Delay of a tensor on the slow cable, in cycles.
_LATE: Final = 60_000
#: Standard deviations of jitter, in % of a pass.
_JITTERS: Final = (0, 2, 5, 10, 20, 30)
#: Number of averaged seeds.
_SEEDS: Final = 5

Disturbances = Sequence[Mapping[str, Any]]


def ran(schedule: str, sync: Sync, ipus: int, count: int, disturbances: Disturbances) -> Run:
    """Run equal stages, one per IPU; only delayed cables take time."""
    forward, first, second = _PASSES
    stages: list[dict[str, Any]] = [
        {
            "name": f"s{number}",
            "forward": forward,
            "backward": first + second,
            "backward_input": first,
            "backward_weights": second,
        }
        for number in range(ipus)
    ]
    for source, target in pairwise(stages):
        source["output_bytes"] = target["gradient_bytes"] = 8
    pipeline = {"schedule": schedule, "sync": sync.value, "gradient_accumulation_count": count, "stages": stages}
    data = {"training": True, "system": {"name": "free"}, "pipeline": pipeline, "disturbances": list(disturbances)}
    return execute(assemble(Request.from_dict(data, name=schedule)))


@cache
def _cost(
    schedule: str, sync: Sync, ipus: int, count: int, *disturbance: tuple[tuple[str, Any], ...]
) -> DisturbanceCost:
    result = ran(schedule, sync, ipus, count, [dict(entry) for entry in disturbance]).summary.disturbances
    assert result is not None
    return result


def _mode(schedule: str, sync: Sync) -> str:
    return f"{schedule} in {'lock-step' if sync is Sync.LOCK_STEP else 'point-to-point'}"


def stragglers_page() -> str:
    """Return the page as Markdown."""
    return "\n".join(
        [
            "# Stragglers\n",
            _ASSUMED,
            "## One slow IPU\n",
            _OF_SLOW,
            table_markdown(_slow()),
            _OF_PASSING,
            "![Traces with IPU 1 slow for 1.5 million cycles](stragglers-slow.png)\n",
            table_markdown(_passing()),
            "## One bad cable\n",
            _OF_CABLES,
            table_markdown(_cables()),
            "![Traces with a slow cable, every delayed tensor in red](stragglers-cable.png)\n",
            "## Jitter\n",
            _OF_JITTER,
            "![Cost of jitter by schedule](stragglers-jitter.png)\n",
            table_markdown(_jitter()),
        ]
    )


def _slow() -> Table:
    rows = []
    for schedule, sync in MODES:
        costs = [_cost(schedule, sync, 4, 32, (("ipu", ipu), ("slower", _FACTOR))) for ipu in range(4)]
        rows.append((_mode(schedule, sync), *(f"{cost.slowdown:.3f}" for cost in costs)))
    return Table("", ("S", *(f"IPU {ipu}" for ipu in range(4))), tuple(rows))


#: Temporary disturbance: passes take three times as long between two cycles, enough for a few passes.
_PASSING: Final = (("ipu", 1), ("slower", 3), ("from", 1_500_000), ("until", 3_000_000))


def _passing() -> Table:
    rows = []
    for schedule, sync in MODES:
        cost = _cost(schedule, sync, 4, 24, _PASSING)
        lost = cost.cycles - cost.plain_cycles
        recovery = "-" if cost.recovery is None else str(cost.recovery)
        rows.append((_mode(schedule, sync), f"{lost:,}", f"{cost.slowdown:.3f}", recovery))
    return Table("", ("schedule", "cycles lost", "S", "micro-batches until recovery"), tuple(rows))


def _cables() -> Table:
    ipus, count, rows = 8, 64, []
    for link in range(ipus - 1):
        late = (("link", (link, link + 1)), ("delay", _LATE))
        cells = []
        for schedule in ("1f1b", "eager_1f1b"):
            cost = _cost(schedule, Sync.POINT_TO_POINT, ipus, count, late)
            cells.append(f"{(cost.cycles - cost.plain_cycles) / _LATE:g} c")
        cost = _cost("grouped", Sync.LOCK_STEP, ipus, count, late)
        form = count - 2 * ((ipus - 2 - link) // 2)
        rows.append((f"{link}-{link + 1}", f"{form} c", *cells, f"{(cost.cycles - cost.plain_cycles) / _LATE:g} c"))
    return Table("", ("cable", "1F1B's form", "1f1b", "eager_1f1b", "grouped in lock-step"), tuple(rows))


@cache
def _jittered(schedule: str, sync: Sync) -> tuple[float, ...]:
    """Return the slowdown S under each jitter, averaged over seeds."""

    def slowdown(jitter: int, seed: int) -> float:
        result = ran(schedule, sync, 4, 32, [{"jitter": f"{jitter} %", "seed": seed}])
        return result.timeline.makespan_cycles / plain

    plain = ran(schedule, sync, 4, 32, []).timeline.makespan_cycles

    return tuple(fmean(slowdown(jitter, seed) for seed in range(_SEEDS)) if jitter else 1.0 for jitter in _JITTERS)


def _jitter() -> Table:
    rows = (
        (_mode(schedule, sync), *(f"{slowdown:.3f}" for slowdown in _jittered(schedule, sync)[1:]))
        for schedule, sync in MODES
    )
    return Table("", (f"mean S of {_SEEDS} seeds", *(f"jitter {entry} %" for entry in _JITTERS[1:])), tuple(rows))


def stragglers_pictures() -> dict[str, bytes]:
    """Draw traces under a slow IPU and a bad cable, and jitter's cost."""
    shown = [MODES[0], *(mode for mode in MODES if mode[1] is Sync.POINT_TO_POINT)]
    slow = [_compared(*mode, 16, [dict(_PASSING)]) for mode in shown]
    return {
        "stragglers-slow.png": to_png(
            comparison(slow, title="IPU 1 takes three times as long from 1.5 to 3 million cycles")
        ),
        "stragglers-cable.png": to_png(with_cable(*delayed())),
        "stragglers-jitter.png": to_png(_jitter_chart()),
    }


def delayed() -> tuple[list[TracedRun], list[int]]:
    """Return the point-to-point runs with a cable that delays tensors, and the cable's IPUs."""
    ipus = [1, 2]
    late = [{"link": ipus, "delay": _LATE}]
    return [_compared(*mode, 16, late) for mode in MODES if mode[1] is Sync.POINT_TO_POINT], ipus


def with_cable(runs: Sequence[TracedRun], ipus: Sequence[int]) -> Chart:
    """Draw traces with each tensor's time on a cable between two IPUs."""
    title = f"The cable of IPUs {ipus[0]} and {ipus[1]} delays by {_LATE:,} cycles"
    chart = comparison(runs, title=f"{title}\neach red line is a tensor on that cable, {_LATE:,} cycles long")
    row_border = max(ipus)
    panels = [axes for axes in chart.axes if axes.get_ylim()[1] == 0]
    for axes, run in zip(panels, runs, strict=True):
        timeline = run.timeline
        sent = timeline.rows(SpanKind.SEND)
        sent = sent[np.isin(timeline.ipu[sent], ipus) & (timeline.end[sent] > timeline.start[sent])]
        edges = row_border + (1 - BOX_HEIGHT) / 2 * np.where(timeline.ipu[sent] < row_border, -1, 1)
        x, y = np.stack([timeline.start[sent], timeline.end[sent]]), np.stack([edges, 2 * row_border - edges])
        axes.plot(x, y, color=REDONE, linewidth=1.5, zorder=5)
        row_transform = axes.get_yaxis_transform()
        axes.text(
            -0.003, row_border, "cable", color=REDONE, size=STAGE_SIZE, transform=row_transform, ha="right", va="center"
        )
    return chart


def _compared(schedule: str, sync: Sync, count: int, disturbances: Disturbances) -> TracedRun:
    run = ran(schedule, sync, 4, count, disturbances)
    cost = run.summary.disturbances
    assert cost is not None
    return TracedRun(run.timeline, _mode(schedule, sync), f"S {cost.slowdown:.3f}")


def _jitter_chart() -> Chart:
    points = [(jitter, _mode(*mode)) for mode in MODES for jitter in _JITTERS]
    longer = [100 * (slowdown - 1) for mode in MODES for slowdown in _jittered(*mode)]
    axes = [
        ChartAxis("jitter, % of a pass (standard deviation)", _JITTERS, True),
        ChartAxis("schedule", tuple(_mode(*mode) for mode in MODES), False),
    ]
    panel = Panel("longer than without, %", longer)
    title = f"What jitter costs four IPUs and 32 micro-batches, mean of {_SEEDS} seeds"
    return sweep_chart(axes, points, [panel], fits=[True] * len(points), has_run=[True] * len(points), title=title)


_ASSUMED: Final = """\
Compare here how much time each schedule loses to a slow IPU, a slow cable or jitter, and choose a schedule that
tolerates them. `python -m reports` simulates every number with [disturbances](scenario.md#disturbances-slower), which
any scenario can have.

Unless stated otherwise, four IPUs have one stage each; forward pass, input gradient and weight gradients take 100,000
cycles each. Copies take no time, except on a slow cable. S is the time of a run divided by the time of the same run
without disturbances. In formulas N counts IPUs and m micro-batches; F and B are the cycles of a forward and a backward
pass.
"""
_OF_SLOW: Final = f"""\
One IPU takes {_FACTOR:g} times as long for all work, in runs of 32 micro-batches. In lock-step all IPUs wait at every
meeting that the slow IPU reaches last. Point-to-point, 1F1B takes m (F' + B') + (N - 1)(F + B) - (N - 1 - s)(F' + B' -
F - B) cycles if IPU s needs F' and B' cycles for a pass: almost the time of four slow IPUs. 1F1B in lock-step has a
smaller S only because the undisturbed run is slow already: each time-step lasts as long as a backward pass. No schedule
hides a permanently slow IPU; only less work on the slow IPU helps.
"""
_OF_PASSING: Final = """\
An IPU that is slow for a while uses up the slack of the schedule. In the next table IPU 1 takes three times as long
between cycles 1.5 million and 3 million, and completes a million cycles less work. The run loses fewer cycles if IPU 1
would have waited in that interval anyway. The last column counts micro-batches after the slowdown until the machine is
in the state of the undisturbed run. A dash means never in this run: equal stages cannot regain used slack.
"""
_OF_CABLES: Final = f"""\
One cable delays each tensor by c = {_LATE:,} cycles, in runs of eight IPUs and 64 micro-batches. Copies occupy no IPU.
Under 1F1B neighbours have a slack of one: a gradient returns before the next activation leaves. So a micro-batch costs
c, and the cable of IPUs l and l + 1 costs c (m - 2 floor((N - 2 - l) / 2)) in total. Eager 1F1B keeps more
micro-batches and has a slack of two (as in Adaptra, NSDI 2026). The delay hides behind passes if c is at most half of
F + B, and eager 1F1B loses only 2 c. In lock-step every meeting with a tensor on the cable costs c.
"""
_OF_JITTER: Final = """\
The length of each pass has a random factor: lognormal with mean 1, drawn separately, equal under all schedules. In
lock-step a time-step lasts as long as its longest pass. Point-to-point, a late IPU may be early later, if the slack of
its neighbours permits. With a slack of two, or with weight gradients to fill waits, jitter costs almost nothing.
"""
