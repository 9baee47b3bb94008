"""``tf.keras.utils``: what programs use to make labels ready."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ipusim.errors import ProgramError
from ipusim.ipu import checks
from ipusim.ipu.tensorflow.offered import offering
from ipusim.model.layers.layer import Array


def to_categorical(y: Any, num_classes: int | None = None, dtype: Any = "float32") -> Array:
    """Return class numbers as rows with a one at their place; raises ProgramError for a number that is no class."""
    numbers = checks.numbers("y", y).astype(np.int64)
    if numbers.ndim > 1 and numbers.shape[-1] == 1:
        numbers = numbers[..., 0]
    classes = int(numbers.max(initial=-1)) + 1 if num_classes is None else checks.whole("num_classes", num_classes, 1)
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < classes:
        raise ProgramError(f"y: expected class numbers from 0 to {classes - 1}, got {numbers.min()} to {numbers.max()}")
    rows: Array = np.eye(classes, dtype=checks.dtype("dtype", dtype, "biuf"))[numbers]
    return rows


_CUSTOM: Final = "ipusim.ipu.tensorflow.keras.custom_objects"
__getattr__, __dir__ = offering(
    "tf.keras.utils",
    {"to_categorical": f"{__name__}:to_categorical", "set_random_seed": "ipusim.ipu.tensorflow.seeds:set_random_seed"}
    | {name: f"{_CUSTOM}:{name}" for name in ("custom_object_scope", "register_keras_serializable")}
    | {"CustomObjectScope": f"{_CUSTOM}:custom_object_scope"},
)
