"""Define the array types of columns and coordinates."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
