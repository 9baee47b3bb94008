"""Place stages on IPUs by formula: cyclic over the IPUs, or back and forth."""

from __future__ import annotations

from typing import Final

#: Name of the placement that goes over the IPUs and back.
V: Final = "v"


def around(stages: int, per_ipu: int) -> tuple[int, ...]:
    """Place stages cyclically over the IPUs, ``per_ipu`` times, such as 0, 1, 0, 1.

    Args:
        stages: number of stages.
        per_ipu: stages on each IPU, a divisor of ``stages``.

    Returns:
        An IPU for each stage, from 0.

    >>> around(6, 2)
    (0, 1, 2, 0, 1, 2)
    """
    return tuple(range(stages // per_ipu)) * per_ipu


def zigzag(stages: int, per_ipu: int) -> tuple[int, ...]:
    """Place stages over the IPUs and back, in ``per_ipu`` runs: two make a V.

    A tensor at a turning point stays on its IPU. ``per_ipu`` divides ``stages``.
    Source: the V of Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 6; the waves of Liu et al.,
    Hanayo, SC 2023.

    >>> zigzag(6, 2)
    (0, 1, 2, 2, 1, 0)
    >>> zigzag(8, 4)
    (0, 1, 1, 0, 0, 1, 1, 0)
    """
    way_out = tuple(range(stages // per_ipu))
    return tuple(ipu for run in range(per_ipu) for ipu in (reversed(way_out) if run % 2 else way_out))
