"""Step sizes as functions of the number of updates: ``tf.keras.optimizers.schedules``."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.offered import in_module, offering
from ipusim.ipu.tensorflow.keras.described import Configured


class LearningRateSchedule(Configured, ABC):
    """From the number of updates so far to the step size of the next one."""

    @abstractmethod
    def __call__(self, step: int) -> float:
        """Return the step size."""


@dataclass(frozen=True)
class _Decay(LearningRateSchedule):
    """A schedule of a number of updates; raises ProgramError and ProgramTypeError for what is none above 0.

    So do its other numbers for what is no finite one.
    """

    initial_learning_rate: float
    decay_steps: int

    def __post_init__(self) -> None:
        """Refuse what is no such number."""
        if checks.not_negative("decay_steps", self.decay_steps) == 0:
            checks.wrong_value("decay_steps", "a number above 0", self.decay_steps)
        for field in fields(self):
            if field.type == "float":
                checks.number(field.name, getattr(self, field.name))


@dataclass(frozen=True)
class _DecayByRate(_Decay):
    """A schedule of how many times ``decay_steps`` have passed, in whole numbers where ``staircase``."""

    decay_rate: float
    staircase: bool = False
    name: str | None = None

    def _passed(self, step: int) -> int | float:
        passed = step / self.decay_steps
        return math.floor(passed) if self.staircase else passed


@dataclass(frozen=True)
class ExponentialDecay(_DecayByRate):
    """initial_learning_rate * decay_rate ^ (step / decay_steps), with whole numbers of decays where ``staircase``."""

    def __call__(self, step: int) -> float:
        """Return the step size."""
        return float(self.initial_learning_rate) * self.decay_rate ** self._passed(step)


@dataclass(frozen=True)
class InverseTimeDecay(_DecayByRate):
    """initial_learning_rate / (1 + decay_rate * step / decay_steps)."""

    def __call__(self, step: int) -> float:
        """Return the step size."""
        return self.initial_learning_rate / (1 + self.decay_rate * self._passed(step))


@dataclass(frozen=True)
class PolynomialDecay(_Decay):
    """From initial_learning_rate to end_learning_rate in decay_steps, and over again where ``cycle``."""

    end_learning_rate: float = 0.0001
    power: float = 1.0
    cycle: bool = False
    name: str | None = None

    def __call__(self, step: int) -> float:
        """Return the step size."""
        steps = self.decay_steps * max(1, math.ceil(step / self.decay_steps)) if self.cycle else self.decay_steps
        left = 1 - min(step, steps) / steps
        return float((self.initial_learning_rate - self.end_learning_rate) * left**self.power + self.end_learning_rate)


@dataclass(frozen=True)
class CosineDecay(_Decay):
    """Along half a cosine from initial_learning_rate to alpha times that in decay_steps."""

    alpha: float = 0.0
    name: str | None = None

    def __call__(self, step: int) -> float:
        """Return the step size."""
        share = 0.5 * (1 + math.cos(math.pi * min(step, self.decay_steps) / self.decay_steps))
        return self.initial_learning_rate * ((1 - self.alpha) * share + self.alpha)


class PiecewiseConstantDecay(LearningRateSchedule):
    """``values[i]`` up to and with update ``boundaries[i]``, then the last one."""

    def __init__(self, boundaries: Sequence[int], values: Sequence[float], name: str | None = None) -> None:
        """Take both; raises ProgramError where there is not one value more."""
        if len(boundaries) != len(values) - 1:
            checks.wrong_value("boundaries", "one less than values, of which there are " + str(len(values)), boundaries)
        self._boundaries = tuple(boundaries)
        self._values = tuple(checks.number("values", value) for value in values)

    def __call__(self, step: int) -> float:
        """Return the step size."""
        return self._values[sum(step > boundary for boundary in self._boundaries)]


__getattr__, __dir__ = offering(
    "tf.keras.optimizers.schedules",
    in_module(
        __name__,
        "CosineDecay ExponentialDecay InverseTimeDecay LearningRateSchedule PiecewiseConstantDecay PolynomialDecay",
    ),
)


class Setting:
    """A number, read anew in every weight update."""

    def __init__(self, name: str, value: Any) -> None:
        """Take what messages call it, and the number; raises ProgramTypeError for what is none."""
        self.name = name
        self._value = 0.0
        self.assign(value)

    def assign(self, value: Any) -> None:
        """Set it; raises ProgramTypeError for what is no number, ProgramError for several or one that is not finite."""
        result = checks.numbers(self.name, value)
        if result.ndim or not np.isfinite(result):
            checks.wrong_value(self.name, "a number", value)
        self._value = float(result)

    def numpy(self) -> np.float32:
        """Return the value, as TensorFlow has it."""
        return np.float32(self._value)

    def __float__(self) -> float:
        """Return the value as Python's number."""
        return self._value

    def __int__(self) -> int:
        """Return the value as Python's whole number."""
        return int(self._value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return the value as an array."""
        return np.asarray(self._value, np.float32 if dtype is None else dtype)

    def __repr__(self) -> str:
        """Say name and value."""
        return f"<{self.name}: {self._value:g}>"

    def __eq__(self, other: object) -> bool:
        """Compare the number."""
        return self._value == (other._value if isinstance(other, Setting) else other)

    __hash__ = None  # type: ignore[assignment]


def _method(function: Callable[..., Any], reflected: bool = False) -> Callable[..., Any]:
    def method(self: Setting, other: Any = None) -> Any:
        values = (float(self), float(other) if isinstance(other, Setting) else other)
        return function(*(reversed(values) if reflected else values))

    return method


for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(Setting, f"__{_name}__", _method(getattr(operator, _name)))
    setattr(Setting, f"__r{_name}__", _method(getattr(operator, _name), reflected=True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Setting, f"__{_name}__", _method(getattr(operator, _name)))
