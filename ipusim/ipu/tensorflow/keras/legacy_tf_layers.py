"""``tf.layers``: functions that make a layer and call it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.runtime.names import inside, scope
from ipusim.ipu.runtime.offered import in_module, offering
from ipusim.ipu.tensorflow.keras import layers
from ipusim.ipu.tensorflow.keras.core_layer import CoreLayer

_WITH_VARIABLES: Final = (layers.BatchNormalization, layers.Conv2D, layers.Dense)


def _function(kind: type[CoreLayer]) -> Any:
    def call(inputs: Any, *args: Any, training: Any = False, reuse: bool | None = None, **kwargs: Any) -> Any:
        here = scope()
        if here.getters and kind in _WITH_VARIABLES:
            raise UnsupportedProgramError(
                f"tf.layers.{kind.kind}: in a scope with a custom_getter expected variables of tf.get_variable alone"
            )
        with inside(replace(here, reuse=None if reuse else here.reuse)):
            return kind(*args, **kwargs)(inputs, training=training)

    call.__doc__ = (
        f"Return what a {kind.__name__} of the arguments gives for ``inputs``; with ``reuse`` one of its name. As in "
        "TensorFlow it trains where ``training`` says so alone, whatever the program does."
    )
    return call


average_pooling2d = _function(layers.AveragePooling2D)
batch_normalization = _function(layers.BatchNormalization)
conv2d = _function(layers.Conv2D)
dense = _function(layers.Dense)
dropout = _function(layers.Dropout)
flatten = _function(layers.Flatten)
max_pooling2d = _function(layers.MaxPooling2D)
__getattr__, __dir__ = offering(
    "tf.layers",
    in_module(__name__, "average_pooling2d batch_normalization conv2d dense dropout flatten max_pooling2d"),
)
