"""What the host of a replica receives from the outfeed, element by element or summed up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ipusim.machine.stage_memory import Array
from ipusim.pipeline.program import Outfeed


class Results:
    """The elements of an outfeed.

    Attributes:
        elements: those that the host has received, in order.
    """

    def __init__(self, outfeed: Outfeed, received: Callable[[], object]) -> None:
        """Call ``received`` when there is one more."""
        self._outfeed, self._received = outfeed, received
        self._total: tuple[Array, ...] | None = None
        self.elements: list[tuple[Array, ...]] = []

    def add(self, results: tuple[Any, ...]) -> None:
        """Hand the last stage's results of a micro-batch to the host, or add them up."""
        element = tuple(results[place] for place in self._outfeed.kept)
        if not self._outfeed.accumulate:
            self._hand_over(element)
        elif self._total is None:
            dtype = self._outfeed.accumulate_dtype or None
            self._total = tuple(np.array(array, dtype=dtype or np.asarray(array).dtype) for array in element)
        else:
            for total, array in zip(self._total, element, strict=True):
                np.add(total, array, out=total, casting="same_kind")

    def hand_over_total(self) -> None:
        """Hand the sum of the execution's results to the host."""
        total, self._total = self._total, None
        if total is not None:
            self._hand_over(total)

    def _hand_over(self, element: tuple[Array, ...]) -> None:
        self.elements.append(element)
        self._received()
