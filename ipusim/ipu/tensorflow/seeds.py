"""The seed of all draws, as ``tf.set_random_seed`` sets it; 0 unless it is called, so that each run is the same."""

from __future__ import annotations

from typing import Final

from ipusim.ipu import checks
from ipusim.ipu.remembered import Remembered

_SEED: Final[Remembered[int]] = Remembered("seed", 0)
_DRAWS: Final[Remembered[int]] = Remembered("draws", 0)


def set_random_seed(seed: int) -> None:
    """Set the seed for programs that are built from now on."""
    _SEED.set(checks.whole("seed", seed))
    _DRAWS.set(0)


def draws_so_far() -> int:
    """Return how many draws there have been since the seed was set, of which this is one more."""
    count = _DRAWS.get()
    _DRAWS.set(count + 1)
    return count


def seed_of(own: int | None) -> int:
    """Return the seed of an initializer: its ``own`` or that of all draws."""
    return _SEED.get() if own is None else own
