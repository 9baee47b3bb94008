"""``tf.keras.models``."""

from __future__ import annotations

from typing import Final

from ipusim.ipu.tensorflow.offered import offering

_HERE: Final = "ipusim.ipu.tensorflow.keras"

__getattr__, __dir__ = offering(
    "tf.keras.models",
    {"Model": f"{_HERE}.model:Model", "Sequential": f"{_HERE}.sequential:Sequential"}
    | {name: f"{_HERE}.cloning:{name}" for name in ("clone_model", "model_from_config", "model_from_json")}
    | {name: f"{_HERE}.whole_models:{name}" for name in ("load_model", "save_model")},
)
