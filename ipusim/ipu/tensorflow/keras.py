"""``tf.keras``: its layers, and images that stand in for its datasets."""

from __future__ import annotations

from ipusim.ipu.tensorflow.offered import offering

__getattr__, __dir__ = offering(
    "tf.keras",
    {
        "datasets": "ipusim.ipu.tensorflow.keras_datasets",
        "layers": "ipusim.ipu.tensorflow.keras_layers",
        "initializers": "ipusim.ipu.tensorflow.initializers",
    },
)
