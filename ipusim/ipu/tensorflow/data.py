"""``tf.data``: datasets."""

from __future__ import annotations

from ipusim.ipu.tensorflow.offered import offering

__getattr__, __dir__ = offering(
    "tf.data", {"Dataset": "ipusim.ipu.dataset:Dataset", "AUTOTUNE": f"{__name__}:_AUTOTUNE"}
)
_AUTOTUNE = -1
