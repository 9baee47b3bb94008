"""The execution trace: what every IPU does over time, as a figure."""

from __future__ import annotations

from ipusim.render.figures import Chart
from ipusim.render.layout import Headed, stack
from ipusim.render.window import Window, window
from ipusim.timeline.timeline import Timeline


def execution_trace(
    timeline: Timeline,
    start: int | None = None,
    end: int | None = None,
    *,
    title: str | None = None,
    width_in: float = 10.0,
    height_in: float | None = None,
) -> Chart:
    """Return the execution trace of a run from cycle ``start`` to cycle ``end``, by default the whole.

    One row for each IPU of the device. ``title`` is by default the run's name,
    schedule and size, and the cycles if not all are shown; an empty one leaves it out. The height follows from the
    number of rows unless ``height_in`` is given. Raises OutputError for a window
    outside the run or a figure too small for its text.
    """
    shown = window(timeline, start, end)
    return stack(
        [Headed("", timeline)], shown, default_title(timeline, shown) if title is None else title, width_in, height_in
    )


def default_title(timeline: Timeline, shown: Window | None = None) -> str:
    """Return name, schedule and size of a run, and what is shown of it.

    As in ``mnist: grouped in lock-step, 2 IPUs, 2 stages, 16 micro-batches, ramp-up of execution 0``.
    """
    info = timeline.info
    used = len(info.stages_of_ipu)
    parts = (
        info.order_and_sync,
        *([f"{info.replicas} replicas"] if info.replicas > 1 else []),
        f"{used} IPU{'s' * (used != 1)}",
        f"{len(info.stages)} stage{'s' * (len(info.stages) != 1)}",
        f"{info.count} micro-batch{'es' * (info.count != 1)}",
        *([shown.name] if shown and shown.name else []),
    )
    return f"{info.name}: {', '.join(parts)}"
