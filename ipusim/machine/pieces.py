"""Tensors that come in pieces: from concurrent stages to the next one, and gradients back to the one before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Payload(NamedTuple):
    """What travels from one step to the next: activations and labels forward, a gradient backward."""

    tensor: Any  # an array, or None from the last forward to its backward
    labels: Array | None = None


class Pieces:
    """What concurrent stages send to one stage, until all of it is there."""

    def __init__(self, count: int) -> None:
        """Wait for ``count`` pieces."""
        self._payloads: list[Payload | None] = [None] * count

    def put(self, number: int, payload: Payload) -> None:
        """Take the piece of stage ``number`` of the concurrent ones."""
        self._payloads[number] = payload

    def concatenated(self) -> tuple[Payload, tuple[int, ...]] | None:
        """Return outputs side by side along their last axis, and their widths; None while one is missing.

        Of stages with several outputs each, all outputs in order, and the number of each stage's.
        """
        found = [payload for payload in self._payloads if payload is not None]
        if len(found) < len(self._payloads):
            return None
        if isinstance(found[0].tensor, tuple):
            every = [payload.tensor for payload in found]
            return Payload(sum(every, ()), found[0].labels), tuple(map(len, every))
        widths = tuple(payload.tensor.shape[-1] for payload in found)
        return Payload(np.concatenate([payload.tensor for payload in found], axis=-1), found[0].labels), widths

    def summed(self) -> Payload | None:
        """Return the sum of gradients, in the order of the stages; None while one is missing."""
        found = [payload for payload in self._payloads if payload is not None]
        if len(found) < len(self._payloads):
            return None
        total = found[0].tensor
        for payload in found[1:]:
            if isinstance(total, tuple):  # None for inputs that have no gradient
                total = tuple(
                    a if b is None else b if a is None else a + b for a, b in zip(total, payload.tensor, strict=True)
                )
            else:
                total = total + payload.tensor
        return Payload(total)


def split(payload: Payload, widths: Sequence[int]) -> list[Payload]:
    """Cut a gradient into what belongs to each of the concurrent stages, by the widths of their outputs."""
    if isinstance(payload.tensor, tuple):
        ends = np.cumsum(widths)
        return [Payload(payload.tensor[end - width : end]) for end, width in zip(ends, widths, strict=True)]
    cuts = np.cumsum(widths)[:-1]
    return [Payload(np.ascontiguousarray(part)) for part in np.split(payload.tensor, cuts, axis=-1)]
