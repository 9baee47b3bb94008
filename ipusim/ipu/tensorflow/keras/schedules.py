"""Step sizes as functions of the number of updates: ``tf.keras.optimizers.schedules``."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields

from ipusim.ipu import checks
from ipusim.ipu.tensorflow.keras.configured import Configured
from ipusim.ipu.tensorflow.offered import offering


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
        for each in fields(self):
            if each.type == "float":
                checks.number(each.name, getattr(self, each.name))


@dataclass(frozen=True)
class ExponentialDecay(_Decay):
    """initial_learning_rate * decay_rate ^ (step / decay_steps), with whole numbers of decays where ``staircase``."""

    decay_rate: float
    staircase: bool = False
    name: str | None = None

    def __call__(self, step: int) -> float:
        """Return the step size."""
        power = step / self.decay_steps
        return float(self.initial_learning_rate) * self.decay_rate ** (math.floor(power) if self.staircase else power)


@dataclass(frozen=True)
class InverseTimeDecay(_Decay):
    """initial_learning_rate / (1 + decay_rate * step / decay_steps)."""

    decay_rate: float
    staircase: bool = False
    name: str | None = None

    def __call__(self, step: int) -> float:
        """Return the step size."""
        passed = step / self.decay_steps
        return self.initial_learning_rate / (1 + self.decay_rate * (math.floor(passed) if self.staircase else passed))


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
    {
        name: f"{__name__}:{name}"
        for name in (
            "CosineDecay",
            "ExponentialDecay",
            "InverseTimeDecay",
            "LearningRateSchedule",
            "PiecewiseConstantDecay",
            "PolynomialDecay",
        )
    },
)
