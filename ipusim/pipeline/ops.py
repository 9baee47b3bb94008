"""Define a pipeline's operations: passes of one stage over one micro-batch, printed as ``F1.3``."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final, NamedTuple


class Pass(IntEnum):
    """Kind of a stage's pass over a micro-batch.

    A backward pass may run whole, or in two halves: INPUT_GRADIENT, and later WEIGHT_GRADIENT.
    """

    FORWARD = 0
    BACKWARD = 1
    RECOMPUTE = 2
    INPUT_GRADIENT = 3
    WEIGHT_GRADIENT = 4

    @property
    def letter(self) -> str:
        """First letter of the name, as in ``F1.3``."""
        return self.name[0]


_PASSES: Final = {kind.letter: kind for kind in Pass}
_TEXT: Final = re.compile(r"([FBRIW])(\d+)\.(\d+)")


def name_of(micro_batch: int, segments: int = 1) -> str:
    """Return the name of a micro-batch, or of a segment if micro-batches have several.

    >>> name_of(3), name_of(3, segments=2)
    ('3', '1-1')
    """
    return str(micro_batch) if segments == 1 else "-".join(map(str, divmod(micro_batch, segments)))


class Op(NamedTuple):
    """A pass of ``stage`` over ``micro_batch``, both counted from 0."""

    kind: Pass
    stage: int
    micro_batch: int

    def __str__(self) -> str:
        """Return the grid notation: ``F1.3`` is stage 1's forward pass on micro-batch 3."""
        return self.text()

    def text(self, segments: int = 1) -> str:
        """Return the grid notation, with the segment's name for several segments: ``F1.1-0``."""
        return f"{self.kind.letter}{self.stage}.{name_of(self.micro_batch, segments)}"

    @classmethod
    def parse(cls, text: str) -> Op:
        """Parse the grid notation; raises ValueError for other text."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"expected an operation such as F1.3, B0.0, R2.5, I1.3 or W1.3, got {text!r}")
        letter, stage, micro_batch = match.groups()
        return cls(_PASSES[letter], int(stage), int(micro_batch))
