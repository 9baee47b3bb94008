"""``tf.keras.models``."""

from __future__ import annotations

from ipusim.ipu.tensorflow.offered import offering

__getattr__, __dir__ = offering(
    "tf.keras.models",
    {
        "Model": "ipusim.ipu.tensorflow.keras.model:Model",
        "Sequential": "ipusim.ipu.tensorflow.keras.sequential:Sequential",
    },
)
