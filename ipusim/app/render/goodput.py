"""The share of a training's time that is lost, against the time between checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ipusim.app.render.arrays import Floats
from ipusim.app.render.figures import Chart, own_settings
from ipusim.app.render.style import LINE, SERIES, TEXT_SIZE, WIDTH_IN
from ipusim.app.render.titles import title_lines, write_titles
from ipusim.base.units import format_long

#: Colours and names of the parts of lost time, from below.
_PARTS: Final = (("#D55E00", "detection and restarts"), ("#E69F00", "work lost"), ("#56B4E9", "writing checkpoints"))
#: Seconds that have a tick.
_TICKS_S: Final = tuple(
    number * unit for unit, numbers in ((1, (1, 3, 10, 30)), (60, (1, 3, 10, 30)), (3600, (1, 3, 8)))
    for number in numbers
) + tuple(86400 * 10**power * number for power in range(5) for number in (1, 3))  # fmt: skip
#: Standard errors that a bar shows to either side.
_ERRORS: Final = 3


@dataclass(frozen=True)
class LostTime:
    """The share of time lost, for each time between checkpoints.

    Attributes:
        work_s: seconds of work between checkpoints, ascending.
        parts: shares of the time: of detection and restarts, of work lost, and of writing checkpoints.
        first_order: the lost share to first order.
        drawn: seconds of work, and mean lost share of trainings with drawn failures with its standard error.
        chosen: seconds of work, lost share and name of one time between checkpoints.
    """

    work_s: Floats
    parts: Sequence[Floats]
    first_order: Floats
    drawn: Sequence[tuple[float, float, float]]
    chosen: tuple[float, float, str]


@own_settings()
def goodput_chart(lost: LostTime, title: str) -> Chart:
    """Return the stacked parts of lost time over the work between checkpoints, with the loss of drawn trainings."""
    figure = Chart(figsize=(WIDTH_IN, 4.2))
    axes = figure.subplots()
    figure.subplots_adjust(left=0.065, right=0.985, top=0.88, bottom=0.13)
    write_titles(figure, title_lines(title, WIDTH_IN - 0.2), 0.1)
    total = np.zeros_like(lost.work_s)
    for part, (colour, name) in zip(lost.parts, _PARTS, strict=True):
        if part.any():
            axes.fill_between(lost.work_s, 100 * total, 100 * (total + part), color=colour, linewidth=0, label=name)
        total = total + part
    axes.plot(lost.work_s, 100 * total, color=LINE, linewidth=1.2, label="lost, exactly")
    axes.plot(lost.work_s, 100 * lost.first_order, "--", color=LINE, linewidth=1.0, label="lost, to first order")
    work, waste, errors = np.array(lost.drawn).T
    drawn = f"lost by drawn trainings, ± {_ERRORS} standard errors"
    axes.errorbar(
        work,
        100 * waste,
        100 * _ERRORS * errors,
        fmt="o",
        color=LINE,
        mfc="white",
        markersize=5,
        capsize=3,
        label=drawn,
    )
    at, height, name = lost.chosen
    axes.plot(at, 100 * height, "D", color=SERIES[3][0], markeredgecolor="white", markersize=9, label=name)
    axes.set_xscale("log")
    axes.set_xlim(float(lost.work_s[0]), float(lost.work_s[-1]))
    axes.set_ylim(0, 105 * max(float(total[0]), float(total[-1]), 1e-6))
    axes.set_xticks([tick for tick in _TICKS_S if lost.work_s[0] <= tick <= lost.work_s[-1]], minor=False)
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter(lambda value, _: _tick(value))
    axes.set_xlabel("work between checkpoints", fontsize=TEXT_SIZE)
    axes.set_ylabel("share of the time that is lost, %", fontsize=TEXT_SIZE)
    axes.tick_params(labelsize=TEXT_SIZE)
    axes.legend(fontsize=TEXT_SIZE, loc="upper center", frameon=False)
    return figure


def _tick(seconds: float) -> str:
    """Return a time of ticks in whole units: ``1 min`` where others have ``60 s``."""
    for factor, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= factor:
            return f"{seconds / factor:,.0f} {unit}"
    return format_long(seconds)
