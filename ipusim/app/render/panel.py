"""Draw a Timeline into axes: rows of boxes with numbers, and lines across them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from ipusim.api import Timeline, timelines
from ipusim.app.render.arrays import Floats, Integers
from ipusim.app.render.content import Content
from ipusim.app.render.lettering import text_width, truncate
from ipusim.app.render.numbers import DIGIT, Label, numbers, several_stages_to_an_ipu, words
from ipusim.app.render.style import DASHES, FAINT_TEXT, LINE, NUMBERED, REDONE, STAGE_SIZE, TEXT_SIZE

#: Share of a row's pitch filled by boxes.
BOX_HEIGHT: Final = 0.84
#: Minimum width of a pass with white edges, which separate it from its neighbours, in points.
_NARROWEST_EDGE: Final = 4.0
#: Minimum width of a hatched box, in points; narrower hatches would hide the colour.
_NARROWEST_HATCH: Final = 2.0
#: Minimum height of rows snapped to whole pixels, in points; snapping could hide shares in lower rows.
_LOWEST_SNAPPED: Final = 7.0
#: Maximum number of boxes in a path: Agg rasterises a whole path at once and limits its size.
_BOXES_TO_A_PATH: Final = 2_000
#: Distance between a row and its name in points.
_BESIDE_NAME: Final = 4.0
#: Maximum width of stage names in points; longer names are cut.
_WIDEST_STAGES: Final = 90.0
#: Points around a label that stay free of hatching and lines.
_BESIDE_LABEL: Final = 1.0
_RECTANGLE: Final = (Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY)


def row_names(timeline: Timeline, ipus_to_a_row: int = 1) -> list[str]:
    """Return the name of every row.

    With several replicas, the first row of a replica also names the replica. Slow IPUs are marked. Rows of several IPUs
    name the first and last IPU.
    """
    info = timeline.info
    if ipus_to_a_row > 1:
        last = info.ipu_rows[-1]
        return [f"IPUs {first} to {min(first + ipus_to_a_row - 1, last)}" for first in info.ipu_rows[::ipus_to_a_row]]
    return [
        ("" if info.replicas == 1 or ipu % info.shards else f"replica {ipu // info.shards}: ")
        + f"IPU {ipu}{', slow' * (ipu in info.slow_ipus)}"
        for ipu in info.ipu_rows
    ]


def stage_names(timeline: Timeline, row_points: float) -> list[str]:
    """Return the stage names of every row, which are empty if rows are too low.

    ``row_points`` is a row's height in points.

    If an IPU runs several stages, names carry stage numbers: ``0 embedding, 4 head``, or ``stages 0, 4, 8`` for lack of
    room.
    """
    info = timeline.info
    if row_points < TEXT_SIZE + STAGE_SIZE * 1.3:
        return [""] * len(info.ipus)
    several = several_stages_to_an_ipu(timeline)
    names = []
    for ipu in info.ipu_rows:
        stages = info.stages_of_ipu.get(ipu, ())
        texts = [info.stages[stage] for stage in stages]
        if len(stages) == 1:
            two_lines = row_points >= 1.1 * TEXT_SIZE + 2.4 * STAGE_SIZE
            texts = [_with_layers(stages[0], texts[0], info.layers_of[stages[0]], "\n" if two_lines else ": ")]
        if several:
            texts = [
                name if name == f"stage{stage}" else f"{stage} {name}"
                for stage, name in zip(stages, texts, strict=True)
            ]
        if len(texts) > 1 and text_width(", ".join(texts), STAGE_SIZE) > _WIDEST_STAGES:
            texts = [f"stages {', '.join(map(str, stages))}"]  # numbers as in the boxes
        names.append(", ".join(texts) or "no stage")
    short = [_cut_lines(name) for name in names]
    if len(set(short)) < len(set(names)):  # names differ only at the end
        return [_cut_lines(name, keeps_end=True) for name in names]
    return short


def _cut_lines(name: str, *, keeps_end: bool = False) -> str:
    return "\n".join(truncate(line, STAGE_SIZE, _WIDEST_STAGES, keeps_end=keeps_end) for line in name.split("\n"))


def _with_layers(stage: int, name: str, layers: str, separator: str) -> str:
    """Return a stage's name with its first and last layer; unnamed stages have only the layers."""
    range_text = timelines.ends_text(layers)
    return (
        name
        if range_text in ("", name)
        else range_text
        if name == f"stage{stage}"
        else f"{name}{separator}{range_text}"
    )


def names_width(timeline: Timeline, row_points: float, ipus_to_a_row: int = 1) -> float:
    """Return the width in points of the labels beside rows ``row_points`` high."""
    stages = stage_names(timeline, row_points) if ipus_to_a_row == 1 else []
    return max(
        [
            *(text_width(name, TEXT_SIZE) for name in row_names(timeline, ipus_to_a_row)),
            *(text_width(line, STAGE_SIZE) for name in stages for line in name.split("\n")),
        ]
    )


def draw_panel(axes: Axes, content: Content, row_points: float) -> None:
    """Draw ``content`` into ``axes`` with rows ``row_points`` high; x coordinates are cycles."""
    rows = content.rows
    axes.set_xlim(content.window.start, content.window.end)
    axes.set_ylim(rows, 0)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    _name_rows(axes, content, row_points)
    snap = row_points >= _LOWEST_SNAPPED
    _draw_boxes(axes, content, snap)
    _draw_redone(axes, content)
    labels = [*numbers(content, row_points * BOX_HEIGHT), *words(content, row_points * BOX_HEIGHT)]
    _draw_labels(axes, content, row_points, labels, snap)
    _draw_lines(axes, content, np.array(content.phase_ends, dtype=np.float64), labels, linewidth=0.8)
    _draw_lines(axes, content, content.syncs.astype(np.float64), labels, linewidth=0.5, linestyle=DASHES)


def _name_rows(axes: Axes, content: Content, row_points: float) -> None:
    """Write IPUs and stages beside the rows, and draw rules between replicas."""
    timeline = content.timeline
    info = timeline.info
    width_points = content.points * content.window.cycles  # width of the axes in points
    stride = 1
    while row_points * stride < TEXT_SIZE * 1.15:
        stride *= 2
    ipus_to_a_row = content.ipus_to_a_row
    names = row_names(timeline, ipus_to_a_row)
    stages = stage_names(timeline, row_points) if ipus_to_a_row == 1 else [""] * len(names)
    style: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "ha": "right", "clip_on": False}
    for row, name in list(enumerate(names))[::stride]:
        x = -_BESIDE_NAME / width_points
        position = "bottom" if stages[row] else "center_baseline"
        axes.text(x, row + 0.5, name, fontsize=TEXT_SIZE, va=position, **style)
        if stages[row]:
            axes.text(x, row + 0.5, stages[row], fontsize=STAGE_SIZE, color=FAINT_TEXT, va="top", **style)
    left = -(names_width(timeline, row_points, ipus_to_a_row) + _BESIDE_NAME) / width_points
    for replica in range(1, info.replicas):
        edge = [replica * info.shards] * 2
        axes.plot([left, 1], edge, transform=style["transform"], clip_on=False, color=LINE, linewidth=0.8, zorder=1)


def _draw_boxes(axes: Axes, content: Content, snap: bool) -> None:
    """Draw the boxes of every look as few paths; wide passes have edges."""
    boxes = content.boxes
    foot = boxes.ipu + 0.5 + BOX_HEIGHT / 2
    bottom, top = foot - BOX_HEIGHT * boxes.bottom, foot - BOX_HEIGHT * boxes.top
    widths = (boxes.end - boxes.start) * content.points

    def draw(members: Integers, **style: Any) -> None:
        for start in range(0, len(members), _BOXES_TO_A_PATH):
            slots = members[start : start + _BOXES_TO_A_PATH]
            path = rectangles(boxes.start[slots], boxes.end[slots], bottom[slots], top[slots])
            # Whole pixels avoid pale edges; add_patch would measure every box for the limits.
            axes.add_artist(PathPatch(path, snap=snap, **style))

    for index, look in enumerate(timelines.LOOKS):
        has_look = boxes.look == index
        edged = has_look & (boxes.micro_batch >= 0) & (widths >= _NARROWEST_EDGE) & (index in NUMBERED)
        draw(np.flatnonzero(edged), facecolor=look.face, zorder=2, edgecolor="white", linewidth=0.5)
        draw(np.flatnonzero(has_look & ~edged), facecolor=look.face, zorder=2, edgecolor="none", linewidth=0.0)
        if look.hatch:
            wide = np.flatnonzero(has_look & (widths >= _NARROWEST_HATCH))
            draw(wide, facecolor="none", zorder=2.1, edgecolor=look.ink, linewidth=0.0, hatch=look.hatch)


def _draw_redone(axes: Axes, content: Content) -> None:
    """Draw lines above work repeated after the loss of an IPU."""
    height = (1 - BOX_HEIGHT) / 2 * 0.8
    rows = {ipu // content.ipus_to_a_row for ipu in content.timeline.info.stages_of_ipu}
    for begin, end in content.redone:
        for row in sorted(rows):
            axes.add_artist(Rectangle((begin, row), end - begin, height, facecolor=REDONE, linewidth=0, zorder=1.5))


def rectangles(start: Floats, end: Floats, bottom: Floats, top: Floats) -> Path:
    """Return a single path of the rectangles."""
    x = np.stack([start, end, end, start, start], axis=1)
    y = np.stack([bottom, bottom, top, top, bottom], axis=1)
    codes = np.tile(np.array(_RECTANGLE, dtype=Path.code_type), len(start))
    return Path(np.stack([x.ravel(), y.ravel()], axis=1), codes)


def _draw_lines(
    axes: Axes, content: Content, x_values: Floats, labels: Sequence[Label], linewidth: float, linestyle: Any = "solid"
) -> None:
    """Draw vertical lines over the rows as a path, interrupted at labels."""
    if not len(x_values):
        return
    is_hidden = np.zeros((len(x_values), content.rows), dtype=bool)
    boxes = content.boxes
    members = np.array([label.box for label in labels], dtype=np.int64)
    middle = (boxes.start[members] + boxes.end[members]) / 2
    half = np.array([_size(label)[0] / 2 + _BESIDE_LABEL for label in labels]) / content.points
    first, stop = np.searchsorted(x_values, middle - half), np.searchsorted(x_values, middle + half, side="right")
    for label in np.flatnonzero(first < stop):
        is_hidden[first[label] : stop[label], boxes.ipu[members[label]]] = True
    # Toggle points of a line: hidden stretches begin and end there. Gaps between a hidden row and its neighbours stay
    # drawn.
    edge = np.diff(is_hidden, axis=1, prepend=False, append=False)
    line, row = np.nonzero(edge)
    begins = is_hidden[line, np.minimum(row, content.rows - 1)] & (row < content.rows)
    gap = (1 - BOX_HEIGHT) / 2
    ends = np.where(begins, row + gap, row - gap)
    lines = np.arange(len(x_values))
    x = np.concatenate([lines, lines, line])
    y = np.concatenate([np.zeros(len(x_values)), np.full(len(x_values), float(content.rows)), ends])
    order = np.lexsort((y, x))
    codes = np.tile(np.array([Path.MOVETO, Path.LINETO], dtype=Path.code_type), len(order) // 2)
    path = Path(np.stack([x_values[x[order]], y[order]], axis=1), codes)
    line_style: dict[str, Any] = {"edgecolor": LINE, "linewidth": linewidth, "linestyle": linestyle}
    axes.add_artist(PathPatch(path, facecolor="none", zorder=3, **line_style))


def _size(label: Label) -> tuple[float, float]:
    """Return width and height of a label's letters, in points."""
    length, height = text_width(label.text, label.size), DIGIT * label.size
    return (height, length) if label.upright else (length, height)


def _draw_labels(axes: Axes, content: Content, row_points: float, labels: Sequence[Label], snap: bool) -> None:
    """Write micro-batch numbers and words into boxes, with plain background on hatches."""
    boxes = content.boxes
    middle = (boxes.start + boxes.end) / 2
    height = boxes.ipu + 0.5 + BOX_HEIGHT / 2 * (1 - (boxes.bottom + boxes.top))
    grounds: dict[int, list[tuple[float, float, float, float]]] = {}
    for label in labels:
        x, y, look = middle[label.box], height[label.box], int(boxes.look[label.box])
        if timelines.LOOKS[look].hatch:
            wide, tall = (size / 2 + _BESIDE_LABEL for size in _size(label))
            half = min(wide / content.points, (boxes.end - boxes.start)[label.box] / 2)
            half_tall = min(tall / row_points, BOX_HEIGHT * (boxes.top - boxes.bottom)[label.box] / 2)
            grounds.setdefault(look, []).append((x - half, x + half, y + half_tall, y - half_tall))
        axes.text(
            x,
            y,
            label.text,
            fontsize=label.size,
            rotation=90 if label.upright else 0,
            rotation_mode="anchor",
            ha="center",
            va="center_baseline",
            color=timelines.LOOKS[look].number,
            zorder=4,
        )
    for look, texts in grounds.items():
        path = rectangles(*np.array(texts).T)
        axes.add_artist(PathPatch(path, snap=snap, facecolor=timelines.LOOKS[look].face, edgecolor="none", zorder=2.2))
