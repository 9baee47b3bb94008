"""``tf.distribute`` of programs without TensorFlow."""

from ipusim.ipu.runtime.distribute import *  # noqa: F403
from ipusim.ipu.runtime.distribute import __dir__ as __dir__
from ipusim.ipu.runtime.distribute import __getattr__ as __getattr__
