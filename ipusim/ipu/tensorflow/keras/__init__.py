"""``tf.keras``: layers, models and what trains them, on the core's own layers and the one engine."""

from __future__ import annotations

from typing import Final

from ipusim.ipu.runtime.offered import in_module, offering

_HERE: Final = "ipusim.ipu.tensorflow.keras"
_MODULES: Final = "activations backend callbacks layers losses metrics models optimizers preprocessing utils"

__getattr__, __dir__ = offering(
    "tf.keras",
    {name: f"{_HERE}.{name}" for name in _MODULES.split()}
    | {"initializers": "ipusim.ipu.runtime.initializers", "ipu": "ipusim.ipu.keras"}
    | {"datasets": "ipusim.ipu.keras.datasets"}
    | in_module(f"{_HERE}.graph", "Input")
    | in_module(f"{_HERE}.model", "Model")
    | in_module(f"{_HERE}.sequential", "Sequential"),
)
