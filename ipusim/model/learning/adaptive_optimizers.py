"""Optimizers with a step size of its own for each element, from moments of its gradients: Adam and LAMB."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from ipusim.errors import ModelError
from ipusim.model.layers.layer import Array, Parameters
from ipusim.model.learning.gradient_map import GradientMap
from ipusim.model.learning.optimizers import State, check_not_negative
from ipusim.model.work import VectorWork, Work

#: Key of the number of updates in the state; names of parameters have a slash.
_STEP: Final = "step"


@dataclass(frozen=True)
class _Moments:
    """What both share: means of the gradient (m) and of its square (v) that decay with each update.

    Attributes:
        learning_rate: step size.
        beta_1, beta_2: decay of m and of v.
        epsilon: added to sqrt(v).
        weight_decay: share of a weight that is added to its update.
        exclude_from_weight_decay: parts of names, such as ``/b`` or ``beta``: parameters
            whose name, ``layer/W``, has one of them are not decayed.
        gradient_map: what is done to each micro-batch's gradients.
    """

    learning_rate: float
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    exclude_from_weight_decay: tuple[str, ...] = ()
    gradient_map: GradientMap | None = None

    def __post_init__(self) -> None:
        """Raise ModelError for a value below 0 or not finite, a decay that is not below 1, or no epsilon."""
        check_not_negative(learning_rate=self.learning_rate, weight_decay=self.weight_decay)
        for name, beta in (("beta_1", self.beta_1), ("beta_2", self.beta_2)):
            if not 0 <= beta < 1:
                raise ModelError(f"expected a {name} from 0 and below 1, got {beta}")
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise ModelError(f"expected an epsilon above 0, got {self.epsilon}")

    def initial_state(self, parameters: Parameters) -> State:
        """Return zeros for m and v of each parameter, and no update yet."""
        slots = {f"{name}/{slot}": np.zeros_like(array) for name, array in parameters.items() for slot in "mv"}
        return slots | {_STEP: np.zeros((), np.int64)}

    def state_bytes(self, parameter_count: int, itemsize: int) -> int:
        """Return the bytes of m and v."""
        return 2 * parameter_count * itemsize

    def _advance(self, name: str, gradient: Array, state: State) -> tuple[Array, Array]:
        """Bring m and v of ``name`` up to date in place and return them."""
        m, v = state[f"{name}/m"], state[f"{name}/v"]
        m *= self.beta_1
        m += (1 - self.beta_1) * gradient
        v *= self.beta_2
        v += (1 - self.beta_2) * np.square(gradient)
        return m, v

    def _corrections(self, state: State) -> tuple[float, float]:
        """Count an update; return 1 - beta^t of both moments, which take out that they started at zero."""
        state[_STEP] += 1
        step = int(state[_STEP])
        return 1 - self.beta_1**step, 1 - self.beta_2**step

    def _decays(self, name: str) -> bool:
        return self.weight_decay > 0 and not any(part in name for part in self.exclude_from_weight_decay)


@dataclass(frozen=True)
class Adam(_Moments):
    """Adam (Kingma and Ba, arXiv 1412.6980) in the form of TensorFlow's AdamOptimizer.

    m = beta_1 * m + (1 - beta_1) * grad; v = beta_2 * v + (1 - beta_2) * grad^2;
    var -= learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon).
    Epsilon is the paper's "epsilon hat". Weight decay is decoupled from the moments:
    var -= learning_rate * weight_decay * var (Loshchilov and Hutter, arXiv 1711.05101).
    """

    def apply(self, parameters: Parameters, gradients: Parameters, state: State) -> None:
        """Bring the moments up to date, then step against them."""
        first, second = self._corrections(state)
        rate = self.learning_rate * math.sqrt(second) / first
        for name, variable in parameters.items():
            m, v = self._advance(name, gradients[name], state)
            update = np.sqrt(v)
            update += self.epsilon
            np.divide(m, update, out=update)
            update *= rate
            if self._decays(name):
                update += self.learning_rate * self.weight_decay * variable
            np.subtract(variable, update, out=variable)

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return the work: for each element three operations for m and four for v, then square root, sum, quotient,

        product and difference, and two for the decay. Reads gradient, slots and weight,
        writes slots and weight.
        """
        each = VectorWork(12 if self.weight_decay else 10, quotients=1, transcendentals=1)
        return Work(vector=each * parameter_count, sram_bytes=7 * parameter_count * itemsize, itemsize=itemsize)


@dataclass(frozen=True)
class LAMB(_Moments):
    """LAMB (You et al., arXiv 1904.00962), as in Graphcore's ipu_tensorflow_addons, lamb_optimizer.py.

    With m and v as in :class:`Adam`, mh = m / (1 - beta_1^t) and vh = v / (1 - beta_2^t):
    r = mh / (sqrt(vh) + epsilon) + weight_decay * var; var -= learning_rate * |var| / |r| * r,
    with norms over one parameter, and their ratio 1 where either is 0. Epsilon's
    default is Graphcore's.
    """

    epsilon: float = 1e-6

    def apply(self, parameters: Parameters, gradients: Parameters, state: State) -> None:
        """Bring the moments up to date, then step against them as far as the weights are long."""
        first, second = self._corrections(state)
        for name, variable in parameters.items():
            m, v = self._advance(name, gradients[name], state)
            update = np.sqrt(v / second)
            update += self.epsilon
            np.divide(m / first, update, out=update)
            if self._decays(name):
                update += self.weight_decay * variable
            lengths = [math.sqrt(np.square(array, dtype=np.float64).sum()) for array in (variable, update)]
            ratio = lengths[0] / lengths[1] if all(lengths) else 1.0
            update *= self.learning_rate * ratio
            np.subtract(variable, update, out=variable)

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return the work: as Adam's, with a product for each correction, and a square and a sum for each norm.

        The norms take a second superstep; the one number that each tile sends is left out.
        """
        each = VectorWork(15 if self.weight_decay else 13, reductions=2, quotients=1, transcendentals=1)
        return Work(
            vector=each * parameter_count, sram_bytes=9 * parameter_count * itemsize, itemsize=itemsize, supersteps=2
        )
