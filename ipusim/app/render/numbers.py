"""Selection of the labels in the boxes of a trace: numbers of micro-batches, and words; nothing is drawn here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.api import Timeline, timelines
from ipusim.app.render.arrays import Integers
from ipusim.app.render.content import Content
from ipusim.app.render.lettering import text_width
from ipusim.app.render.style import NUMBER_SIZES, NUMBERED

#: Points of a box's width that a number leaves free: one that lies level, and one that stands upright. Numbers of
#: neighbouring boxes are as far from each other; with half of it they ran together where a picture is shown 850 pixels
#: wide, as 720 points.
_BESIDE: Final = {False: 4.0, True: 2.8}
#: Points of a box's height that an upright number leaves free.
_ABOVE: Final = 2.0
#: Height of a digit in its font's size.
DIGIT: Final = 0.73
#: Numbers of one look above which fewer are written: nobody reads them, and each takes as long to draw as many boxes.
_MOST_NUMBERS: Final = 1_500
#: Where not all numbers of a row can be written, those that one of these divides are, and the first and the last.
_STRIDES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class Label:
    """The text in the middle of a box, which is an index into the content's boxes, and whether the text is vertical."""

    box: int
    text: str
    size: float
    upright: bool


def several_stages_to_an_ipu(timeline: Timeline) -> bool:
    """Return whether any IPU runs several stages, so that numbers name the stage: ``stage.micro-batch``."""
    return any(len(stages) > 1 for stages in timeline.info.stages_of_ipu.values())


def numbers(content: Content, height_points: float) -> Iterator[Label]:
    """Yield the micro-batch of each box that holds one, with its stage too where any IPU has several.

    Of the boxes of one row and look, all have their number, or a regular selection with
    the first and the last, all of one size and level or else upright; none where not even
    that fits. ``height_points`` is the height of a whole row's boxes.
    """
    boxes = content.boxes
    several = several_stages_to_an_ipu(content.timeline)
    most = _MOST_NUMBERS // len(content.timeline.info.ipus)
    cut = _cut(content)
    for look in NUMBERED:
        numbered = np.flatnonzero((boxes.look == look) & (boxes.micro_batch >= 0))
        for ipu in np.unique(boxes.ipu[numbered]).tolist():
            members = numbered[boxes.ipu[numbered] == ipu]
            texts = [content.timeline.info.name_of(batch) for batch in boxes.micro_batch[members].tolist()]
            if several:
                stages = boxes.stage[members].tolist()
                texts = [f"{stage}.{text}" for stage, text in zip(stages, texts, strict=True)]
            yield from _of_row(content, members, cut[members], texts, height_points, most)


def words(content: Content, height_points: float) -> Iterator[Label]:
    """Yield the words in boxes without a number, such as ``load``, where they fit."""
    boxes = content.boxes
    widths = (boxes.end - boxes.start) * content.points
    for index, look in enumerate(timelines.LOOKS):
        for size in NUMBER_SIZES if look.word else ():
            fits = (boxes.look == index) & (boxes.top - boxes.bottom >= 0.5) & (size <= height_points)
            fits &= widths >= text_width(look.word, size) + 2 * _BESIDE[False]
            if fits.any():
                yield from (
                    Label(int(position), look.word, size, False) for position in np.flatnonzero(fits)[:_MOST_NUMBERS]
                )
                break


def _cut(content: Content) -> npt.NDArray[np.bool_]:
    """Return for each box whether the window cuts it, which may make it too narrow for its number."""
    timeline, window, boxes = content.timeline, content.window, content.boxes
    early = timeline.ipu[(timeline.start < window.start) & (timeline.end > window.start)]
    late = timeline.ipu[(timeline.start < window.end) & (timeline.end > window.end)]
    cut: npt.NDArray[np.bool_] = (boxes.start <= window.start) & np.isin(boxes.ipu, early)
    return cut | (boxes.end >= window.end) & np.isin(boxes.ipu, late)


def _of_row(
    content: Content, members: Integers, cut: npt.NDArray[np.bool_], texts: list[str], height_points: float, most: int
) -> Iterator[Label]:
    """Yield the labels of ``members``, the boxes of one row and look; at most ``most`` of them."""
    boxes = content.boxes
    widths = (boxes.end - boxes.start)[members] * content.points
    heights = (boxes.top - boxes.bottom)[members] * height_points
    # Judged by the widest digit, so that of numbers of one length all fit or none.
    shapes = [re.sub(r"\d", "0", text) for text in texts]
    batch = boxes.micro_batch[members]
    for stride, upright, size in product(_STRIDES, (False, True), NUMBER_SIZES):
        chosen = (batch % stride == 0) | (batch == batch.min()) | (batch == batch.max())
        if np.count_nonzero(chosen) > most or stride > max(int(batch.max()), 1):
            continue
        lengths = np.array([text_width(shape, size) for shape in shapes])
        if upright:
            fits = (DIGIT * size + _BESIDE[True] <= widths) & (lengths + _ABOVE <= heights)
        else:
            fits = (lengths + _BESIDE[False] <= widths) & (size <= heights)
        if (fits | cut)[chosen].all() and fits.any():
            for position in np.flatnonzero(chosen & fits).tolist():
                yield Label(int(members[position]), texts[position], size, upright)
            return
