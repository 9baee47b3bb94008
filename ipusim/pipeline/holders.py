"""List the holders of memory, such as parameters, with name, key and look for tables, charts and messages.

A new holder needs a row in this module, with its bytes in :mod:`ipusim.pipeline.footprint`. Rows have the order of
``summary.json``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from ipusim.base.looks import Look, key_of


class Holder(StrEnum):
    """A kind of memory content; the value is the name in pins.

    Every kind is resident, with a constant size during a run, except live tensors.

    Attributes:
        label: name in messages.
        short: one word, as heading of a table column.
        layer: position in the memory chart from the bottom up, constant holders first.
        look: colours and pattern in the chart; for FIFOs and the buffer for products, those of the used part.
        empty: colours and pattern of the unused part, on top; None for always full holders.
    """

    label: str
    short: str
    layer: int
    look: Look
    empty: Look | None

    def __new__(
        cls, name: str, short: str, layer: int, look: Look, empty: Look | None = None, label: str = ""
    ) -> Holder:
        """Create a member with value ``name`` and the attributes of its row; ``label`` is ``name`` if empty."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.label, member.short, member.layer = label or name, short, layer
        member.look, member.empty = look, empty
        return member

    @property
    def key(self) -> str:
        """Key of the holder in ``summary.json``, such as ``fifo_buffers``."""
        return key_of(self)

    PARAMETERS = "parameters", "parameters", 0, Look("parameters", "#00507d", "#ffffff")
    STATE = "optimizer state", "optimizer", 1, Look("optimizer state", "#009e73", "#ffffff", "....")
    ACCUMULATORS = (
        "gradient accumulators",
        "gradients",
        2,
        Look("gradient accumulators", "#cc79a7", "#ffffff", "\\\\\\\\"),
    )
    FIFOS = (
        "FIFO buffers",
        "FIFOs",
        6,
        Look("FIFO buffers: held", "#56b4e9", "#000000"),
        Look("FIFO buffers: empty", "#e3f3fc", "#56b4e9", "////"),
    )
    COPIES = "inter-IPU copy buffers", "copies", 4, Look("inter-IPU copy buffers", "#8c8c8c", "#000000")
    STREAMS = "host stream buffers", "streams", 5, Look("host stream buffers", "#3d4459", "#ffffff")
    CODE = "code and vertices", "code", 3, Look("code and vertices", "#e3e3e3", "#777777", "xxxx")
    TEMPORARY = (
        "products while they run",
        "products",
        7,
        Look("room for products: in use", "#f0e442", "#000000"),
        Look("room for products", "#fbf8d0", "#a89f00", "\\\\\\\\"),
        "temporary data of matrix products",
    )
    LIVE = "live tensors", "live", 8, Look("live tensors", "#e69f00", "#000000")


#: Holders with constant size during a run.
RESIDENT: Final[tuple[Holder, ...]] = tuple(holder for holder in Holder if holder is not Holder.LIVE)
#: Layers of the memory chart from the bottom up.
LAYERS: Final = tuple(
    look
    for holder in sorted(Holder, key=lambda holder: holder.layer)
    for look in (holder.look, holder.empty)
    if look is not None
)
