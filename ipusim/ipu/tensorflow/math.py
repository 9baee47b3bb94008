"""``tf.math``: the functions of arrays by that name."""

from __future__ import annotations

from typing import Final

from ipusim.ipu.tensorflow.offered import found_in, offering

_NAMES: Final = (
    "abs add argmax argmin cos divide equal exp greater greater_equal less less_equal log log1p logical_and "
    "logical_not logical_or maximum minimum multiply negative not_equal pow reduce_max reduce_mean reduce_min "
    "reduce_prod reduce_sum round sigmoid sign sin sqrt square squared_difference subtract tanh"
)
__getattr__, __dir__ = offering("tf.math", found_in("ipusim.ipu.tensorflow.array_functions", _NAMES))
