"""``tf.keras``: its layers."""

from __future__ import annotations

from ipusim.ipu.tensorflow.offered import offering

__getattr__, __dir__ = offering(
    "tf.keras",
    {"layers": "ipusim.ipu.tensorflow.keras_layers", "initializers": "ipusim.ipu.tensorflow.initializers"},
)
