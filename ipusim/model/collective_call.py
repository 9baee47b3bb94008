"""A collective that a stage calls in the middle of a pass, among replicas."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ipusim.hardware.collectives.collective import Operation

#: How arrays become one, element by element; the logical ones are 1 where the condition holds, and 0 elsewhere.
Combination = Literal["add", "multiply", "minimum", "maximum", "logical_and", "logical_or"]


@dataclass(frozen=True)
class CollectiveCall:
    """One call. All replicas make the same one, each on an array of its own.

    Attributes:
        operation: what it computes.
        shape, dtype: of a replica's array. Of an all-reduce it is whole; of a reduce-scatter one row that is cut into
            as many chunks as there are replicas in a group; of an all-gather a chunk; of an all-to-all a row for each
            replica of a group.
        group: replicas that do it together: as many in a row as this says; None for all of the device.
        combination: of sums; others go the same way over the links.
    """

    operation: Operation
    shape: tuple[int, ...]
    dtype: str
    group: int | None = None
    combination: Combination = "add"

    def __str__(self) -> str:
        """Return the call in words: ``all_reduce of float32[4, 2] in groups of 2``."""
        how = "" if self.combination == "add" else f" ({self.combination})"
        groups = "" if self.group is None else f" in groups of {self.group}"
        return f"{self.operation}{how} of {self.dtype}{list(self.shape)}{groups}"

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.dtype).itemsize

    def elements(self, replicas: int) -> int:
        """Return the elements of a whole buffer among so many replicas."""
        own = math.prod(self.shape)
        return own * self.size(replicas) if self.operation == "all_gather" else own

    def size(self, replicas: int) -> int:
        """Return the replicas of a group, of so many in all."""
        return replicas if self.group is None else self.group

    def groups(self, replicas: int) -> list[range]:
        """Return the replicas of each group, of so many in all."""
        size = self.size(replicas)
        return [range(first, first + size) for first in range(0, replicas, size)]
