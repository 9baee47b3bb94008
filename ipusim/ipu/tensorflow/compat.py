"""``tf.compat``: its ``v1`` is the module of which it is a part."""

from __future__ import annotations

from ipusim.ipu import tensorflow as v1
from ipusim.ipu.tensorflow.offered import offering

__getattr__, __dir__ = offering("tf.compat", {"v1": v1.__name__})
