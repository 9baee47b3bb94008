"""How a thing looks in pictures, as data that its own table holds; only render/ draws it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """Colour, hatching and name of one thing, and of all that is drawn like it.

    Hues are from the palette of Okabe and Ito ("Color Universal Design", 2008), which
    holds for colour-blind eyes, some darkened or lightened so that no two looks of one
    picture have the same lightness: in grey print they can be told apart. Those that come
    closest in grey to a neighbour are hatched.

    Attributes:
        name: in the legend.
        face, ink: colour of the box and of its hatching, ``#rrggbb``.
        hatch: matplotlib's hatch pattern, empty for none.
        number: colour of a micro-batch number on it.
        word: written into boxes that bear no number, where it fits.
        narrowest: points of width below which it cannot be told from other looks.
        essential: whether no picture leaves it out, however short it is: what an IPU does with its stage.
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
    """Return words as a key of JSON, in snake_case.

    >>> key_of("inter-IPU copy buffers")
    'inter_ipu_copy_buffers'
    >>> key_of("I/O tiles")
    'io_tiles'
    """
    return words.lower().replace("/", "").replace("-", "_").replace(" ", "_")
