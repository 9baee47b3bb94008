"""``tf.distribute`` of programs without TensorFlow."""

from ipusim.ipu.runtime import distribute
from ipusim.ipu.runtime.distribute import *  # noqa: F403

__getattr__, __dir__ = distribute.__getattr__, distribute.__dir__
