"""``tf.contrib`` of TensorFlow 1: what estimators of several hosts use of it."""

from __future__ import annotations

from ipusim.ipu.tensorflow.offered import offering

__getattr__, __dir__ = offering("tf.contrib", {"distribute": "ipusim.ipu.tensorflow.distribute"})
