"""What all pictures have in common: the looks of spans by their position in the legend, sizes of text, lines."""

from __future__ import annotations

from typing import Final

import numpy as np

from ipusim.api import timelines

#: Index into LOOKS of each span kind; -1 for kinds that lie on no IPU's row.
LOOK_OF_KIND: Final = timelines.by_number(
    lambda row: -1 if row.look is None else timelines.LOOKS.index(row.look), np.int64
)

#: Inches that every figure is wide.
WIDTH_IN: Final = 10.0
#: Sizes of text in points. A figure that is shown 900 pixels wide has 1.25 pixels to the point.
TITLE_SIZE: Final = 10.0
TEXT_SIZE: Final = 8.0
#: Of the stages' names below an IPU's.
STAGE_SIZE: Final = 7.0
#: Sizes that numbers in boxes may have, tried in this order; smaller ones cannot be read at that width.
NUMBER_SIZES: Final = (8.0, 7.0)

#: Indices into LOOKS of the boxes that bear a micro-batch's number.
NUMBERED: Final = tuple(LOOK_OF_KIND[[*timelines.PASSES]].tolist())

#: Indices into LOOKS of what a picture never leaves out, however short it is: what an IPU does with its stage.
ALWAYS_SHOWN: Final = tuple(index for index, look in enumerate(timelines.LOOKS) if look.essential)

#: Of the palette of Okabe and Ito, with a marker each: they can be told apart in grey as well.
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
#: Colour of work that is done again; the hatches of lost work have it too.
REDONE: Final = "#a33a3a"
FAINT_TEXT: Final = "#5a5a5a"
#: Of the lines at synchronisation points: on and off, in widths of the line.
DASHES: Final = (0.0, (4.0, 3.0))
#: Pixels to the inch of a PNG; boxes are judged too narrow to draw in these pixels.
DPI: Final = 180


def ink_on(face: str) -> str:
    """Return black or white, whichever has the higher contrast on a ``face`` of ``#rrggbb``."""
    return "#000000" if (luminance(face) + 0.05) / 0.05 >= 1.05 / (luminance(face) + 0.05) else "#ffffff"


def luminance(face: str) -> float:
    """Return the relative luminance of a colour ``#rrggbb``, 0 to 1, as WCAG 2.1 defines it."""
    parts = [int(face[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
