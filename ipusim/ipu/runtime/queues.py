"""Define the base classes of queues, which pipelines take as arguments."""

from __future__ import annotations

from enum import Enum
from typing import Final

from ipusim.api import runs

#: Default capacity of the host's buffer, in elements.
BUFFER_DEPTH: Final = runs.OutfeedSpec().buffer_depth


class IPUOutfeedMode(Enum):
    """Elements to keep: ALL or only the LAST; values are the names in scenarios."""

    ALL = "ALL"
    LAST = "LAST"


class InfeedArguments:
    """Arguments of an infeed, except the dataset.

    Attributes:
        ordinal: device number of fed programs.
        prefetch_depth: elements kept ready by the host.
        optimise_latency: argument of the same name.
    """

    ordinal: int
    prefetch_depth: int
    optimise_latency: bool


class OutfeedArguments:
    """Arguments of an outfeed.

    Attributes:
        ordinal: device number of sending programs.
        outfeed_mode: selection of elements to keep.
        buffer_depth: capacity of the host's buffer, in elements.
        optimise_latency: argument of the same name.
    """

    ordinal: int
    outfeed_mode: IPUOutfeedMode
    buffer_depth: int
    optimise_latency: bool
