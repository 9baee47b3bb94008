"""Draw several runs in one picture: traces on a common time axis, with memory or bars."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from ipusim.api import Timeline, analysis
from ipusim.app.render.figures import Chart, default_style_settings, finish
from ipusim.app.render.fold import fold_rows, spans_of
from ipusim.app.render.layout import Headed, bars_alone, most_rows, slide_rows, stack
from ipusim.app.render.memory_strip import MemoryStrip
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.shortened import left_out_words, shortened
from ipusim.app.render.time_bars import TimeBars
from ipusim.app.render.titles import shorter
from ipusim.app.render.window import Window
from ipusim.base.errors import OptionError, OutputError
from ipusim.base.units import format_seconds

#: Maximum ratio of longest to shortest run on the common axis; longer runs are cut.
_MOST_LENGTH_RATIO: Final = 4.0
#: Minimum share of the common axis filled by a run; shorter runs get separate axes.
_LEAST_AXIS_SHARE: Final = 1 / 8
#: Minimum share of the common memory scale; smaller memories get separate scales.
_LEAST_SCALE_SHARE: Final = 1 / 8
#: Minimum average share of panels filled by runs; otherwise the longest runs are cut.
_FULL_AXIS: Final = 0.65
#: Maximum number of runs in a figure: with more, rows would be too low to read.
_MOST_RUNS: Final = 8
#: Maximum number of rows of a trace that must be legible on a slide.
_LEGIBLE_ROWS: Final = 8
#: Minimum height of a legible row on a slide, in inches.
_LEAST_ROW_HEIGHT: Final = 0.05
#: Preferred minimum height of such a row, in inches.
_PREFERRED_ROW: Final = 0.09
#: Preferred minimum height of such a row with more than two traces, in inches.
_PREFERRED_ROW_OF_MANY: Final = 0.12
#: Number of traces for which a slide gives up its memory strips.
_TRACES_BEFORE_STRIPS: Final = 2


@dataclass(frozen=True)
class TracedRun:
    """Run of a comparison.

    Attributes:
        timeline: the run's Timeline.
        name: name above its trace; empty for schedule and sync mode.
        remark: remark after the name.
        strip: memory over time; None if unknown.
    """

    timeline: Timeline
    name: str = ""
    remark: str = ""
    strip: MemoryStrip | None = None


def comparison(runs: Sequence[TracedRun], *, title: str | None = None) -> Chart:
    """Return the traces of the first executions of ``runs``, below each other.

    The axis follows the largest group of runs of similar length. Runs more than four times as long as the shortest of
    the group are cut. The longest runs are also cut if a third of the figure would stay empty after the shorter ones.
    Much shorter runs get separate axes. Only the first eight runs are shown, as the title says. Replicas that do the
    same are drawn once. The figure is no higher than a screen: for lack of room, a run is reduced to its first replica,
    or to several IPUs per row.

    The default ``title`` is the description shared by the runs. The line above a run names it, with its mean time per
    weight update (per execution in inference) as in tables, its remark, and the shown part. Runs with different clocks
    share an axis in seconds. Raises OutputError if ``runs`` is empty, and as :func:`execution_trace` does.
    """
    if not runs:
        raise OutputError("expected at least one run to compare, got none")
    title = common_title([run.timeline for run in runs]) if title is None else title
    if len(runs) > _MOST_RUNS:
        title = f"{title} (the first {_MOST_RUNS} of {len(runs)} runs)".lstrip()
        runs = runs[:_MOST_RUNS]
    panels = _panels(runs, most_rows(len(runs), sum(run.strip is not None for run in runs)))
    return stack(panels, _window(panels), title)


@default_style_settings()
def slide(
    bars: TimeBars,
    runs: Sequence[TracedRun],
    title: str,
    wish: Sequence[int],
    picture: Picture = DEFAULT,
    *,
    all_traces: bool = False,
) -> Chart:
    """Return bars of run times above traces of ``runs``, as a slide.

    The slide is at most 1080 pixels high.

    Args:
        bars: bars of the compared runs.
        runs: runs with a trace.
        title: headline in the first line; text beyond three lines is cut.
        wish: positions of runs whose traces to show, most important first. As many as fit are drawn, in the order of
            ``runs``. Memory strips are dropped if two traces would not fit with them.
        picture: size of the picture.
        all_traces: whether every wished trace must be shown.

    Raises OutputError if ``all_traces`` is set and traces do not fit, and OptionError for an unreadably small size.
    """
    title = shorter(title, picture.width_in)
    bars_with_traces = replace(bars, heading=f"{bars.heading}; not on the time scale of the traces")
    bars_in = bars_with_traces.height_in(picture.width_in)
    for count in range(len(wish), len(wish) - 1 if all_traces else 0, -1):
        chosen = [runs[number] for number in sorted(wish[:count])]
        without_strips = (
            [replace(run, strip=None) for run in chosen] if all_traces or count <= _TRACES_BEFORE_STRIPS else chosen
        )
        for candidates in (chosen, without_strips):
            room = slide_rows(count, sum(run.strip is not None for run in candidates), bars_in, picture)
            rows = sum(min(len(run.timeline.info.ipus), _LEGIBLE_ROWS) for run in candidates)
            preferred_row = _PREFERRED_ROW_OF_MANY if count > _TRACES_BEFORE_STRIPS else _PREFERRED_ROW
            if room < (_LEAST_ROW_HEIGHT if all_traces else preferred_row) * rows:
                continue
            with suppress(OutputError, OptionError):  # titles and legends took more lines than usual
                panels = _panels(candidates, max(int(room / _LEAST_ROW_HEIGHT), count))
                return finish(stack(panels, _window(panels), title, bars_with_traces, picture), picture)
    if all_traces and wish:
        raise OutputError(f"expected traces that fit below the bars, got {len(wish)}: choose fewer")
    return finish(bars_alone(bars, title, picture), picture)


def _panels(runs: Sequence[TracedRun], most: int) -> list[Headed]:
    """Return the panels of runs, with at most ``most`` rows in all and at least one for each run."""
    last_s = _axis_seconds([_seconds(run.timeline) for run in runs])
    top_bytes = max((run.strip.top_bytes for run in runs if run.strip is not None), default=1.0)
    return [_panel(run, last_s, most // len(runs), top_bytes) for run in runs]


def _window(panels: Sequence[Headed]) -> Window:
    return next(panel.window for panel in panels if panel.window is not None)


def _axis_seconds(lengths_s: Sequence[float]) -> float:
    """Return the length of the common axis: the longest run in the largest group of similar lengths."""
    groups = [
        [length_s for length_s in lengths_s if shortest <= length_s <= _MOST_LENGTH_RATIO * shortest]
        for shortest in sorted(lengths_s)
    ]
    most = max(len(group) for group in groups)
    longest = max(next(group for group in groups if len(group) == most))
    # Cut or rescaled runs fill their panels.
    visible_parts = [
        [min(length_s / last, 1.0) if length_s >= _LEAST_AXIS_SHARE * last else 1.0 for length_s in lengths_s]
        for last in lengths_s
    ]
    filling = [
        last for last, parts in zip(lengths_s, visible_parts, strict=True) if sum(parts) >= _FULL_AXIS * len(parts)
    ]
    return max(last for last in filling if last <= longest)


def _panel(run: TracedRun, last_s: float, rows: int, top_bytes: float) -> Headed:
    timeline = run.timeline
    clock_hz, run_s = timeline.info.clock_hz, _seconds(timeline)
    own_axis = run_s < _LEAST_AXIS_SHARE * last_s
    is_cut = run_s > last_s
    end = max(round((run_s if own_axis else last_s) * clock_hz), 1)
    short, window = shortened(timeline, Window(0, end))
    if window.breaks:  # lengths cannot be compared across breaks: the run fills the panel
        own_axis, is_cut = True, False
        short, window = shortened(timeline, Window(0, analysis.find_execution(timeline, 0).end))
    fold = fold_rows(_first_execution(short, window), rows, window)
    words = [_headline(run), run.remark, fold.words]
    words.append(f"cut: {last_s / run_s:.1%} of the trace is shown" if is_cut else "")
    if window.breaks:
        words.append(f"on a separate axis, where {left_out_words(window)}")
    elif own_axis:
        words.append(f"on a separate axis, {last_s / run_s:,.0f} times as wide")
    strip = run.strip
    if strip is not None and strip.top_bytes < _LEAST_SCALE_SHARE * top_bytes:
        words.append("memory on a separate scale")
    elif strip is not None:
        strip = replace(strip, top_bytes=top_bytes)
    if strip is not None and not window.breaks:
        strip = replace(strip, end_cycle=min(strip.end_cycle, analysis.find_execution(timeline, 0).end))
    return Headed(
        "; ".join(filter(None, words)),
        fold.timeline,
        torn=is_cut,
        window=window,
        own_axis=own_axis,
        ipus_to_a_row=fold.ipus_to_a_row,
        strip=strip,
    )


def _first_execution(timeline: Timeline, window: Window) -> Timeline:
    """Return the spans of a run's first execution; all spans if the window leaves some out."""
    if window.breaks:
        return timeline
    end = analysis.find_execution(timeline, 0).end
    return spans_of(timeline, (timeline.execution <= 0) & (timeline.start < end))


def _seconds(timeline: Timeline) -> float:
    """Return the seconds of a run's first execution, weight update included."""
    return max(analysis.find_execution(timeline, 0).end, 1) / timeline.info.clock_hz


def _headline(run: TracedRun) -> str:
    """Return a run's name and time per weight update, as in a comparison's table."""
    info, seconds = run.timeline.info, analysis.throughput_of(run.timeline).weight_update_period_s
    time = format_seconds(seconds).replace("us", "µs")
    per = "weight update" if info.training else "execution"
    return f"{run.name or info.order_and_sync}: {seconds * info.clock_hz:,.0f} cycles, {time} per {per}"


def common_title(timelines: Sequence[Timeline]) -> str:
    """Return the title shared by the runs; empty if titles differ or are missing."""
    titles = {timeline.info.title for timeline in timelines}
    return titles.pop() if len(titles) == 1 else ""
