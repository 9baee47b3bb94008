"""Draw the picture files of a run; importing this module imports matplotlib."""

from __future__ import annotations

from functools import partial

from ipusim.api import Timeline, analysis
from ipusim.app.render.execution_trace import execution_trace
from ipusim.app.render.figures import Chart, to_png, to_svg
from ipusim.app.render.memory import memory_chart
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.titles import default_title
from ipusim.app.render.window import Window
from ipusim.app.run_folder.side_by_side import Maker, side_by_side
from ipusim.app.study.result import picture_bytes


def trace_chart(timeline: Timeline, window: Window, options: Picture = DEFAULT) -> Chart:
    """Return the execution trace of a window; raises OptionError for an unreadably small size."""
    title = default_title(timeline, window, headline=options.title)
    return execution_trace(timeline, window.start, window.end, title=title, picture=options)


def picture_makers(timeline: Timeline, window: Window, fit: analysis.Fit | None) -> list[Maker]:
    """Return functions that draw a run's pictures, slowest first; memory only if known."""

    def traces() -> dict[str, bytes]:
        figure = trace_chart(timeline, window)
        return {"trace.png": to_png(figure), "trace.svg": to_svg(figure)}

    def memory(fit: analysis.Fit) -> dict[str, bytes]:
        return {"memory.png": to_png(memory_chart(timeline, fit, window))}

    return [*([partial(memory, fit)] if fit else ()), traces]


def pictures_of(run: tuple[Timeline, Window], fit: analysis.Fit | None, busy: int = 0) -> dict[str, bytes]:
    """Return a run's picture files by name, memory included if known.

    Pictures are drawn in parallel on spare cores, not counting ``busy`` cores.
    """
    return side_by_side(picture_makers(*run, fit), busy)


def picture(timeline: Timeline, window: Window, suffix: str, options: Picture = DEFAULT) -> bytes:
    """Return the execution trace of a window as ``.png``, ``.svg`` or ``.pdf``, ignoring case.

    Raises OptionError for an unreadably small size.
    """
    return picture_bytes(trace_chart(timeline, window, options), suffix.lower())
