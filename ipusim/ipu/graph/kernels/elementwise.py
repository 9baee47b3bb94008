"""Operations that compute each element for itself: arithmetic, comparisons, elementary functions, their gradients."""

from __future__ import annotations

import numpy as np

from ipusim.ipu.graph.registry import register_function

register_function("Add AddV2", np.add)
register_function("Sub", np.subtract)
register_function("Mul", np.multiply)
