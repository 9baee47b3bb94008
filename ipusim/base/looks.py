"""Define the look of an object in pictures: colours, hatching and name, as data for the package ``render``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """Colour, hatching and name of an object in pictures; objects may share a look.

    Hues are from the palette of Okabe and Ito ("Color Universal Design", 2008) for colour-blind readers, partly
    darkened or lightened so that looks of a picture differ in lightness and stay distinct in grey print. Looks with
    similar lightness are hatched.

    Attributes:
        name: name in the legend.
        face: colour of the box, ``#rrggbb``.
        ink: colour of the hatching, ``#rrggbb``.
        hatch: matplotlib's hatch pattern, empty for none.
        number: colour of a micro-batch number on the box.
        word: text in boxes without a number, shown if the box is wide enough.
        narrowest: width in points below which the look becomes indistinct.
        essential: whether pictures always show the box, however short, as for an IPU's work on stages.
    """

    name: str
    face: str
    ink: str
    hatch: str = ""
    number: str = "#000000"
    word: str = ""
    narrowest: float = 0.0
    essential: bool = False


def key_of(words: str) -> str:
    """Convert words to a JSON key in snake_case.

    >>> key_of("inter-IPU copy buffers")
    'inter_ipu_copy_buffers'
    >>> key_of("I/O tiles")
    'io_tiles'
    """
    return words.lower().replace("/", "").replace("-", "_").replace(" ", "_")
