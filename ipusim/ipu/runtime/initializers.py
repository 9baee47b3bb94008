"""Initial values of variables, in TensorFlow's names and by its rules."""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np

from ipusim.api import Array, Shape, layers
from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.offered import offering
from ipusim.ipu.runtime.program_state import seed_of

#: Standard deviation of a normal distribution that is cut at two of them.
_CUT: Final = 0.87962566103423978


@dataclass(frozen=True)
class Initializer(ABC):
    """Draws the initial values of a variable.

    Attributes:
        seed: of the draws; None for that of ``tf.set_random_seed``, with the variable's name.
        dtype: without effect: get_variable says it.
    """

    @property
    def seed(self) -> int | None:
        """The seed of the draws."""
        return None

    @abstractmethod
    def __call__(self, shape: Shape, rng: np.random.Generator) -> Array:
        """Return values of ``shape`` in float64."""

    def get_config(self) -> dict[str, Any]:
        """Return its arguments."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Initializer:
        """Return one of these arguments."""
        return cls(**config)


@dataclass(frozen=True)
class Constant(Initializer):
    """One value everywhere."""

    value: float = 0.0

    def __call__(self, shape: Shape, rng: np.random.Generator) -> Array:
        """Return ``value`` everywhere."""
        return np.full(shape, self.value, np.float64)


@dataclass(frozen=True)
class Zeros(Constant):
    """Zeros."""


@dataclass(frozen=True)
class Ones(Constant):
    """Ones."""

    value: float = 1.0


@dataclass(frozen=True)
class RandomNormal(Initializer):
    """A normal distribution."""

    mean: float = 0.0
    stddev: float = 1.0
    seed: int | None = None

    def __call__(self, shape: Shape, rng: np.random.Generator) -> Array:
        """Draw."""
        return np.asarray(rng.normal(self.mean, self.stddev, shape))


@dataclass(frozen=True)
class TruncatedNormal(RandomNormal):
    """A normal distribution without what is more than two standard deviations from its mean."""

    def __call__(self, shape: Shape, rng: np.random.Generator) -> Array:
        """Draw values, and redraw those beyond two standard deviations."""
        return self.mean + self.stddev * _truncated(shape, rng)


@dataclass(frozen=True)
class RandomUniform(Initializer):
    """Equally likely from ``minval`` to ``maxval``."""

    minval: float = -0.05
    maxval: float = 0.05
    seed: int | None = None

    def __call__(self, shape: Shape, rng: np.random.Generator) -> Array:
        """Draw."""
        return np.asarray(rng.uniform(self.minval, self.maxval, shape))


@dataclass(frozen=True)
class VarianceScaling(Initializer):
    """A variance of scale / n, with n the inputs, the outputs or their mean.

    Inputs and outputs are the last two axes, each times all axes before, as for kernels of convolutions.
    """

    scale: float = 1.0
    mode: Literal["fan_in", "fan_out", "fan_avg"] = "fan_in"
    distribution: Literal["uniform", "truncated_normal", "untruncated_normal", "normal"] = "truncated_normal"
    seed: int | None = None

    def __call__(self, shape: Shape, rng: np.random.Generator) -> Array:
        """Draw."""
        inputs, outputs = _fans(shape)
        fan = {"fan_in": inputs, "fan_out": outputs, "fan_avg": (inputs + outputs) / 2}[self.mode]
        variance = self.scale / max(fan, 1.0)
        if self.distribution == "uniform":
            limit = math.sqrt(3 * variance)
            return np.asarray(rng.uniform(-limit, limit, shape))
        if self.distribution == "untruncated_normal":
            return np.asarray(rng.normal(0.0, math.sqrt(variance), shape))
        return math.sqrt(variance) / _CUT * _truncated(shape, rng)


@dataclass(frozen=True)
class GlorotUniform(VarianceScaling):
    """Uniform, of variance 2 / (inputs + outputs)."""

    mode: Literal["fan_in", "fan_out", "fan_avg"] = "fan_avg"
    distribution: Literal["uniform", "truncated_normal", "untruncated_normal", "normal"] = "uniform"


@dataclass(frozen=True)
class GlorotNormal(VarianceScaling):
    """Normal, of variance 2 / (inputs + outputs)."""

    mode: Literal["fan_in", "fan_out", "fan_avg"] = "fan_avg"


@dataclass(frozen=True)
class HeNormal(VarianceScaling):
    """Normal, of variance 2 / inputs."""

    scale: float = 2.0


@dataclass(frozen=True)
class HeUniform(VarianceScaling):
    """Uniform, of variance 2 / inputs."""

    scale: float = 2.0
    distribution: Literal["uniform", "truncated_normal", "untruncated_normal", "normal"] = "uniform"


@dataclass(frozen=True)
class LecunNormal(VarianceScaling):
    """Normal, of variance 1 / inputs."""


@dataclass(frozen=True)
class LecunUniform(VarianceScaling):
    """Uniform, of variance 1 / inputs."""

    distribution: Literal["uniform", "truncated_normal", "untruncated_normal", "normal"] = "uniform"


@dataclass(frozen=True)
class Orthogonal(Initializer):
    """A matrix with orthonormal rows or columns, whichever are fewer, times ``gain``; all axes but the last are one."""

    gain: float = 1.0
    seed: int | None = None

    def __call__(self, shape: Shape, rng: np.random.Generator) -> Array:
        """Draw; raises ProgramError for fewer than two axes."""
        if len(shape) < 2:
            checks.wrong_value("shape", "two axes or more, for an orthogonal matrix", shape)
        flat = layers.orthogonal((math.prod(shape[:-1]), shape[-1]), rng, np.float64)
        return self.gain * flat.reshape(shape)


#: Initializers by the names that Keras gives them as texts.
_BY_NAME: Final[dict[str, type[Initializer]]] = {
    "zeros": Zeros,
    "ones": Ones,
    "random_normal": RandomNormal,
    "truncated_normal": TruncatedNormal,
    "random_uniform": RandomUniform,
    "glorot_uniform": GlorotUniform,
    "glorot_normal": GlorotNormal,
    "he_normal": HeNormal,
    "he_uniform": HeUniform,
    "lecun_normal": LecunNormal,
    "lecun_uniform": LecunUniform,
    "orthogonal": Orthogonal,
}


def initializer_of(value: Any) -> Initializer | Callable[..., Any]:
    """Return the initializer that a name, a class or an initializer stands for; a function of the shape is itself.

    Raises ProgramError for an unknown name, ProgramTypeError for anything else.
    """
    if isinstance(value, str):
        known = _BY_NAME | {kind.__name__: kind for kind in _BY_NAME.values()}
        if value not in known:
            raise ProgramError(f"initializer: expected one of {', '.join(_BY_NAME)}, got {value!r}")
        return known[value]()
    if isinstance(value, type) and issubclass(value, Initializer):
        return value()
    checks.function("initializer", value, "an initializer, its name, or a function of a shape")
    return value  # type: ignore[no-any-return]


def _fans(shape: Shape) -> tuple[float, float]:
    if len(shape) < 2:
        return (1.0, 1.0) if not shape else (float(shape[0]), float(shape[0]))
    field = math.prod(shape[:-2])
    return float(shape[-2] * field), float(shape[-1] * field)


def _truncated(shape: Shape, rng: np.random.Generator) -> Array:
    result = np.asarray(rng.standard_normal(shape))
    while (far := np.abs(result) > 2).any():
        result[far] = rng.standard_normal(int(far.sum()))
    return result


_OFFERED: Final = _BY_NAME | {"constant": Constant, "variance_scaling": VarianceScaling}
__getattr__, __dir__ = offering(
    "tf.initializers",
    {name: f"{__name__}:{kind.__name__}" for short, kind in _OFFERED.items() for name in (short, kind.__name__)}
    | {"get": f"{__name__}:initializer_of"},
)


def initial_value(name: str, shape: Any, dtype: np.dtype[Any], initializer: Any) -> Array:
    """Return the initial value of a variable, as :func:`get_variable` says; raises as that does."""
    if initializer is not None and not callable(initializer) and not isinstance(initializer, str):
        value = checks.numbers("initializer", initializer)
        if shape is not None:
            raise ProgramError("If initializer is a constant, do not specify shape.")
        return value.astype(dtype)
    if shape is None:
        raise ProgramError(f"Shape of a new variable ({name}) must be fully defined, but instead was <unknown>.")
    axes = _axes(name, shape)
    chosen = GlorotUniform() if initializer is None else initializer_of(initializer)
    if not isinstance(chosen, Initializer):  # a function of the user's own: called each time, used the first
        return np.asarray(chosen(axes), dtype)
    return drawn(chosen, axes, dtype, (seed_of(chosen.seed), zlib.crc32(name.encode())))


def _axes(name: str, shape: Any) -> Shape:
    value: Sequence[Any] = shape if isinstance(shape, list | tuple) else [shape]
    for axis in value:
        if axis is None:
            raise ProgramError(f"Shape of a new variable ({name}) must be fully defined, but instead was {shape}.")
        checks.whole("shape", int(axis) if isinstance(axis, float) and axis.is_integer() else axis)
    return tuple(int(axis) for axis in value)


@lru_cache(maxsize=256)
def drawn(initializer: Initializer, shape: Shape, dtype: np.dtype[Any], seed: tuple[int, ...]) -> Array:
    """Return initial values; asked for in every call of a stage, drawn once."""
    return initializer(shape, np.random.default_rng(seed)).astype(dtype)
