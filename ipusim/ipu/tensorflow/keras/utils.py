"""``tf.keras.utils``: what programs use to make labels ready, and to load classes of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Final

import numpy as np

from ipusim.api import Array
from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.context import setting
from ipusim.ipu.runtime.offered import in_module, offering
from ipusim.ipu.runtime.program_state import Remembered

#: Those of the blocks that the caller is in.
_IN_SCOPE: Final[ContextVar[Mapping[str, Any] | None]] = ContextVar("custom_objects", default=None)
#: Those that the program has registered.
_REGISTERED: Final[Remembered[Mapping[str, Any]]] = Remembered("registered", {})


def custom_objects() -> dict[str, Any]:
    """Return all that are known here, by name."""
    return {**_REGISTERED(), **(_IN_SCOPE.get() or {})}


def custom_object_scope(*objects: Mapping[str, Any] | None) -> AbstractContextManager[Any]:
    """Know these in the block too; raises ProgramTypeError for what is no dictionary by names."""
    result = dict(_IN_SCOPE.get() or {})
    for object_ in objects:
        own = {} if object_ is None else object_
        if not isinstance(own, Mapping) or not all(isinstance(name, str) for name in own):
            checks.wrong_type("custom_objects", "a dictionary of classes and functions by their names", object_)
        result |= own
    return setting(_IN_SCOPE, result)


def register_keras_serializable(package: str = "Custom", name: str | None = None) -> Callable[[Any], Any]:
    """Return a decorator of a class or function, which models that are loaded then know as ``package>name``."""
    checks.text("package", package)

    def register(value: Any) -> Any:
        own = f"{package}>{value.__name__ if name is None else checks.text('name', name)}"
        _REGISTERED.set({**_REGISTERED(), own: value})
        return value

    return register


def registered_name(value: Any) -> str:
    """Return the name under which a class or function is known when it is loaded: as registered, or its own."""
    return next((name for name, item in _REGISTERED().items() if item is value), str(value.__name__))


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


__getattr__, __dir__ = offering(
    "tf.keras.utils",
    in_module(__name__, "custom_object_scope register_keras_serializable to_categorical")
    | in_module("ipusim.ipu.runtime.program_state", "set_random_seed")
    | {"CustomObjectScope": f"{__name__}:custom_object_scope"},
)
