"""Draws of how long passes take: by what they are, so that every schedule meets the same ones, in any order."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np

#: Micro-batches that are drawn at once.
_BLOCK: Final = 64
#: Parts of 1 that a factor is rounded to: what libraries of mathematics differ in is far smaller.
_PARTS: Final = 2**24


def speed_of_pass(
    seed: int, deviation: Fraction, ipu: int, kind: int, stage: int, execution: int, micro_batch: int
) -> Fraction:
    """Return how fast a pass goes on: it takes as many times as long as is drawn lognormally, with the mean 1.

    Args:
        seed: of the draws.
        deviation: the standard deviation.
        ipu: on which it runs.
        kind: of its span.
        stage, execution, micro_batch: of the pass.
    """
    block, number = divmod(micro_batch, _BLOCK)
    return _drawn(seed, deviation, ipu, kind, stage, execution, block)[number]


@lru_cache(maxsize=4096)
def _drawn(seed: int, deviation: Fraction, *of: int) -> tuple[Fraction, ...]:
    """Return the speeds of a block of micro-batches: normal numbers by Box and Muller of Philox's bits."""
    key = int.from_bytes(blake2b(repr((seed, *of)).encode(), digest_size=16).digest(), "big")
    bits = np.random.Philox(key=key).random_raw(2 * _BLOCK)
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53
    normal = np.sqrt(-2 * np.log(uniform[:_BLOCK])) * np.cos(2 * np.pi * uniform[_BLOCK:])
    variance = np.log1p(float(deviation) ** 2)
    parts = np.rint(np.exp(np.sqrt(variance) * normal - variance / 2) * _PARTS).astype(np.int64)
    return tuple(Fraction(_PARTS, max(each, 1)) for each in parts.tolist())
