"""Draw random numbers in NumPy, reproducible by seed, node and micro-batch; TensorFlow draws other numbers.

A kernel is a NumPy function for the nodes of an operation type.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from ipusim.api import Array
from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.kernels.shaping import int_tuple
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.registry import Kernel, kernel, register

#: Largest magnitude of truncated normal draws, in standard deviations.
_MAX_DEVIATIONS = 2.0


def _truncated(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw standard normal numbers, redrawing numbers out of bounds."""
    result = generator.standard_normal(shape)
    while (out_of_bounds := np.abs(result) > _MAX_DEVIATIONS).any():
        result[out_of_bounds] = generator.standard_normal(int(out_of_bounds.sum()))
    return result


def _stateless(key: Array, counter: Array) -> np.random.Generator:
    """Return the generator that a key and a counter of TensorFlow determine."""
    words = [int(word) for word in np.ravel(counter)]
    return np.random.Generator(np.random.Philox(key=int(np.ravel(key)[0]), counter=[*words, *[0] * (4 - len(words))]))


def _draw(function: Kernel, dtype: Any, generator: np.random.Generator, shape: Array) -> Array:
    return np.asarray(function(generator, int_tuple(shape))).astype(dtype)


def _draw_stateless(function: Kernel, dtype: Any, shape: Array, key: Array, counter: Array, _: Any) -> Array:
    return _draw(function, dtype, _stateless(key, counter), shape)


_CONTINUOUS_DRAWS: Final[dict[tuple[str, str], Kernel]] = {
    ("RandomUniform", "StatelessRandomUniformV2"): np.random.Generator.random,
    ("RandomStandardNormal", "StatelessRandomNormalV2"): np.random.Generator.standard_normal,
    ("TruncatedNormal", "StatelessTruncatedNormalV2"): _truncated,
}
for (_type, _stateless_type), _function in _CONTINUOUS_DRAWS.items():
    kernel(_type, "dtype", draws=True)(partial(_draw, _function))
    kernel(_stateless_type, "dtype")(partial(_draw_stateless, _function))
kernel("RandomUniformInt", "Tout", draws=True)(
    lambda dtype, generator, shape, low, high: generator.integers(low, high, int_tuple(shape), dtype)
)
kernel("StatelessRandomUniformIntV2", "dtype")(
    lambda dtype, shape, key, counter, _, low, high: _stateless(key, counter).integers(
        low, high, int_tuple(shape), dtype
    )
)
kernel("RandomShuffle", draws=True)(lambda generator, x: generator.permutation(x, axis=0))


@kernel("Multinomial", "output_dtype", draws=True)
def _classes(dtype: Any, generator: np.random.Generator, logits: Array, count: Any) -> Any:
    """Draw classes from unnormalised log probabilities, by the Gumbel-max trick."""
    noise = generator.gumbel(size=(logits.shape[0], int(count), logits.shape[1]))
    return np.argmax(logits[:, None] + noise, -1).astype(dtype)


@kernel("StatelessRandomGetKeyCounter")
def _key_and_counter(seed: Array) -> tuple[Array, Array]:
    """Return a Philox generator's key and counter from two seeds."""
    words = seed.astype(np.int64).view(np.uint64)
    return words[:1], np.array([0, words[1]], np.uint64)


kernel("StatelessRandomGetAlg")(lambda: np.int32(1))
kernel("StatelessRandomGetKeyCounterAlg")(lambda seed: (*_key_and_counter(seed), np.int32(1)))


@register("LogUniformCandidateSampler", draws=True)
def _log_uniform_candidates(node: Node) -> Kernel:
    """Draw classes, and return them with the expected counts of the true and of the drawn classes.

    Class k has the probability log((k + 2) / (k + 1)) / log(classes + 1).
    """
    count, classes, unique = (node.attributes[name] for name in ("num_sampled", "range_max", "unique"))
    if unique and count > classes:
        raise ProgramError(f"num_sampled: expected at most range_max, {classes}, with unique classes, got {count}")
    log_range = np.log(classes + 1)

    def draw(generator: np.random.Generator, number: int) -> Array:
        result: Array = np.minimum(np.exp(generator.random(number) * log_range).astype(np.int64) - 1, classes - 1)
        return result

    def run(generator: np.random.Generator, true: Array) -> Any:
        candidates, tries = draw(generator, count), count
        while unique and (uniques := np.unique(candidates, return_index=True)[1]).size < count:
            candidates = np.concatenate([candidates[np.sort(uniques)], draw(generator, 1)])
            tries += 1

        def expected_counts(values: Array) -> Array:
            share = np.log((values + 2.0) / (values + 1.0)) / log_range
            result: Array = np.asarray(-np.expm1(tries * np.log1p(-share)) if unique else share * count, np.float32)
            return result

        return candidates, expected_counts(true), expected_counts(candidates)

    return run


@kernel("ComputeAccidentalHits")
def _accidental_hits(true: Array, candidates: Array) -> Any:
    """Find drawn classes that are among the true classes of a row.

    Return three arrays: the hits' rows, their indices among the drawn classes, and the lowest float32 as weight.
    """
    rows, _, indices = np.nonzero(true[:, :, None] == candidates)
    lowest = np.full(rows.size, np.finfo(np.float32).min, np.float32)
    return rows.astype(np.int32), indices.astype(np.int64), lowest
