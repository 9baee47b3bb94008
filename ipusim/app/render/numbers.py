"""Choose the labels in the boxes of a trace: micro-batch numbers and words; no drawing."""

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

#: Points of a box's width that stay free beside a number, by whether the number is upright. Half as many points were
#: too few in pictures shown 850 pixels (720 points) wide.
_SIDE_MARGINS: Final = {False: 4.0, True: 2.8}
#: Points of a box's height that stay free above an upright number.
_HEADROOM: Final = 2.0
#: Height of a digit as share of its font size.
DIGIT: Final = 0.73
#: Maximum number of labels for a look: more are unreadable and slow to draw.
_MOST_NUMBERS: Final = 1_500
#: Strides of the written micro-batch numbers, tried in turn for lack of room; the first and last are always written.
_STRIDES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class Label:
    """Text in the middle of a box.

    Attributes:
        box: index into the content's boxes.
        text: the text.
        size: font size in points.
        upright: whether the text is vertical.
    """

    box: int
    text: str
    size: float
    upright: bool


def several_stages_to_an_ipu(timeline: Timeline) -> bool:
    """Return whether any IPU runs several stages; boxes then show ``stage.micro-batch``."""
    return any(len(stages) > 1 for stages in timeline.info.stages_of_ipu.values())


def numbers(content: Content, height_points: float) -> Iterator[Label]:
    """Yield micro-batch numbers for boxes, with stages if an IPU runs several.

    Boxes of a row and look have numbers at a regular stride, and the first and last have one. All have equal size and
    orientation. If even the widest stride does not fit, the row has no numbers. ``height_points`` is the height of a
    box as high as the row.
    """
    boxes = content.boxes
    several = several_stages_to_an_ipu(content.timeline)
    most = _MOST_NUMBERS // len(content.timeline.info.ipus)
    is_cut = _is_cut(content)
    for look in NUMBERED:
        numbered = np.flatnonzero((boxes.look == look) & (boxes.micro_batch >= 0))
        for ipu in np.unique(boxes.ipu[numbered]).tolist():
            members = numbered[boxes.ipu[numbered] == ipu]
            texts = [content.timeline.info.name_of(batch) for batch in boxes.micro_batch[members].tolist()]
            if several:
                stages = boxes.stage[members].tolist()
                texts = [f"{stage}.{text}" for stage, text in zip(stages, texts, strict=True)]
            yield from _row_labels(content, members, is_cut[members], texts, height_points, most)


def words(content: Content, height_points: float) -> Iterator[Label]:
    """Yield the words that fit into boxes without numbers, such as ``load``."""
    boxes = content.boxes
    widths = (boxes.end - boxes.start) * content.points
    for index, look in enumerate(timelines.LOOKS):
        for size in NUMBER_SIZES if look.word else ():
            fits = (boxes.look == index) & (boxes.top - boxes.bottom >= 0.5) & (size <= height_points)
            fits &= widths >= text_width(look.word, size) + 2 * _SIDE_MARGINS[False]
            if fits.any():
                yield from (
                    Label(int(position), look.word, size, False) for position in np.flatnonzero(fits)[:_MOST_NUMBERS]
                )
                break


def _is_cut(content: Content) -> npt.NDArray[np.bool_]:
    """Return for every box whether the window cuts it. Cut boxes may be too narrow for their number."""
    timeline, window, boxes = content.timeline, content.window, content.boxes
    early = timeline.ipu[(timeline.start < window.start) & (timeline.end > window.start)]
    late = timeline.ipu[(timeline.start < window.end) & (timeline.end > window.end)]
    from_earlier: npt.NDArray[np.bool_] = (boxes.start <= window.start) & np.isin(boxes.ipu, early)
    return from_earlier | (boxes.end >= window.end) & np.isin(boxes.ipu, late)


def _row_labels(
    content: Content,
    members: Integers,
    is_cut: npt.NDArray[np.bool_],
    texts: list[str],
    height_points: float,
    most: int,
) -> Iterator[Label]:
    """Yield at most ``most`` labels for ``members``, boxes of the same row and look."""
    boxes = content.boxes
    widths = (boxes.end - boxes.start)[members] * content.points
    heights = (boxes.top - boxes.bottom)[members] * height_points
    # Zeros are the widest digits: numbers of equal length fit together or not at all.
    shapes = [re.sub(r"\d", "0", text) for text in texts]
    batch = boxes.micro_batch[members]
    for stride, upright, size in product(_STRIDES, (False, True), NUMBER_SIZES):
        is_candidate = (batch % stride == 0) | (batch == batch.min()) | (batch == batch.max())
        if np.count_nonzero(is_candidate) > most or stride > max(int(batch.max()), 1):
            continue
        lengths = np.array([text_width(shape, size) for shape in shapes])
        if upright:
            fits = (DIGIT * size + _SIDE_MARGINS[True] <= widths) & (lengths + _HEADROOM <= heights)
        else:
            fits = (lengths + _SIDE_MARGINS[False] <= widths) & (size <= heights)
        if (fits | is_cut)[is_candidate].all() and fits.any():
            for position in np.flatnonzero(is_candidate & fits).tolist():
                yield Label(int(members[position]), texts[position], size, upright)
            return
