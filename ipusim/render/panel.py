"""One Timeline drawn into its axes: rows of boxes with their numbers, and lines across them."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from ipusim.render.boxes import Integers
from ipusim.render.content import Content
from ipusim.render.lettering import cut, text_width
from ipusim.render.numbers import DIGIT, numbers, several_stages_to_an_ipu, words
from ipusim.render.style import DASHES, FAINT_TEXT, LINE, NUMBERED, STAGE_SIZE, TEXT_SIZE
from ipusim.timeline.kinds import LOOKS
from ipusim.timeline.timeline import Timeline

Floats = npt.NDArray[np.float64]

#: Part of a row's pitch that its boxes take.
_FILLED: Final = 0.84
#: The boxes of a pass have white edges, to tell neighbours apart, where they are at least this wide, in points.
_NARROWEST_EDGE: Final = 4.0
#: Hatching is left out where it would hide the colour.
_NARROWEST_HATCH: Final = 2.0
#: In rows lower than this, in points, a share can be less than a pixel high: on whole pixels it would come and go.
_LOWEST_SNAPPED: Final = 7.0
#: Boxes in one path: Agg rasterises a path as a whole and has an upper limit for its size.
_BOXES_TO_A_PATH: Final = 2_000
#: Points: between a row and its name, and the widest names of its stages, which are cut short there.
_BESIDE_NAME, _WIDEST_STAGES = 4.0, 90.0
_RECTANGLE: Final = (Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY)


def row_names(timeline: Timeline, ipus_to_a_row: int = 1) -> list[str]:
    """Return the name of each IPU's row.

    Where there are several replicas, the first row of each also names the replica. A row of several IPUs names the
    first and the last of them.
    """
    info = timeline.info
    if ipus_to_a_row > 1:
        last = info.ipu_rows[-1]
        return [f"IPUs {first} to {min(first + ipus_to_a_row - 1, last)}" for first in info.ipu_rows[::ipus_to_a_row]]
    return [
        ("" if info.replicas == 1 or ipu % info.shards else f"replica {ipu // info.shards}: ") + f"IPU {ipu}"
        for ipu in info.ipu_rows
    ]


def stage_names(timeline: Timeline, row_points: float) -> list[str]:
    """Return the names of the stages on each IPU's row, empty where rows ``row_points`` high have no room for them.

    Where numbers in boxes name the stage, so do these, as in ``0 embedding, 4 head``.
    """
    info = timeline.info
    if row_points < TEXT_SIZE + STAGE_SIZE * 1.3:
        return [""] * len(info.ipus)
    several = several_stages_to_an_ipu(timeline)
    names = []
    for ipu in info.ipu_rows:
        stages = info.stages_of_ipu.get(ipu, ())
        named = [info.stages[stage] for stage in stages]
        if several:
            named = [
                name if name == f"stage{stage}" else f"{stage} {name}"
                for stage, name in zip(stages, named, strict=True)
            ]
        most = _WIDEST_STAGES
        while len(named) > 1 and most > 0.5 and text_width(", ".join(named), STAGE_SIZE) > _WIDEST_STAGES:
            most *= 0.9
            named = [cut(name, STAGE_SIZE, most) for name in named]
        names.append(cut(", ".join(named) or "no stage", STAGE_SIZE, _WIDEST_STAGES))
    return names


def names_width(timeline: Timeline, row_points: float, ipus_to_a_row: int = 1) -> float:
    """Return the width in points of what stands beside rows ``row_points`` high."""
    stages = stage_names(timeline, row_points) if ipus_to_a_row == 1 else []
    return max(
        [
            *(text_width(name, TEXT_SIZE) for name in row_names(timeline, ipus_to_a_row)),
            *(text_width(name, STAGE_SIZE) for name in stages),
        ]
    )


def draw_panel(axes: Axes, content: Content, row_points: float) -> None:
    """Draw ``content`` on ``axes``, whose rows are ``row_points`` high; x coordinates are cycles."""
    rows = content.rows
    axes.set_xlim(content.window.start, content.window.end)
    axes.set_ylim(rows, 0)
    axes.set_yticks([])
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    _name_rows(axes, content, row_points)
    _draw_boxes(axes, content, snap=row_points >= _LOWEST_SNAPPED)
    window = content.window
    cuts = np.array(
        sorted({phase.end for phase in content.phases if window.start < phase.end < window.end}), dtype=np.float64
    )
    # With time-steps, phases end between boxes.
    within = cuts[:0] if content.timeline.info.has_time_steps else cuts
    _draw_numbers(axes, content, row_points * _FILLED, within)
    _draw_lines(axes, cuts, rows, linewidth=0.8)
    _draw_lines(axes, content.syncs.astype(np.float64), rows, linewidth=0.5, linestyle=DASHES)


def _name_rows(axes: Axes, content: Content, row_points: float) -> None:
    """Write the IPUs' names beside their rows, their stages below them, and draw a rule between replicas."""
    timeline = content.timeline
    info = timeline.info
    across = content.points * content.window.cycles  # points to the axes' width
    every = 1
    while row_points * every < TEXT_SIZE * 1.15:
        every *= 2
    together = content.ipus_to_a_row
    names = row_names(timeline, together)
    stages = stage_names(timeline, row_points) if together == 1 else [""] * len(names)
    how: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "ha": "right", "clip_on": False}
    for row, name in list(enumerate(names))[::every]:
        x = -_BESIDE_NAME / across
        position = "bottom" if stages[row] else "center_baseline"
        axes.text(x, row + 0.5, name, fontsize=TEXT_SIZE, va=position, **how)
        if stages[row]:
            axes.text(x, row + 0.5, stages[row], fontsize=STAGE_SIZE, color=FAINT_TEXT, va="top", **how)
    left = -(names_width(timeline, row_points, together) + _BESIDE_NAME) / across
    for replica in range(1, info.replicas):
        at = [replica * info.shards] * 2
        axes.plot([left, 1], at, transform=how["transform"], clip_on=False, color=LINE, linewidth=0.8, zorder=1)


def _draw_boxes(axes: Axes, content: Content, snap: bool) -> None:
    """Draw the boxes of each look as few paths: those of passes with edges, where they are wide enough."""
    boxes = content.boxes
    foot = boxes.ipu + 0.5 + _FILLED / 2
    bottom, top = foot - _FILLED * boxes.bottom, foot - _FILLED * boxes.top
    widths = (boxes.end - boxes.start) * content.points

    def draw(members: Integers, **how: Any) -> None:
        for part in range(0, len(members), _BOXES_TO_A_PATH):
            some = members[part : part + _BOXES_TO_A_PATH]
            path = _rectangles(boxes.start[some], boxes.end[some], bottom[some], top[some])
            # On whole pixels, as a part of one would be paler; add_patch would measure every box for the limits.
            axes.add_artist(PathPatch(path, snap=snap, **how))

    for index, look in enumerate(LOOKS):
        mine = boxes.look == index
        edged = mine & (boxes.micro_batch >= 0) & (widths >= _NARROWEST_EDGE) & (index in NUMBERED)
        draw(np.flatnonzero(edged), facecolor=look.face, zorder=2, edgecolor="white", linewidth=0.5)
        draw(np.flatnonzero(mine & ~edged), facecolor=look.face, zorder=2, edgecolor="none", linewidth=0.0)
        if look.hatch:
            wide = np.flatnonzero(mine & (widths >= _NARROWEST_HATCH))
            draw(wide, facecolor="none", zorder=2.1, edgecolor=look.ink, linewidth=0.0, hatch=look.hatch)


def _rectangles(start: Floats, end: Floats, bottom: Floats, top: Floats) -> Path:
    x = np.stack([start, end, end, start, start], axis=1)
    y = np.stack([bottom, bottom, top, top, bottom], axis=1)
    codes = np.tile(np.array(_RECTANGLE, dtype=Path.code_type), len(start))
    return Path(np.stack([x.ravel(), y.ravel()], axis=1), codes)


def _draw_lines(axes: Axes, at: Floats, rows: int, linewidth: float, linestyle: Any = "solid") -> None:
    """Draw vertical lines over all rows, as one path."""
    if not len(at):
        return
    vertices = np.stack([np.repeat(at, 2), np.tile([0.0, float(rows)], len(at))], axis=1)
    path = Path(vertices, np.tile(np.array([Path.MOVETO, Path.LINETO], dtype=Path.code_type), len(at)))
    line: dict[str, Any] = {"edgecolor": LINE, "linewidth": linewidth, "linestyle": linestyle}
    axes.add_artist(PathPatch(path, facecolor="none", zorder=3, **line))


def _draw_numbers(axes: Axes, content: Content, height_points: float, cuts: Floats) -> None:
    """Write the numbers of the micro-batches, and words, into their boxes.

    Where a line at one of ``cuts`` would cross what is written, that stands on a ground of the box's own colour.
    """
    boxes = content.boxes
    middle = (boxes.start + boxes.end) / 2
    height = boxes.ipu + 0.5 + _FILLED / 2 * (1 - (boxes.bottom + boxes.top))
    for number in chain(numbers(content, height_points), words(content, height_points)):
        look = LOOKS[boxes.look[number.box]]
        wide = DIGIT * number.size if number.upright else text_width(number.text, number.size)
        crossed = (np.abs(cuts - middle[number.box]) * content.points < wide / 2 + 1).any()
        # On a hatch, letters stand on such a ground too.
        on_ground = crossed or (look.word and look.hatch)
        ground = {"facecolor": look.face, "edgecolor": "none", "pad": 0.2 if crossed else 1.0} if on_ground else None
        axes.text(
            middle[number.box],
            height[number.box],
            number.text,
            fontsize=number.size,
            rotation=90 if number.upright else 0,
            rotation_mode="anchor",
            ha="center",
            va="center_baseline",
            color=look.number,
            bbox=ground,
            zorder=4,
        )
