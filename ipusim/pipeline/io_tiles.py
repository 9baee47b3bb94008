"""Describe the tiles of each IPU that are reserved for host copies: Graphcore's ``IPUConfig.io_tiles``."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ipusim.base.errors import ProgramError
from ipusim.pipeline.program import PipelineProgram

#: Graphcore's default for io_tiles.available_memory_proportion.
AVAILABLE_MEMORY_PROPORTION = Fraction(9, 10)


@dataclass(frozen=True)
class IoTiles:
    """I/O tiles requested by a program.

    Attributes:
        count: reserved tiles of each IPU (num_io_tiles).
        place_ops: whether feeds are placed on these tiles and overlap passes (place_ops_on_io_tiles).
        available_memory_proportion: fraction of the tiles' memory available to feeds.

    Raises ProgramError, with Graphcore's text, for feeds without tiles.
    """

    count: int = 0
    place_ops: bool = False
    available_memory_proportion: Fraction = AVAILABLE_MEMORY_PROPORTION

    def __post_init__(self) -> None:
        """Refuse placed operations without I/O tiles."""
        if self.place_ops and not self.count:
            raise ProgramError("Cannot place ops on I/O tiles when io_tiles.num_io_tiles == 0")

    def why_not_placed(self, program: PipelineProgram, bytes_per_tile: int) -> str:
        """Return the reason why feeds of ``program`` are not placed on I/O tiles; empty if placed.

        Like Graphcore's compiler: if feeds need all available memory of the tiles, no feed is placed, and the tiles
        compute like others.
        """
        mapping = program.shape.mapping
        feeds = [(mapping[0], program.infeed.element_bytes), (mapping[-1], program.outfeed.element_bytes)]
        most_bytes = max(sum(size for home, size in feeds if home == ipu) for ipu, _ in feeds)
        available_bytes = self.count * bytes_per_tile * self.available_memory_proportion
        if not most_bytes:
            return "I/O tiles have no effect, because the feeds move no bytes; the tiles compute instead."
        if most_bytes >= available_bytes:
            return (
                f"Computation too large to fit on IO tiles, with {most_bytes} bytes of feeds in "
                f"{int(available_bytes)} bytes on {self.count} tiles; the tiles compute instead, and feeds are not "
                "overlapped."
            )
        return ""
