"""Random durations of passes, drawn by pass and micro-batch, so that every schedule meets the same ones."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np

#: Micro-batches that are drawn at once.
_BLOCK: Final = 64
#: Parts of 1 that a factor is rounded to: what libraries of mathematics differ in is far smaller.
PARTS: Final = 2**24
#: The normal number farthest from 0, rounded up: by Box and Muller of a uniform number of 2**-54 at least.
FARTHEST: Final = 8.66


class Draws:
    """The draws of one seed: lognormal factors of passes' durations, with the mean 1."""

    def __init__(self, seed: int, deviation: Fraction) -> None:
        """Draw with a seed and a standard deviation."""
        self._seed, self._deviation = seed, deviation
        self._block = lru_cache(maxsize=4096)(self._drawn)

    def parts(self, ipu: int, kind: int, stage: int, execution: int, micro_batch: int) -> int:
        """Return the factor of a pass's duration, in :data:`PARTS` of 1.

        Args:
            ipu: on which it runs.
            kind: of its span.
            stage, execution, micro_batch: of the pass.
        """
        return self._block(ipu, kind, stage, execution, micro_batch // _BLOCK)[micro_batch % _BLOCK]

    def _drawn(self, *of: int) -> list[int]:
        """Return the factors of a block of micro-batches: normal numbers by Box and Muller of Philox's bits."""
        key = int.from_bytes(blake2b(repr((self._seed, *of)).encode(), digest_size=16).digest(), "big")
        bits = np.random.Philox(key=key).random_raw(2 * _BLOCK)
        uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53
        normal = np.sqrt(-2 * np.log(uniform[:_BLOCK])) * np.cos(2 * np.pi * uniform[_BLOCK:])
        variance = np.log1p(float(self._deviation) ** 2)
        factors = np.exp(np.sqrt(variance) * normal - variance / 2)
        parts: list[int] = np.maximum(np.rint(factors * PARTS).astype(np.int64), 1).tolist()
        return parts
