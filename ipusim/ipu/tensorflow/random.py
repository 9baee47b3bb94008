"""``tf.random``: the seed of all draws, draws, and classes drawn for a loss of some of them."""

from __future__ import annotations

from ipusim.ipu.tensorflow.offered import found_in, offering

_HERE = "ipusim.ipu.tensorflow"
_SEED = f"{_HERE}.seeds:set_random_seed"
_SAMPLER = "log_uniform_candidate_sampler"
__getattr__, __dir__ = offering(
    "tf.random",
    {"set_random_seed": _SEED, "set_seed": _SEED, _SAMPLER: f"{_HERE}.candidate_sampling:{_SAMPLER}"}
    | found_in(f"{_HERE}.random_draws", "normal shuffle truncated_normal uniform"),
)
