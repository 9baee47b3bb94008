"""``tf.layers``: functions that make a layer and call it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from ipusim.errors import UnsupportedProgramError
from ipusim.ipu.names import inside, scope
from ipusim.ipu.tensorflow import keras_layers
from ipusim.ipu.tensorflow.offered import offering

_OF: Final = {
    "average_pooling2d": keras_layers.AveragePooling2D,
    "batch_normalization": keras_layers.BatchNormalization,
    "conv2d": keras_layers.Conv2D,
    "dense": keras_layers.Dense,
    "dropout": keras_layers.Dropout,
    "flatten": keras_layers.Flatten,
    "max_pooling2d": keras_layers.MaxPooling2D,
}
_WITH_VARIABLES: Final = (keras_layers.BatchNormalization, keras_layers.Conv2D, keras_layers.Dense)


def _function(kind: type[keras_layers.CoreLayer]) -> Any:
    def call(inputs: Any, *args: Any, training: bool | None = None, reuse: bool | None = None, **kwargs: Any) -> Any:
        here = scope()
        if here.getters and kind in _WITH_VARIABLES:
            raise UnsupportedProgramError(
                f"tf.layers.{kind.kind}: in a scope with a custom_getter expected variables of tf.get_variable alone"
            )
        with inside(replace(here, reuse=None if reuse else here.reuse)):
            return kind(*args, **kwargs)(inputs, training=training)

    call.__doc__ = (
        f"Return what a {kind.__name__} of the arguments gives for ``inputs``; with ``reuse`` one of its name."
    )
    return call


average_pooling2d, batch_normalization, conv2d, dense, dropout, flatten, max_pooling2d = map(_function, _OF.values())
__getattr__, __dir__ = offering("tf.layers", {name: f"{__name__}:{name}" for name in _OF})
