"""``tf.random``: the seed of all draws."""

from __future__ import annotations

from ipusim.ipu.tensorflow.offered import offering

_SEED = "ipusim.ipu.tensorflow.seeds:set_random_seed"
__getattr__, __dir__ = offering("tf.random", {"set_random_seed": _SEED, "set_seed": _SEED})
