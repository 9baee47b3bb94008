"""Random numbers as ``tf.random`` draws them: at once, in each run of a session, or in each micro-batch of a stage.

They are those of NumPy's generator, and not TensorFlow's own; the same program draws the same. In a stage they take no
simulated time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ipusim.ipu import checks
from ipusim.ipu.host import Running, Tensor
from ipusim.ipu.names import scope, unique
from ipusim.ipu.tensorflow.initializers import RandomNormal, RandomUniform, TruncatedNormal
from ipusim.ipu.tensorflow.seeds import draws_so_far, seed_of
from ipusim.ipu.variable import waits_for_session
from ipusim.model.functions.variables import draw_key, inside
from ipusim.model.layers.layer import Array

_Draw = Callable[[np.random.Generator], Array]


class _Drawn(Tensor):
    """A tensor of the host that is drawn anew in each run of a session."""

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
        return _drawn(lambda rng: RandomUniform(*bounds)(axes, rng).astype(kind), seed)
    if maxval is None:
        checks.wrong_value("maxval", f"a number, as the dtype is {kind}", maxval)
    least, most = int(minval), int(maxval)
    if least >= most:
        checks.wrong_value("maxval", f"a number above minval, {least}", most)
    return _drawn(lambda rng: rng.integers(least, most, axes, dtype=kind), seed)


def normal(
    shape: Any,
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: Any = np.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Any:
    """Return numbers of a normal distribution."""
    return _of(RandomNormal(mean, stddev), shape, dtype, seed)


def truncated_normal(
    shape: Any,
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: Any = np.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Any:
    """Return numbers of a normal distribution without what is more than two standard deviations from its mean."""
    return _of(TruncatedNormal(mean, stddev), shape, dtype, seed)


def shuffle(value: Any, seed: int | None = None, name: str | None = None) -> Any:
    """Return the rows of an array in another order."""
    array = checks.numbers("value", value)
    return _drawn(lambda rng: rng.permutation(array), seed)


def _of(distribution: Callable[..., Array], shape: Any, dtype: Any, seed: int | None) -> Any:
    axes, kind = _axes(shape), checks.dtype("dtype", dtype)
    return _drawn(lambda rng: distribution(axes, rng).astype(kind), seed)


def _axes(shape: Any) -> tuple[int, ...]:
    sizes = [shape] if isinstance(shape, int | np.integer) else list(np.asarray(shape).tolist())
    return tuple(checks.whole("shape", size) for size in sizes)


def _drawn(draw: _Draw, seed: int | None) -> Any:
    own = () if seed is None else (checks.whole("seed", seed),)
    if inside():
        key = draw_key(scope().prefix + unique("random"))
        return draw(np.random.default_rng([*(key or (seed_of(None),)), *own]))
    key = (seed_of(None), draws_so_far(), *own)
    return _Drawn(draw, key) if waits_for_session() else draw(np.random.default_rng(key))
