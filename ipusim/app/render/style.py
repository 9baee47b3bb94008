"""Define the common style of pictures: span looks by legend position, text sizes, lines."""

from __future__ import annotations

from typing import Final

import numpy as np

from ipusim.api import timelines

#: Index into LOOKS of each span kind; -1 for kinds without a look, which pictures leave out.
LOOK_OF_KIND: Final = timelines.by_number(
    lambda row: -1 if row.look is None else timelines.LOOKS.index(row.look), np.int64
)

#: Inches between the edge of a picture and its content.
EDGE_IN: Final = 0.1
#: Width of every figure in inches.
WIDTH_IN: Final = 10.0
#: Sizes of text in points; a figure shown 900 pixels wide has 1.25 pixels per point.
TITLE_SIZE: Final = 10.0
TEXT_SIZE: Final = 8.0
#: Size of stage names below an IPU's name.
STAGE_SIZE: Final = 7.0
#: Sizes of numbers in boxes, in order of preference; smaller numbers are illegible.
NUMBER_SIZES: Final = (8.0, 7.0)

#: Indices into LOOKS of the looks whose boxes show micro-batch numbers.
NUMBERED: Final = tuple(LOOK_OF_KIND[[*timelines.PASSES]].tolist())

#: Indices into LOOKS of the looks that pictures never leave out, however small their boxes are.
ALWAYS_SHOWN: Final = tuple(index for index, look in enumerate(timelines.LOOKS) if look.essential)

#: Palette of Okabe and Ito, with markers; distinguishable in grey as well.
SERIES: Final = (
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#009E73", "^"),
    ("#CC79A7", "D"),
    ("#8c6d00", "v"),
    ("#56B4E9", "P"),
    ("#333333", "X"),
)

LINE: Final = "#333333"
#: Colour of repeated work, and of the hatches of lost work.
REDONE: Final = "#a33a3a"
FAINT_TEXT: Final = "#5a5a5a"
#: Dashes at synchronisation points: length of a dash and of a gap, in widths of the line.
DASHES: Final = (0.0, (4.0, 3.0))
#: Pixels per inch of a PNG; box widths are judged in these pixels.
DPI: Final = 180


def ink_on(face: str) -> str:
    """Return black or white, the stronger contrast on ``face`` (``#rrggbb``)."""
    return "#000000" if (luminance(face) + 0.05) / 0.05 >= 1.05 / (luminance(face) + 0.05) else "#ffffff"


def luminance(face: str) -> float:
    """Return the relative luminance of a colour ``#rrggbb``, 0 to 1 (WCAG 2.1)."""
    parts = [int(face[digit : digit + 2], 16) / 255 for digit in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
