"""Tiles of each IPU that are set aside for host copies: Graphcore's ``IPUConfig.io_tiles``."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ipusim.base.errors import ProgramError
from ipusim.pipeline.program import PipelineProgram

#: Graphcore's default of io_tiles.available_memory_proportion.
AVAILABLE_MEMORY_PROPORTION = Fraction(9, 10)


@dataclass(frozen=True)
class IoTiles:
    """The I/O tiles that a program asks for.

    Attributes:
        count: tiles of each IPU that compute nothing (num_io_tiles).
        place_ops: whether feeds are placed on them, and so run beside the passes (place_ops_on_io_tiles).
        available_memory_proportion: share of their memory that the feeds may take.

    Raises ProgramError, in Graphcore's words, for feeds on no tiles.
    """

    count: int = 0
    place_ops: bool = False
    available_memory_proportion: Fraction = AVAILABLE_MEMORY_PROPORTION

    def __post_init__(self) -> None:
        """Refuse operations that have no tile to go to."""
        if self.place_ops and not self.count:
            raise ProgramError("Cannot place ops on I/O tiles when io_tiles.num_io_tiles == 0")

    def why_not_placed(self, program: PipelineProgram, bytes_per_tile: int) -> str:
        """Return why the feeds of ``program`` are not placed on the tiles; empty where they are.

        As in Graphcore's compiler nothing is placed when what would be takes all of the memory
        that the tiles have for it, and the tiles then compute like the others.
        """
        mapping = program.shape.mapping
        feeds = [(mapping[0], program.infeed.element_bytes), (mapping[-1], program.outfeed.element_bytes)]
        placed = max(sum(size for at, size in feeds if at == ipu) for ipu, _ in feeds)
        room = self.count * bytes_per_tile * self.available_memory_proportion
        if not placed:
            return "There is nothing to place on I/O tiles, as the feeds move no bytes; the tiles compute instead."
        if placed >= room:
            return (
                f"Computation too large to fit on IO tiles, with {placed} bytes of feeds in {int(room)} bytes on "
                f"{self.count} tiles; the tiles compute instead, and feeds are not overlapped."
            )
        return ""
