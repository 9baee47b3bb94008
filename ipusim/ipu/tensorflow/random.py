"""``tf.random``: the seed of all draws, draws, and classes drawn for a loss of some of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipusim.api import Array, LayerCost, VectorWork, Work, functions, layers
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.host import Running, Tensor
from ipusim.ipu.runtime.initializers import RandomNormal, RandomUniform, TruncatedNormal
from ipusim.ipu.runtime.names import scope, unique
from ipusim.ipu.runtime.offered import in_module, offering
from ipusim.ipu.runtime.operations import WithoutGradient
from ipusim.ipu.runtime.program_state import draws_so_far, seed_of
from ipusim.ipu.runtime.variable import waits_for_session
from ipusim.ipu.tensorflow.array_functions import whole_numbers

_Draw = Callable[[np.random.Generator], Array]


class _Drawn(Tensor):
    """A tensor of the host that is redrawn in each run of a session."""

    def __init__(self, draw: _Draw, seed: Sequence[int]) -> None:
        super().__init__(draw(np.random.default_rng(seed)))
        self._draw, self._rng = draw, np.random.default_rng(seed)

    def evaluate(self, running: Running) -> Array:
        return self._draw(self._rng)


def uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = np.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Any:
    """Return numbers that are equally likely from ``minval`` up to ``maxval``, by default 1.

    Raises ProgramError for whole numbers without a ``maxval``, or without any number below it.
    """
    axes, kind = _axes(shape), checks.dtype("dtype", dtype, "iuf")
    if kind.kind == "f":
        bounds = float(minval), 1.0 if maxval is None else float(maxval)
        return _drawn(lambda rng: RandomUniform(*bounds).draw(axes, rng).astype(kind), seed)
    if maxval is None:
        checks.wrong_value("maxval", f"a number, as the dtype is {kind}", maxval)
    least, most = int(minval), int(maxval)
    if least >= most:
        checks.wrong_value("maxval", f"a number above minval, {least}", most)
    return _drawn(lambda rng: rng.integers(least, most, axes, dtype=kind), seed)


def _of(distribution: type[RandomNormal], of: str) -> Callable[..., Any]:
    def draw(
        shape: Any,
        mean: float = 0.0,
        stddev: float = 1.0,
        dtype: Any = np.float32,
        seed: int | None = None,
        name: str | None = None,
    ) -> Any:
        values = distribution(mean, stddev)
        axes, kind = _axes(shape), checks.dtype("dtype", dtype)
        return _drawn(lambda rng: values.draw(axes, rng).astype(kind), seed)

    draw.__doc__ = f"Return numbers of a normal distribution{of}."
    return draw


normal = _of(RandomNormal, "")
truncated_normal = _of(TruncatedNormal, " without what is more than two standard deviations from its mean")


def shuffle(value: Any, seed: int | None = None, name: str | None = None) -> Any:
    """Return the rows of an array in another order."""
    array = checks.numbers("value", value)
    return _drawn(lambda rng: rng.permutation(array), seed)


def _axes(shape: Any) -> tuple[int, ...]:
    sizes = [shape] if isinstance(shape, int | np.integer) else list(np.asarray(shape).tolist())
    return tuple(checks.whole("shape", size) for size in sizes)


def _drawn(draw: _Draw, seed: int | None) -> Any:
    own = () if seed is None else (checks.whole("seed", seed),)
    if functions.inside():
        key = functions.draw_key(scope().prefix + unique("random"))
        return draw(np.random.default_rng([*(key or (seed_of(None),)), *own]))
    key = (seed_of(None), draws_so_far(), *own)
    return _Drawn(draw, key) if waits_for_session() else draw(np.random.default_rng(key))


def log_uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> tuple[Any, Any, Any]:
    """Return classes drawn, and how often the true ones, (batch, num_true), and those drawn are expected.

    In training others are drawn for each micro-batch. Raises ProgramError for more classes than there are, and for
    true ones that do not fit.
    """
    result = whole_numbers("true_classes", true_classes)
    if result.ndim != 2 or result.shape[1] != num_true:
        checks.wrong_value("true_classes", f"a tensor of shape (batch, {num_true})", result.shape)
    classes, count = checks.whole("range_max", range_max, 1), checks.whole("num_sampled", num_sampled, 1)
    if checks.truth("unique", unique) and count > classes:
        checks.wrong_value("num_sampled", f"at most range_max, {classes}, where each is drawn once", count)
    called = scope().prefix + _unique("log_uniform_candidates")
    key = functions.draw_key(called) or (seed_of(seed),)
    operation = LogUniformCandidates(count, classes, unique, key if seed is None else (*key, seed))
    sampled, expected, sampled_expected = functions.operate_without_gradient(operation, result)
    return sampled, expected, sampled_expected


_unique = unique


@dataclass(frozen=True)
class LogUniformCandidates(WithoutGradient):
    """Classes drawn with P(k) = log((k + 2) / (k + 1)) / log(classes + 1), beside (true classes,).

    Attributes:
        count: to draw.
        classes: that there are.
        unique: whether each is drawn once at most: what was drawn already is drawn again.
        seed: of the draws.
    """

    count: int
    classes: int
    unique: bool
    seed: tuple[int, ...]

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], layers.Saved]:
        """Return the classes, and how often true and drawn ones are expected, in int64 and float32."""
        (true,) = arrays
        rng = np.random.default_rng(self.seed)
        drawn: list[int] = []
        seen: set[int] = set()
        tries = 0
        while len(drawn) < self.count:
            tries += 1
            result = min(int(math.exp(rng.random() * math.log(self.classes + 1))) - 1, self.classes - 1)
            if not self.unique or result not in seen:
                drawn.append(result)
                seen.add(result)
        sampled = np.array(drawn, np.int64)
        return (sampled, self._expected(true, tries), self._expected(sampled, tries)), None

    def _expected(self, classes: Array, tries: int) -> Array:
        """Return how often classes are expected in so many tries; at most once each where they are unique."""
        share = np.log((classes + 2.0) / (classes + 1.0)) / math.log(self.classes + 1)
        result = -np.expm1(tries * np.log1p(-share)) if self.unique else share * tries
        return np.asarray(result, np.float32)

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
        """Return the work: a draw, a product and exp for a class, where one try is enough, and four for its share."""
        expected = self.count + arrays[0].size
        work = Work(
            vector=self.count * VectorWork(2, transcendentals=1) + expected * VectorWork(3, 0, 1, 3),
            sram_bytes=(2 * self.count + 2 * expected) * 4,
            itemsize=4,
            compute_sets=3,
        )
        return LayerCost(work, Work())


__getattr__, __dir__ = offering(
    "tf.random",
    in_module(__name__, "log_uniform_candidate_sampler normal shuffle truncated_normal uniform")
    | dict.fromkeys(("set_random_seed", "set_seed"), "ipusim.ipu.runtime.program_state:set_random_seed"),
)
