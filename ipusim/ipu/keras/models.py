"""Models of ``ipu.keras`` in releases up to 1.4, where Keras' own did not run on IPUs."""

from __future__ import annotations

from typing import Any

from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.keras.placement import models_on_ipus
from ipusim.ipu.runtime import checks

tf = load()


class Sequential(tf.keras.Sequential):  # type: ignore[misc]
    """Keras' sequential model, which accumulates the gradients of ``accumulation_count`` batches for each update."""

    def __init__(self, layers: list[Any] | None = None, accumulation_count: int = 1) -> None:
        """Take layers, and batches of an update; raises ProgramError for less than one batch."""
        with models_on_ipus():
            super().__init__(layers)
        _accumulate(self, accumulation_count)


class Model(tf.keras.Model):  # type: ignore[misc]
    """Keras' model, which accumulates the gradients of ``accumulation_count`` batches for each update."""

    def __init__(self, *args: Any, accumulation_count: int = 1, **kwargs: Any) -> None:
        """Take the arguments of Keras' model, and batches of an update; raises ProgramError for less than one batch."""
        with models_on_ipus():
            super().__init__(*args, **kwargs)
        _accumulate(self, accumulation_count)


def _accumulate(model: Any, count: int) -> None:
    if checks.whole("accumulation_count", count, 1) > 1:
        model.set_gradient_accumulation_options(count)
