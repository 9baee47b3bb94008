"""``keras.optimizer_v2.optimizer_v2`` of Keras up to 2.10: the base of its optimizers."""

from __future__ import annotations

from ipusim.ipu.tensorflow.offered import offering

__getattr__, __dir__ = offering(
    "keras.optimizer_v2.optimizer_v2", {"OptimizerV2": "ipusim.ipu.tensorflow.keras.optimizers:Optimizer"}
)
