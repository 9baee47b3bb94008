"""Describe a stage's call of a collective among replicas, such as an all-reduce, in the middle of a pass."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ipusim.hardware.collectives.collective import Operation

#: Element-wise reductions of arrays; logical reductions return 1 for true, 0 for false.
Combination = Literal["add", "multiply", "minimum", "maximum", "logical_and", "logical_or"]


@dataclass(frozen=True)
class CollectiveCall:
    """A collective call, equal in all replicas, with a different array per replica.

    Attributes:
        operation: kind of the collective.
        shape: shape of a replica's array. The array is the whole buffer for an all-reduce, a row that is cut into a
            chunk per replica of a group for a reduce-scatter, a chunk for an all-gather, and a row per replica of a
            group for an all-to-all.
        dtype: dtype of the array.
        group: number of consecutive replicas per group; None for the whole device.
        combination: reduction of the elements; all reductions use the same routes over the links.
    """

    operation: Operation
    shape: tuple[int, ...]
    dtype: str
    group: int | None = None
    combination: Combination = "add"

    def __str__(self) -> str:
        """Return the call in words: ``all_reduce of float32[4, 2] in groups of 2``."""
        suffix = "" if self.combination == "add" else f" ({self.combination})"
        groups = "" if self.group is None else f" in groups of {self.group}"
        return f"{self.operation}{suffix} of {self.dtype}{list(self.shape)}{groups}"

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return np.dtype(self.dtype).itemsize

    def elements(self, replicas: int) -> int:
        """Return the number of elements of the whole buffer, on a device of ``replicas`` replicas."""
        elements = math.prod(self.shape)
        return elements * self.size(replicas) if self.operation == "all_gather" else elements

    def size(self, replicas: int) -> int:
        """Return the number of replicas per group, for ``replicas`` replicas."""
        return replicas if self.group is None else self.group

    def groups(self, replicas: int) -> list[range]:
        """Return the groups of replicas, for ``replicas`` replicas."""
        size = self.size(replicas)
        return [range(first, first + size) for first in range(0, replicas, size)]
