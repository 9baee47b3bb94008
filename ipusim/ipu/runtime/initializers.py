"""Initial values of variables, in TensorFlow's names and by its rules."""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, Final, Literal

import numpy as np

from ipusim.api import Array, Shape, layers
from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.import_names import major_version
from ipusim.ipu.runtime.offered import offering
from ipusim.ipu.runtime.program_state import seed_of

#: Standard deviation of a normal distribution that is cut at two of them.
_CUT: Final = 0.87962566103423978


Mode = Literal["fan_in", "fan_out", "fan_avg"]
Distribution = Literal["uniform", "truncated_normal", "untruncated_normal", "normal"]


@dataclass(frozen=True)
class Initializer(ABC):
    """Draws the initial values of a variable.

    Attributes:
        seed: of the draws; None for that of ``tf.set_random_seed``, with the variable's name.
        dtype: of the values of a call; a variable has that of get_variable.
    """

    @property
    def seed(self) -> int | None:
        """The seed of the draws."""
        return None

    @property
    def dtype(self) -> Any:
        """The dtype of the values of a call that does not say it."""
        return None

    @abstractmethod
    def draw(self, shape: Shape, rng: np.random.Generator) -> Array:
        """Return values of ``shape`` in float64."""

    def __call__(self, shape: Any, dtype: Any = None, partition_info: None = None) -> Array:
        """Return values of ``shape``, by default in float32; ``partition_info`` is without effect."""
        kind = checks.dtype(
            "dtype", next((each for each in (dtype, self.dtype) if each is not None), np.float32), "biuf"
        )
        axes = tuple(int(axis) for axis in np.atleast_1d(shape))
        return self.draw(axes, np.random.default_rng(seed_of(self.seed))).astype(kind)

    def get_config(self) -> dict[str, Any]:
        """Return its arguments."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "dtype"}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Initializer:
        """Return one of these arguments."""
        return cls(**config)


@dataclass(frozen=True)
class Constant(Initializer):
    """One value everywhere, or the elements of a list or array, in their order."""

    value: Any = 0.0
    dtype: Any = None
    verify_shape: bool = False

    def __post_init__(self) -> None:
        """Keep lists and arrays as tuples, which never change."""
        value = self.value.tolist() if isinstance(self.value, np.ndarray | np.generic) else self.value
        object.__setattr__(self, "value", _in_tuples(value))

    def draw(self, shape: Shape, rng: np.random.Generator) -> Array:
        """Return the value, or the elements; raises ProgramError for other numbers of them than the shape takes."""
        return filled(np.asarray(self.value, np.float64), shape)

    def get_config(self) -> dict[str, Any]:
        """Return its value."""
        return {"value": self.value}


@dataclass(frozen=True)
class Zeros(Initializer):
    """Zeros."""

    dtype: Any = None

    def draw(self, shape: Shape, rng: np.random.Generator) -> Array:
        """Return zeros."""
        return np.zeros(shape)


@dataclass(frozen=True)
class Ones(Initializer):
    """Ones."""

    dtype: Any = None

    def draw(self, shape: Shape, rng: np.random.Generator) -> Array:
        """Return ones."""
        return np.ones(shape)


@dataclass(frozen=True)
class RandomNormal(Initializer):
    """A normal distribution."""

    mean: float = 0.0
    stddev: float = 0.05
    seed: int | None = None
    dtype: Any = None

    def draw(self, shape: Shape, rng: np.random.Generator) -> Array:
        """Draw."""
        return np.asarray(rng.normal(self.mean, self.stddev, shape))


@dataclass(frozen=True)
class TruncatedNormal(RandomNormal):
    """A normal distribution without what is more than two standard deviations from its mean."""

    def draw(self, shape: Shape, rng: np.random.Generator) -> Array:
        """Draw values, and redraw those beyond two standard deviations."""
        return self.mean + self.stddev * _truncated(shape, rng)


@dataclass(frozen=True)
class RandomUniform(Initializer):
    """Equally likely from ``minval`` to ``maxval``."""

    minval: float = -0.05
    maxval: float = 0.05
    seed: int | None = None
    dtype: Any = None

    def draw(self, shape: Shape, rng: np.random.Generator) -> Array:
        """Draw."""
        return np.asarray(rng.uniform(self.minval, self.maxval, shape))


def random_normal_initializer(
    mean: float = 0.0, stddev: float | None = None, seed: int | None = None, dtype: Any = None
) -> RandomNormal:
    """Return a normal distribution, by default of deviation 1 in a program for TensorFlow 1, of 0.05 in one for 2."""
    return RandomNormal(mean, _default(stddev, 1.0, 0.05), seed, dtype)


def truncated_normal_initializer(
    mean: float = 0.0, stddev: float | None = None, seed: int | None = None, dtype: Any = None
) -> TruncatedNormal:
    """Return a normal distribution that is cut at two standard deviations from its mean.

    By default the deviation is 1 in a program for TensorFlow 1, and 0.05 in one for 2.
    """
    return TruncatedNormal(mean, _default(stddev, 1.0, 0.05), seed, dtype)


def random_uniform_initializer(
    minval: float | None = None, maxval: float | None = None, seed: int | None = None, dtype: Any = None
) -> RandomUniform:
    """Return a uniform distribution from ``minval`` to ``maxval``.

    By default these are 0 and 1 in a program for TensorFlow 1, and -0.05 and 0.05 in one for 2.
    """
    return RandomUniform(_default(minval, 0.0, -0.05), _default(maxval, 1.0, 0.05), seed, dtype)


def _default(value: float | None, in_1: float, in_2: float) -> float:
    return value if value is not None else in_1 if major_version() == 1 else in_2


@dataclass(frozen=True)
class VarianceScaling(Initializer):
    """A variance of scale / n, with n the inputs, the outputs or their mean.

    Inputs and outputs are the last two axes, each times all axes before, as for kernels of convolutions.
    """

    scale: float = 1.0
    mode: Mode = "fan_in"
    distribution: Distribution = "truncated_normal"
    seed: int | None = None
    dtype: Any = None

    def draw(self, shape: Shape, rng: np.random.Generator) -> Array:
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
class _Named(Initializer):
    """A variance of a scale by a number of inputs and outputs that has a name of its own."""

    scaling: ClassVar[tuple[float, Mode, Distribution]]

    seed: int | None = None
    dtype: Any = None

    def draw(self, shape: Shape, rng: np.random.Generator) -> Array:
        """Draw."""
        return VarianceScaling(*self.scaling).draw(shape, rng)


class GlorotUniform(_Named):
    """Uniform, of variance 2 / (inputs + outputs)."""

    scaling = 1.0, "fan_avg", "uniform"


class GlorotNormal(_Named):
    """Normal, of variance 2 / (inputs + outputs)."""

    scaling = 1.0, "fan_avg", "truncated_normal"


class HeNormal(_Named):
    """Normal, of variance 2 / inputs."""

    scaling = 2.0, "fan_in", "truncated_normal"


class HeUniform(_Named):
    """Uniform, of variance 2 / inputs."""

    scaling = 2.0, "fan_in", "uniform"


class LecunNormal(_Named):
    """Normal, of variance 1 / inputs."""

    scaling = 1.0, "fan_in", "truncated_normal"


class LecunUniform(_Named):
    """Uniform, of variance 1 / inputs."""

    scaling = 1.0, "fan_in", "uniform"


@dataclass(frozen=True)
class Orthogonal(Initializer):
    """A matrix with orthonormal rows or columns, whichever are fewer, times ``gain``; all axes but the last are one."""

    gain: float = 1.0
    seed: int | None = None
    dtype: Any = None

    def draw(self, shape: Shape, rng: np.random.Generator) -> Array:
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


def _in_tuples(value: Any) -> Any:
    return tuple(map(_in_tuples, value)) if isinstance(value, list | tuple) else value


def filled(values: Array, shape: Any) -> Array:
    """Return values in a shape that takes their elements in their order.

    Fewer than that are followed by the last of them again and again, in TensorFlow 2 one alone. Raises ProgramError for
    none, and for others.
    """
    axes = tuple(int(axis) for axis in np.atleast_1d(shape))
    has, wants = values.size, math.prod(axes)
    if has != wants and (has > wants or not has or (has > 1 and major_version() > 1)):
        checks.wrong_value("shape", f"one that takes {has} elements", shape)
    flat = values.ravel()
    return np.append(flat, np.full(wants - has, flat[-1:], flat.dtype)).reshape(axes)


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
    return initializer.draw(shape, np.random.default_rng(seed)).astype(dtype)
