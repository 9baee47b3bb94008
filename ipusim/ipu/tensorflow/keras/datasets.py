"""``tf.keras.datasets``: nothing is loaded over a network, and what is drawn instead is called so."""

from __future__ import annotations

from ipusim.ipu.tensorflow.offered import offering

__getattr__, __dir__ = offering("tf.keras.datasets", {"synthetic": "ipusim.ipu.tensorflow.synthetic"})
