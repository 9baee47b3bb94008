"""How each kind of span looks: colours that hold for colour-blind eyes and on grey paper.

Hues are from the palette of Okabe and Ito ("Color Universal Design", 2008), some
darkened or lightened so that no two looks have the same lightness: in grey print
they run from host I/O (darkest) to the waits (lightest). The two that come
closest in grey to a neighbour are hatched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ipusim.timeline.timeline import SpanKind


@dataclass(frozen=True)
class Look:
    """How one group of span kinds is drawn.

    Attributes:
        name: in the legend.
        kinds: the span kinds that it stands for.
        face, ink: colour of the box and of its hatching, ``#rrggbb``.
        hatch: matplotlib's hatch pattern, empty for none.
        number: colour of a micro-batch number on it.
        word: written into boxes that bear no number, where it fits.
        narrowest: points of width below which it cannot be told from other looks.
    """

    name: str
    kinds: tuple[SpanKind, ...]
    face: str
    ink: str
    hatch: str = ""
    number: str = "#000000"
    word: str = ""
    narrowest: float = 0.0


#: Every look, in the order of the legend, and from the bottom up where boxes are stacked.
LOOKS: Final = (
    Look("forward", (SpanKind.FORWARD,), "#56b4e9", "#000000"),
    Look("backward", (SpanKind.BACKWARD,), "#c44e00", "#ffffff", number="#ffffff"),
    Look("recomputation", (SpanKind.RECOMPUTE,), "#f0e442", "#6b6400", "////"),
    Look("all-reduce", (SpanKind.ALL_REDUCE,), "#0b79bd", "#ffffff", "....", "#ffffff", "all-reduce"),
    Look("all-gather", (SpanKind.ALL_GATHER,), "#9a8fd1", "#000000", "oo", word="all-gather"),
    Look("weight update", (SpanKind.WEIGHT_UPDATE,), "#b8669a", "#ffffff", "\\\\\\\\", "#ffffff", "update"),
    Look(
        "host I/O",
        (SpanKind.INFEED, SpanKind.OUTFEED, SpanKind.OVERLAPPED_INFEED, SpanKind.OVERLAPPED_OUTFEED),
        "#3d4459",
        "#ffffff",
    ),
    Look("load from Streaming Memory", (SpanKind.REMOTE_LOAD,), "#b5893a", "#000000", word="load"),
    Look("store to Streaming Memory", (SpanKind.REMOTE_STORE,), "#7a5c12", "#ffffff", "//", "#ffffff", "store"),
    Look("exchange", (SpanKind.EXCHANGE,), "#00674b", "#ffffff"),
    Look("sync", (SpanKind.SYNC,), "#c9c9c9", "#000000", narrowest=1.0),
    Look("host wait", (SpanKind.HOST_WAIT, SpanKind.OVERLAPPED_WAIT), "#f3f3f3", "#8a8a8a", "xxxx", narrowest=4.0),
    Look("sync wait", (SpanKind.SYNC_WAIT,), "#ededed", "#000000"),
)

#: Index into LOOKS of each span kind; -1 for kinds that lie on no IPU's row.
LOOK_OF_KIND: Final = tuple(
    next((index for index, look in enumerate(LOOKS) if kind in look.kinds), -1) for kind in SpanKind
)

#: Sizes of text in points. A figure 10 inches wide that is shown 900 pixels wide has 1.25 pixels to the point.
TITLE_SIZE: Final = 10.0
TEXT_SIZE: Final = 8.0
#: Of the stages' names below an IPU's.
STAGE_SIZE: Final = 7.0
#: Sizes that numbers in boxes may have, tried in this order.
NUMBER_SIZES: Final = (8.0, 7.0, 6.0)

#: Indices into LOOKS of the boxes that bear a micro-batch's number.
NUMBERED: Final = (0, 1, 2)

#: Indices into LOOKS of what a picture never leaves out, however short it is: what an IPU does with its stage.
ALWAYS_SHOWN: Final = tuple(range(6))

LINE: Final = "#333333"
FAINT_TEXT: Final = "#5a5a5a"
#: Of the lines at synchronisation points: on and off, in widths of the line.
DASHES: Final = (0.0, (4.0, 3.0))
#: Pixels to the inch of a PNG; boxes are judged too narrow to draw in these pixels.
DPI: Final = 180
