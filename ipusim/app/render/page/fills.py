"""Choose fill colours of looks on the page, with contrast of at least 3:1 in both schemes.

Pictures have white paper, and their colours are chosen for print. WCAG 2.1 (success criterion 1.4.11) asks for a
contrast of 3:1 between a graphic and its background. Many picture colours miss 3:1 on white, others on dark paper. Each
therefore has a counterpart on the page, with the same hue where possible, and distinguishable by colour-blind readers.
If more contrast would change the hue (yellow would become brown), the page keeps the picture's colour and adds an edge
and a hatch with 3:1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from ipusim.app.render.style import ink_on
from ipusim.base.looks import Look


class Shades(NamedTuple):
    """Colour ``#rrggbb`` on light paper and on dark paper."""

    light: str
    dark: str


#: Background of spans and memory; legends and bars use the page's paper.
LANES: Final = Shades("#f7f8fa", "#20242c")
#: Fill colours of boxes by face colour in pictures.
_FILLS: Final = {
    "#56b4e9": Shades("#3591c5", "#56b4e9"),
    "#c44e00": Shades("#c44e00", "#db5700"),
    "#f0e442": Shades("#f0e442", "#f0e442"),
    "#f2a35e": Shades("#d96f12", "#f2a35e"),
    "#009e73": Shades("#16985d", "#009e73"),
    "#0b79bd": Shades("#0b7bc1", "#0d8ede"),
    "#3d4459": Shades("#3d4459", "#3d4459"),
    "#7a3b63": Shades("#512036", "#9e5c86"),
    "#9a8fd1": Shades("#60417c", "#9086c0"),
    "#5d4b9c": Shades("#5d4b9c", "#7664b4"),
    "#b8669a": Shades("#b8669a", "#c07798"),
    "#b5893a": Shades("#b28639", "#b5893a"),
    "#7a5c12": Shades("#93622a", "#9f6a2d"),
    "#00674b": Shades("#00674b", "#127d60"),
    "#8cc9b5": Shades("#3c9f7f", "#82c4a3"),
    "#c9c9c9": Shades("#6e6e6e", "#d1d1d1"),
    "#6f7585": Shades("#656478", "#aab2bb"),
    "#00507d": Shades("#00507d", "#197bb3"),
    "#cc79a7": Shades("#b870a5", "#c86fa0"),
    "#e3e3e3": Shades("#e3e3e3", "#e3e3e3"),
    "#8c8c8c": Shades("#6e6e6e", "#6e6e6e"),
    "#e69f00": Shades("#bd8200", "#e69f00"),
    "#8c6d00": Shades("#8c6d00", "#8c6d00"),
}
#: Edges and hatches of filled boxes with low contrast, by face colour in pictures; empty if the box has no edge.
_OUTLINES: Final = {
    "#f0e442": Shades("#524e00", ""),
    "#3d4459": Shades("", "#a5a1c4"),
    "#e3e3e3": Shades("#8c8c8c", ""),
}
#: Edges and hatches of hollow boxes by face colour in pictures; hollow means idle time or free memory.
_EDGES: Final = {
    "#ededed": Shades("#838a94", "#7e8794"),
    "#f3f3f3": Shades("#6a6a6a", "#a0a0a0"),
    "#e4edf4": Shades("#5f7f9c", "#7f9db8"),
    "#e3f3fc": Shades("#3591c5", "#56b4e9"),
    "#cfe6f5": Shades("#3b7ea6", "#7fb8dc"),
    "#f4d8c4": Shades("#8f4e1f", "#d99a66"),
    "#f7d9c0": Shades("#a6652b", "#e0a070"),
    "#dcd6ee": Shades("#6a5fa0", "#a79ce0"),
    "#fbf8d0": Shades("#847d00", "#b5ad3a"),
    "#f6d5d5": Shades("#a33a3a", "#d98080"),
    "#f3e0c8": Shades("#8a5a12", "#cf9a4a"),
    "#d9e4d2": Shades("#4b6e2f", "#8fb56e"),
    "#9fc5b0": Shades("#3f7a5d", "#8cc9a9"),
    "#fafafa": Shades("#8a8a8a", "#8a8a8a"),
}
_NO_OUTLINE: Final = Shades("", "")
#: Share of the edge's colour in the fill of a hollow box.
_TINT: Final = 0.14


def page_looks(looks: Iterable[Look]) -> list[dict[str, Any]]:
    """Return looks for the page's scripts, with ``fill``, ``edge`` and ``ink`` of each scheme."""
    return [
        {
            "name": look.name,
            "hatch": look.hatch,
            "word": look.word,
            "essential": look.essential,
            **{scheme: colours(look.face, scheme) for scheme in Shades._fields},
        }
        for look in looks
    ]


def colours(face: str, scheme: str) -> dict[str, str]:
    """Return fill, edge, and ink on the fill, of a look in scheme ``light`` or ``dark``.

    Raises KeyError if no look has this face colour.
    """
    if face in _FILLS:
        fill, edge = getattr(_FILLS[face], scheme), getattr(_OUTLINES.get(face, _NO_OUTLINE), scheme)
    else:
        edge = getattr(_EDGES[face], scheme)
        fill = _mix(edge, getattr(LANES, scheme))
    return {"fill": fill, "edge": edge, "ink": ink_on(fill)}


def _mix(colour: str, ground: str) -> str:
    """Return a tint of a colour on a background."""
    pairs = ((int(text[digit : digit + 2], 16) for text in (colour, ground)) for digit in (1, 3, 5))
    return "#" + "".join(f"{round(_TINT * part + (1 - _TINT) * ground_part):02x}" for part, ground_part in pairs)
