"""One Timeline drawn into one pair of axes: its rows of boxes, and the band of phase brackets above."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from ipusim.analysis.phases import phases, time_steps
from ipusim.render.axes import second_axis
from ipusim.render.boxes import Boxes, bin_edges, share_boxes, span_boxes
from ipusim.render.brackets import draw_brackets
from ipusim.render.lettering import text_width
from ipusim.render.style import DPI, LINE, LOOKS, NUMBER_SIZES, TEXT_SIZE
from ipusim.render.window import Window
from ipusim.timeline.timeline import SpanKind, Timeline

Floats = npt.NDArray[np.float64]

#: Part of a row's pitch that its boxes take.
_FILLED: Final = 0.84
#: Boxes of their own for every span up to this many, and while time-steps are at least this wide, in pixels.
_MOST_BOXES: Final = 12_000
_NARROWEST_STEP: Final = 4.0
#: Sync points are drawn while they are at least this far apart, in points.
_NARROWEST_SYNC: Final = 5.0
#: Boxes have white edges while those of the passes are at least this wide, in points.
_NARROWEST_EDGE: Final = 2.5
#: Vertices in one path: Agg renders a path as a whole and has an upper limit for its size.
_BOXES_TO_A_PATH: Final = 2_000
_RECTANGLE: Final = (Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY)


@dataclass(frozen=True)
class Panel:
    """What a panel came to show, for the legend: looks by index, and whether sync points and shares are in it."""

    looks: frozenset[int]
    sync_points: bool
    shares: bool


def row_labels(timeline: Timeline) -> list[str]:
    """Return the name of each IPU's row, with the physical number where it differs."""
    return [
        f"IPU {ipu}" if ipu == physical else f"IPU {ipu} (no. {physical})"
        for ipu, physical in enumerate(timeline.info.ipus)
    ]


def draw_panel(rows: Axes, band: Axes, timeline: Timeline, window: Window, seconds_labelled: bool = True) -> Panel:
    """Draw ``timeline`` in ``window``: boxes on ``rows``, phase brackets and seconds on ``band``.

    Both axes must have their final size.
    """
    figure = rows.figure
    width_in = rows.get_position().width * figure.get_figure(root=True).get_figwidth()  # type: ignore[union-attr]
    height_in = rows.get_position().height * figure.get_figure(root=True).get_figheight()  # type: ignore[union-attr]
    ipus = len(timeline.info.ipus)
    points = width_in * 72 / window.cycles
    _prepare(rows, timeline, window, height_in)

    scale = second_axis(band, window.start, window.end, timeline.info.clock_hz, width_in, seconds_labelled)
    for side in ("left", "right", "bottom"):
        band.spines[side].set_visible(False)
    band.set_yticks([])
    found = phases(timeline)
    draw_brackets(band, found, window, scale, width_in * 72)

    boxes = span_boxes(timeline, window)
    steps = time_steps(timeline).start
    inside = int(np.count_nonzero((steps >= window.start) & (steps < window.end)))
    shares = len(boxes) > _MOST_BOXES or inside * _NARROWEST_STEP > width_in * DPI
    if shares:
        boxes = share_boxes(timeline, window, bin_edges(timeline, window, _NARROWEST_STEP * 72 / DPI / points))
    _draw_boxes(rows, boxes, ipus, points)
    if not shares:
        _draw_numbers(rows, timeline, boxes, points, height_in / ipus * 72 * _FILLED)
    cuts = {phase.end for phase in found if window.start < phase.end < window.end}
    _draw_lines(rows, np.array(sorted(cuts), dtype=np.float64), ipus, linewidth=0.8, linestyle="solid")
    syncs = timeline.start[timeline.rows(SpanKind.SYNC)]
    syncs = syncs[(syncs > window.start) & (syncs < window.end)]
    sync_points = bool(len(syncs)) and window.cycles / (len(syncs) + 1) * points >= _NARROWEST_SYNC
    if sync_points:
        _draw_lines(rows, syncs.astype(np.float64), ipus, linewidth=0.5, linestyle=(0, (3, 2)))
    return Panel(frozenset(np.unique(boxes.look).tolist()), sync_points, shares)


def _prepare(rows: Axes, timeline: Timeline, window: Window, height_in: float) -> None:
    ipus = len(timeline.info.ipus)
    rows.set_xlim(window.start, window.end)
    rows.set_ylim(ipus, 0)
    every = 1
    while height_in * 72 * every / ipus < TEXT_SIZE * 1.1:
        every *= 2
    names = row_labels(timeline)
    rows.set_yticks([ipu + 0.5 for ipu in range(0, ipus, every)], names[::every])
    rows.tick_params(axis="y", labelsize=TEXT_SIZE, length=0)
    for side in ("top", "right", "left"):
        rows.spines[side].set_visible(False)
    rows.spines["bottom"].set_color(LINE)
    for ipu in sorted(set(range(ipus)) - set(timeline.info.mapping)):
        if every == 1:
            rows.text(window.start, ipu + 0.5, "  holds no stage", fontsize=TEXT_SIZE, va="center", color=LINE)


def _draw_boxes(rows: Axes, boxes: Boxes, ipus: int, points: float) -> None:
    """Draw the boxes as one path for each look, waits first, so that a pass is never covered."""
    low = boxes.ipu + 0.5 + _FILLED / 2
    bottom, top = low - _FILLED * boxes.bottom, low - _FILLED * boxes.top
    passes = boxes.look <= 1
    wide = passes.any() and float(np.median((boxes.end - boxes.start)[passes])) * points >= _NARROWEST_EDGE
    for index in reversed(range(len(LOOKS))):
        look, members = LOOKS[index], np.flatnonzero(boxes.look == index)
        for part in range(0, len(members), _BOXES_TO_A_PATH):
            chosen = members[part : part + _BOXES_TO_A_PATH]
            path = _rectangles(boxes.start[chosen], boxes.end[chosen], bottom[chosen], top[chosen])
            edge = {"edgecolor": "white", "linewidth": 0.5} if wide else {"edgecolor": "none", "linewidth": 0.0}
            rows.add_patch(PathPatch(path, facecolor=look.face, zorder=2, **edge))
            if look.hatch:
                rows.add_patch(
                    PathPatch(path, facecolor="none", edgecolor=look.ink, linewidth=0.0, hatch=look.hatch, zorder=2.1)
                )


def _rectangles(start: Floats, end: Floats, bottom: Floats, top: Floats) -> Path:
    x = np.stack([start, end, end, start, start], axis=1)
    y = np.stack([bottom, bottom, top, top, bottom], axis=1)
    codes = np.tile(np.array(_RECTANGLE, dtype=Path.code_type), len(start))
    return Path(np.stack([x.ravel(), y.ravel()], axis=1), codes)


def _draw_lines(rows: Axes, at: Floats, ipus: int, linewidth: float, linestyle: str | tuple[int, tuple[int, int]]) -> None:
    """Draw vertical lines over all rows, as one path."""
    if len(at):
        vertices = np.stack([np.repeat(at, 2), np.tile([0.0, ipus], len(at))], axis=1)
        path = Path(vertices, np.tile(np.array([Path.MOVETO, Path.LINETO], dtype=Path.code_type), len(at)))
        rows.add_patch(
            PathPatch(path, facecolor="none", edgecolor=LINE, linewidth=linewidth, linestyle=linestyle, zorder=3)
        )


def _draw_numbers(rows: Axes, timeline: Timeline, boxes: Boxes, points: float, height_points: float) -> None:
    """Write the micro-batch, ``stage.micro-batch`` on an IPU of several stages, into the boxes that hold it.

    One size for all: the largest at which nine of ten fit, of each look by itself;
    a look of which not even half fit at the smallest stays blank.
    """
    mapping = timeline.info.mapping
    several = {ipu for ipu in mapping if mapping.count(ipu) > 1}
    for index in range(3):
        members = np.flatnonzero((boxes.look == index) & (boxes.micro_batch >= 0))
        texts = [
            f"{stage}.{batch}" if ipu in several else str(batch)
            for ipu, stage, batch in zip(
                boxes.ipu[members].tolist(),
                boxes.stage[members].tolist(),
                boxes.micro_batch[members].tolist(),
                strict=True,
            )
        ]
        room = (boxes.end - boxes.start)[members] * points - 1.5
        for size in NUMBER_SIZES:
            fits = np.array([text_width(text, size) for text in texts]) <= room
            if size * 1.05 > height_points or not len(fits):
                continue
            if fits.mean() >= (0.9 if size != NUMBER_SIZES[-1] else 0.5):
                middle = (boxes.start + boxes.end)[members] / 2
                for number in np.flatnonzero(fits).tolist():
                    rows.text(
                        middle[number],
                        boxes.ipu[members[number]] + 0.5,
                        texts[number],
                        fontsize=size,
                        ha="center",
                        va="center_baseline",
                        color=LOOKS[index].ink if index != 2 else "#000000",
                        zorder=4,
                    )
                break
