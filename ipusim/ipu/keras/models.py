"""Models of ``ipu.keras`` in releases up to 1.4, where Keras' own did not run on IPUs."""

from __future__ import annotations

from collections.abc import Sequence as ListOf
from typing import Any

from ipusim.ipu.runtime import checks
from ipusim.ipu.tensorflow.keras.model import Model as KerasModel
from ipusim.ipu.tensorflow.keras.sequential import Sequential as KerasSequential


class Sequential(KerasSequential):
    """Keras' sequential model, which accumulates the gradients of ``accumulation_count`` batches for each update."""

    def __init__(self, layers: ListOf[Any] | None = None, accumulation_count: int = 1) -> None:
        """Take layers, and batches of an update; raises as Keras' model does, and ProgramError for less than one."""
        super().__init__(layers)
        _accumulate(self, accumulation_count)


class Model(KerasModel):
    """Keras' model, which accumulates the gradients of ``accumulation_count`` batches for each update."""

    def __init__(self, *args: Any, accumulation_count: int = 1, **kwargs: Any) -> None:
        """Take what Keras' model takes, and batches of an update; raises as Keras' model and Sequential do."""
        super().__init__(*args, **kwargs)
        _accumulate(self, accumulation_count)


def _accumulate(model: Any, count: int) -> None:
    if checks.whole("accumulation_count", count, 1) > 1:
        model.set_gradient_accumulation_options(count)
