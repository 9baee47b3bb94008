"""The global step of a training as a number on the host."""

from __future__ import annotations

import numpy as np

from ipusim.ipu.tensorflow.variables import get_global_step, get_or_create_global_step


def current_global_step() -> int:
    """Return the global step as it is now; 0 where there is none."""
    found = get_global_step()
    return 0 if found is None else int(found.value_now())


def set_global_step(step: int) -> None:
    """Set it, also where there was none."""
    get_or_create_global_step().set(np.array(step, np.int64))
