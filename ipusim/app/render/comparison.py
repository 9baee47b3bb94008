"""Pictures of several runs: traces on one time axis, with memory over time or below bars of all runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from ipusim.api import Timeline, analysis
from ipusim.app.render.figures import Chart, finished, own_settings
from ipusim.app.render.fold import folded
from ipusim.app.render.layout import Headed, bars_alone, most_rows, slide_rows, stack
from ipusim.app.render.memory_strip import MemoryStrip
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.shortened import left_out_words, shortened
from ipusim.app.render.time_bars import TimeBars
from ipusim.app.render.titles import shorter
from ipusim.app.render.window import Window
from ipusim.base.errors import OptionError, OutputError
from ipusim.base.units import format_seconds

#: Ratio of the longest to the shortest of the runs that share the axis, the largest such group. Longer runs are cut.
_LONGEST: Final = 4.0
#: Shorter runs that would take less than this part of the axis have one of their own.
_NARROWEST: Final = 1 / 8
#: Memory that would reach less than this part of the common scale has one of its own.
_LOWEST: Final = 1 / 8
#: The part of the panels that runs fill at least, or the longest of them are cut.
_FILLED: Final = 0.65
#: Runs that one figure shows: with more, rows would be too low to read.
_MOST_RUNS: Final = 8


#: On a slide: rows of a trace that must be seen each, and the inches that one of them has at least; that it has to have
#: where there is a choice; and for a further trace, beside which numbers have to lie level. How many traces come before
#: that, and before memory over time.
_ROWS_SEEN: Final = 8
_LEAST_SEEN, _WELL_SEEN, _LEVEL = 0.05, 0.09, 0.12
_PREFERRED: Final = 2


@dataclass(frozen=True)
class Compared:
    """One run of a comparison.

    Attributes:
        timeline: the run's Timeline.
        name: the name above its trace; empty for schedule and sync mode.
        remark: a remark behind the name.
        strip: its memory over time; None where that is not known.
    """

    timeline: Timeline
    name: str = ""
    remark: str = ""
    strip: MemoryStrip | None = None


def comparison(runs: Sequence[Compared], *, title: str | None = None) -> Chart:
    """Return the traces of ``runs`` under each other, from cycle 0 over their first executions.

    The axis is that of the runs of similar length: one that takes more than four times as
    long is cut, as it would leave the others too narrow to read, and so are the longest where a third of the figure
    would be empty behind the others. One that is far shorter has an axis of its own.
    Of more than eight runs the first eight are shown, which the title says. Replicas that do the same are drawn once.
    The figure is no higher than a screen: where there are more IPUs than it has room for, a run is shown by its first
    replica, or by several IPUs to a row.

    ``title`` is by default what all runs are of, or else nothing. The line above each run names it, the mean time of a
    weight update (of inference, of an execution) over the whole run, as tables have it, its remark, and what of it is
    shown where that is not all. Runs of different clocks share the axis in seconds. Raises OutputError for no runs, and
    as :func:`execution_trace` does.
    """
    if not runs:
        raise OutputError("expected at least one run to compare, got none")
    title = common_title([run.timeline for run in runs]) if title is None else title
    if len(runs) > _MOST_RUNS:
        title = f"{title} (the first {_MOST_RUNS} of {len(runs)} runs)".lstrip()
        runs = runs[:_MOST_RUNS]
    panels = _panels(runs, most_rows(len(runs), sum(run.strip is not None for run in runs)))
    return stack(panels, _window(panels), title)


@own_settings()
def slide(
    bars: TimeBars,
    runs: Sequence[Compared],
    title: str,
    wish: Sequence[int],
    picture: Picture = DEFAULT,
    *,
    every: bool = False,
) -> Chart:
    """Return bars of the time of runs above the traces of some of ``runs``, at most 1080 pixels high as a PNG.

    Args:
        bars: of all runs.
        runs: those that have a trace.
        title: its first line is the headline; what is more than three lines is left out.
        wish: positions of the runs whose traces are to be shown, the one that matters most first; as many of them are
            as fit, in their order in ``runs``. Memory over time is left out where two would not fit with it.
        picture: the size.
        every: whether all of them have to be.

    Raises OutputError where they have to be, and do not fit, and OptionError for a size in which the slide cannot be
    read.
    """
    title = shorter(title, picture.width_in)
    bars_in = bars.height_in(picture.width_in)
    for count in range(len(wish), len(wish) - 1 if every else 0, -1):
        whole = [runs[number] for number in sorted(wish[:count])]
        bare = [replace(run, strip=None) for run in whole] if every or count <= _PREFERRED else whole
        for shown in (whole, bare):
            room = slide_rows(count, sum(run.strip is not None for run in shown), bars_in, picture)
            rows = sum(min(len(run.timeline.info.ipus), _ROWS_SEEN) for run in shown)
            well = _LEVEL if count > _PREFERRED else _WELL_SEEN
            if room < (_LEAST_SEEN if every else well) * rows:
                continue
            with suppress(OutputError, OptionError):  # titles and legends took more lines than usual
                panels = _panels(shown, max(int(room / _LEAST_SEEN), count))
                return finished(stack(panels, _window(panels), title, bars, picture), picture)
    if every and wish:
        raise OutputError(f"expected traces that fit below the bars, got {len(wish)}: choose fewer")
    return finished(bars_alone(bars, title, picture), picture)


def _panels(runs: Sequence[Compared], most: int) -> list[Headed]:
    """Return the panels of runs, with at most ``most`` rows in all, but at least one each."""
    last_s = _axis([_seconds(run.timeline) for run in runs])
    top_bytes = max((run.strip.top_bytes for run in runs if run.strip is not None), default=1.0)
    return [_panel(run, last_s, most // len(runs), top_bytes) for run in runs]


def _window(panels: Sequence[Headed]) -> Window:
    return next(panel.window for panel in panels if panel.window is not None)


def _axis(lengths_s: Sequence[float]) -> float:
    """Return the seconds of the common axis: the longest run of the largest group of runs of similar length."""
    groups = [
        [length_s for length_s in lengths_s if shortest <= length_s <= _LONGEST * shortest]
        for shortest in sorted(lengths_s)
    ]
    most = max(len(group) for group in groups)
    longest = max(next(group for group in groups if len(group) == most))
    # Runs that are cut, or drawn to another scale, fill their panels.
    shown = [
        [min(length_s / last, 1.0) if length_s >= _NARROWEST * last else 1.0 for length_s in lengths_s]
        for last in lengths_s
    ]
    filling = [last for last, parts in zip(lengths_s, shown, strict=True) if sum(parts) >= _FILLED * len(parts)]
    return max(last for last in filling if last <= longest)


def _panel(run: Compared, last_s: float, rows: int, top_bytes: float) -> Headed:
    timeline = run.timeline
    clock_hz, whole_s = timeline.info.clock_hz, _seconds(timeline)
    own_axis = whole_s < _NARROWEST * last_s
    cut = whole_s > last_s
    end = max(round((whole_s if own_axis else last_s) * clock_hz), 1)
    drawn, window = shortened(timeline, Window(0, end))
    if window.breaks:  # its length cannot be compared with others by eye: it fills the panel
        own_axis, cut = True, False
        drawn, window = shortened(timeline, Window(0, analysis.find_execution(timeline, 0).end))
    shown = folded(drawn, rows, window)
    words = [_headline(run), run.remark, shown.words]
    words.append(f"cut: {last_s / whole_s:.1%} of it is shown" if cut else "")
    if window.breaks:
        words.append(f"on an axis of its own, where {left_out_words(window)}")
    elif own_axis:
        words.append(f"on an axis of its own, {last_s / whole_s:,.0f} times as wide")
    strip = run.strip
    if strip is not None and strip.top_bytes < _LOWEST * top_bytes:
        words.append("memory on a scale of its own")
    elif strip is not None:
        strip = replace(strip, top_bytes=top_bytes)
    return Headed(
        "; ".join(filter(None, words)),
        shown.timeline,
        torn=cut,
        window=window,
        own_axis=own_axis,
        ipus_to_a_row=shown.ipus_to_a_row,
        strip=strip,
    )


def _seconds(timeline: Timeline) -> float:
    """Return the seconds of a run's first execution, weight update included."""
    return max(analysis.find_execution(timeline, 0).end, 1) / timeline.info.clock_hz


def _headline(run: Compared) -> str:
    """Return a run's name and its time per weight update, as in the table of a comparison."""
    info, seconds = run.timeline.info, analysis.throughput_of(run.timeline).weight_update_period_s
    time = format_seconds(seconds).replace("us", "µs")
    per = "weight update" if info.training else "execution"
    return f"{run.name or info.order_and_sync}: {seconds * info.clock_hz:,.0f} cycles, {time} per {per}"


def common_title(timelines: Sequence[Timeline]) -> str:
    """Return the title that all runs have in common; empty where titles differ or none has one."""
    titles = {timeline.info.title for timeline in timelines}
    return titles.pop() if len(titles) == 1 else ""
