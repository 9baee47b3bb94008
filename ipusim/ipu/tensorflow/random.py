"""``tf.random``: the seed of all draws, and classes drawn for a loss of some of them."""

from __future__ import annotations

from ipusim.ipu.tensorflow.offered import offering

_HERE = "ipusim.ipu.tensorflow"
_SEED = f"{_HERE}.seeds:set_random_seed"
_SAMPLER = "log_uniform_candidate_sampler"
__getattr__, __dir__ = offering(
    "tf.random",
    {"set_random_seed": _SEED, "set_seed": _SEED, _SAMPLER: f"{_HERE}.candidate_sampling:{_SAMPLER}"},
)
