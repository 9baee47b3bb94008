"""Draw random factors of pass durations; every schedule gets equal factors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from math import exp, floor, log1p, sqrt
from typing import Any, Final

import numpy as np
import numpy.typing as npt

#: Number of consecutive micro-batches (a block) whose factors are drawn together.
BLOCK: Final = 64
#: Factors are rounded to multiples of 1 / PARTS. Differences between mathematics libraries are far smaller, and vanish.
PARTS: Final = 2**24
#: Bound on absolute standard normal draws by Box and Muller's method, from uniform numbers of at least 2**-54.
FARTHEST: Final = 8.66


class Draws:
    """Draws of a seed: lognormal factors of pass durations, with mean 1.

    Attributes:
        seed: seed of the draws.
        deviation: standard deviation of a factor.
    """

    def __init__(self, seed: int, deviation: Fraction) -> None:
        """Draw with a seed and a standard deviation."""
        self.seed, self.deviation = seed, deviation
        self._block = lru_cache(maxsize=4096)(self._draw)

    @property
    def least(self) -> Fraction:
        """Bound below all factors."""
        variance = log1p(float(self.deviation) ** 2)
        return Fraction(floor(PARTS * exp(-FARTHEST * sqrt(variance) - variance / 2)), PARTS)

    def parts(self, ipu: int, execution: int, passes: Sequence[tuple[int, int, int]]) -> list[int]:
        """Return the factors of pass durations, as multiples of 1 / :data:`PARTS`.

        Args:
            ipu: IPU of the passes.
            execution: execution of the passes.
            passes: kind of the span, stage and micro-batch of each pass.
        """
        blocks = [(ipu, int(kind), stage, execution, micro_batch // BLOCK) for kind, stage, micro_batch in passes]
        distinct = list(dict.fromkeys(blocks))
        if len(distinct) == 1:
            drawn = [self._block(*distinct[0])]
        else:
            drawn = drawn_parts([(self.seed, *block) for block in distinct], self.deviation).tolist()
        parts_of = dict(zip(distinct, drawn, strict=True))
        return [parts_of[block][micro_batch % BLOCK] for block, (*_, micro_batch) in zip(blocks, passes, strict=True)]

    def _draw(self, *key: int) -> list[int]:
        """Return the factors of a block of micro-batches."""
        parts: list[int] = drawn_parts([(self.seed, *key)], self.deviation)[0].tolist()
        return parts


def drawn_parts(blocks: Iterable[tuple[int, ...]], deviation: Fraction) -> npt.NDArray[np.int64]:
    """Return the factors of blocks of :data:`BLOCK` micro-batches, as multiples of 1 / :data:`PARTS`.

    The factors come from normal numbers, made by Box and Muller's method from Philox bits. The Philox key is the hash
    of the text ``(seed, IPU, np.int64(kind), stage, execution, number)``. The kind is printed like a NumPy integer for
    compatibility: kinds once came from an array, and another text would change every run with jitter.

    Args:
        blocks: seed, IPU, kind of the span, stage, execution and number of the block, for each block.
        deviation: standard deviation of a factor.

    Returns:
        Factors, shape (blocks, :data:`BLOCK`).
    """
    philox, bits = np.random.Philox(key=0), []
    state: Any = philox.state
    for seed, ipu, kind, stage, execution, block_number in blocks:
        text = f"({seed}, {ipu}, np.int64({int(kind)}), {stage}, {execution}, {block_number})"
        digest = blake2b(text.encode(), digest_size=16).digest()
        state["state"]["key"][:] = np.frombuffer(digest, ">u8")[::-1]
        philox.state = state  # a new Philox per key would take four times as long
        bits.append(philox.random_raw(2 * BLOCK))
    uniform = ((np.stack(bits) >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53
    normal = np.sqrt(-2 * np.log(uniform[:, :BLOCK])) * np.cos(2 * np.pi * uniform[:, BLOCK:])
    variance = np.log1p(float(deviation) ** 2)
    factors = np.exp(np.sqrt(variance) * normal - variance / 2)
    parts: npt.NDArray[np.int64] = np.maximum(np.rint(factors * PARTS).astype(np.int64), 1)
    return parts
