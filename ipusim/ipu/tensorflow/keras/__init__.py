"""``tf.keras``: layers, models and what trains them, on the core's own layers and the one engine."""

from __future__ import annotations

from typing import Final

from ipusim.ipu.tensorflow.offered import offering

_HERE: Final = "ipusim.ipu.tensorflow.keras"

__getattr__, __dir__ = offering(
    "tf.keras",
    {
        "activations": f"{_HERE}.activations",
        "backend": f"{_HERE}.backend",
        "callbacks": f"{_HERE}.callbacks",
        "datasets": f"{_HERE}.datasets",
        "layers": "ipusim.ipu.tensorflow.keras_layers",
        "initializers": "ipusim.ipu.tensorflow.initializers",
        "ipu": "ipusim.ipu.keras",
        "losses": f"{_HERE}.losses",
        "metrics": f"{_HERE}.metrics",
        "models": f"{_HERE}.models",
        "preprocessing": f"{_HERE}.preprocessing",
        "optimizers": f"{_HERE}.optimizers",
        "utils": f"{_HERE}.utils",
        "Input": f"{_HERE}.input_layer:Input",
        "Model": f"{_HERE}.model:Model",
        "Sequential": f"{_HERE}.sequential:Sequential",
    },
)
