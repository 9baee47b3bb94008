"""Keras' optimizers: the core's rules and those of :mod:`ipusim.ipu.tensorflow.keras.rules`.

Step sizes may change between updates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ipusim.api import learning
from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.gradients import GradientsAndVariables
from ipusim.ipu.runtime.offered import offering
from ipusim.ipu.runtime.optimizer import Optimizer as BaseOptimizer
from ipusim.ipu.runtime.own_rule import own_rule
from ipusim.ipu.tensorflow import train
from ipusim.ipu.tensorflow.keras.described import Configured, described, revived
from ipusim.ipu.tensorflow.keras.rules import KerasAdadelta, KerasFtrl, KerasMomentum, KerasRMSProp
from ipusim.ipu.tensorflow.keras.schedules import LearningRateSchedule, Setting

#: What is added where no optimizer says otherwise, as Keras' backend has it.
_EPSILON: Final = 1e-7
#: From a step size to the rule with it.
_Made = Callable[[float], learning.Optimizer]


class Optimizer(Configured, BaseOptimizer):
    """Base of Keras' optimizers, whose updates each replica makes on its own."""

    def __init__(
        self,
        name: str,
        made: _Made | None = None,
        learning_rate: Any = 0.0,
        *,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        decay: float = 0.0,
        lr: Any = None,
        **others: Any,
    ) -> None:
        """Take what makes the rule of a step size; and that, a number or a schedule, and limits of gradients.

        ``lr`` is the older name of the step size, which ``decay`` divides by 1 + decay * iterations. An optimizer of
        the program's own takes a name and the limits alone, sets numbers by ``_set_hyper``, and updates a variable in
        ``_resource_apply_dense(grad, var)``.

        Raises ModelError for numbers out of range, ProgramTypeError and ProgramError for what are none.
        """
        for argument in others:
            checks.wrong_type(type(self).__name__, "arguments of Keras' optimizer", argument)
        self._made = made or (lambda _: own_rule(self))
        self._hyper: dict[str, Any] = {}
        learning_rate = learning_rate if lr is None else lr
        self._decay = checks.not_negative("decay", decay)
        self._schedule = learning_rate if isinstance(learning_rate, LearningRateSchedule) else None
        self._rate = Setting("learning_rate", 0.0 if self._schedule else learning_rate)
        if clipnorm is not None and global_clipnorm is not None:
            raise ProgramError(
                f"Cannot accept both `clipnorm` and `global_clipnorm`, passed `clipnorm` {clipnorm}, `global_clipnorm` "
                f"{global_clipnorm}."
            )
        options = {"clipnorm": clipnorm, "clipvalue": clipvalue, "global_clipnorm": global_clipnorm}
        self._limits = [None if value is None else checks.not_negative(name, value) for name, value in options.items()]
        self._calls, self._replicas = 0, 1
        super().__init__(self._made(self._rate_now()), name)

    @property
    def learning_rate(self) -> Any:
        """The step size, which can be set, or its schedule."""
        return self._schedule or self._rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        if isinstance(value, LearningRateSchedule):
            self._schedule = value
            return
        self._schedule = None
        self._rate.assign(value)

    lr = learning_rate

    @property
    def iterations(self) -> Setting:
        """The number of updates so far."""
        return Setting("iterations", self._calls // self._replicas)

    @iterations.setter
    def iterations(self, value: Any) -> None:
        self._calls = int(Setting("iterations", value)) * self._replicas

    @property
    def replicas(self) -> int:
        """The replicas that update with it."""
        return self._replicas

    @replicas.setter
    def replicas(self, value: int) -> None:
        self._calls, self._replicas = self._calls // self._replicas * value, value

    def _rate_now(self) -> float:
        updates = self._calls // self._replicas
        rate = self._schedule(updates) if self._schedule else float(self._rate)
        return rate / (1 + self._decay * updates)

    @property
    def rule(self) -> learning.Optimizer:
        """The core's rule, with the step size of the next update."""
        return self._made(self._rate_now())

    def apply_gradients(  # type: ignore[override]  # Keras' order
        self, grads_and_vars: GradientsAndVariables, name: str | None = None, *_: Any, **options: Any
    ) -> Any:
        """Update the variables, with gradients limited as asked for, and count the update."""
        result = super().apply_gradients(self._limited(list(grads_and_vars)), options.get("global_step"), name)
        self._calls += 1
        return result

    def minimize(  # type: ignore[override]  # Keras' order
        self, loss: Any, var_list: Any = None, grad_loss: Any = None, name: str | None = None, tape: Any = None
    ) -> Any:
        """Train on a function once, or on a loss of a ``tape``; in a stage or loop return what trains on its loss."""
        variables = var_list() if callable(var_list) else var_list
        if tape is None:
            return super().minimize(loss, var_list=variables, grad_loss=grad_loss, name=name)
        gradients = tape.gradient(loss, variables, output_gradients=grad_loss)
        return self.apply_gradients(list(zip(gradients, variables, strict=True)), name)

    def get_gradients(self, loss: Any, params: Sequence[Any]) -> list[Any]:
        """Return the gradients of variables, each None for one without; raises as ``compute_gradients`` does."""
        result = {variable.name: gradient for gradient, variable in self.compute_gradients(loss, params)}
        return [result.get(variable.name) for variable in params]

    def _set_hyper(self, name: str, value: Any) -> None:
        """Set a number of an optimizer of the program's own."""
        if name == "learning_rate":
            self.learning_rate = value
        else:
            self._hyper[name] = Setting(name, value)

    def _get_hyper(self, name: str, dtype: Any = None) -> Any:
        """Return a number of an optimizer of the program's own, in a dtype where one is given; or its schedule."""
        result = self.learning_rate if name == "learning_rate" else self._hyper[name]
        return (
            result if dtype is None or isinstance(result, LearningRateSchedule) else np.dtype(dtype).type(float(result))
        )

    def _decayed_lr(self, var_dtype: Any) -> Any:
        """Return the step size of the next update."""
        return np.dtype(var_dtype).type(self._rate_now())

    def _serialize_hyperparameter(self, name: str) -> Any:
        """Return a number for ``get_config``."""
        result = self._get_hyper(name)
        return described(result) if isinstance(result, LearningRateSchedule) else float(result)

    def _limited(self, pairs: list[Any]) -> list[Any]:
        norm, value, whole = self._limits
        if value is not None:
            pairs = [(None if item is None else np.clip(item, -value, value), of) for item, of in pairs]
        if norm is not None:
            pairs = [(None if item is None else _shortened(item, norm, _length([item])), of) for item, of in pairs]
        if whole is not None:
            length = _length([item for item, _ in pairs if item is not None])
            pairs = [(None if item is None else _shortened(item, whole, length), of) for item, of in pairs]
        return pairs

    def get_config(self) -> dict[str, Any]:
        """Return its arguments, with the step size that it has now."""
        now = described(self._schedule) if self._schedule else float(self._rate)
        result = {name: value for name, value in super().get_config().items() if name != "lr"}
        return result | {"name": self.name, "learning_rate": now}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """Return an optimizer of what ``get_config`` gave; raises as making one does."""
        return cls(**{**config, "learning_rate": revived("schedule", config.get("learning_rate", 0.01))})


def _made(
    optimizer: Callable[..., BaseOptimizer],
    *arguments: Any,
    rule: Callable[..., learning.Optimizer] | None = None,
    **options: Any,
) -> _Made:
    """Return what makes the rule of TensorFlow's optimizer of a step size, as Keras' ``rule`` where it has one."""

    def made(rate: float) -> learning.Optimizer:
        result = optimizer(rate, *arguments, **options).rule
        return result if rule is None else rule(**vars(result))

    return made


def _length(gradients: list[Any]) -> float:
    return float(np.sqrt(sum(float(np.sum(np.square(gradient, dtype=np.float64))) for gradient in gradients)))


def _shortened(gradient: Any, most: float, length: float) -> Any:
    return gradient if length <= most else gradient * gradient.dtype.type(most / length)


class SGD(Optimizer):
    """Keras' gradient descent, with or without momentum."""

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        name: str = "SGD",
        **limits: Any,
    ) -> None:
        """Take the step size, the momentum's decay, and whether it is Nesterov's.

        Raises ProgramError for a decay that is not from 0 to 1.
        """
        checks.truth("nesterov", nesterov)
        if checks.not_negative("momentum", momentum) > 1:
            checks.wrong_value("momentum", "a number from 0 to 1", momentum)

        made = _made(train.GradientDescentOptimizer)
        if momentum:
            made = _made(train.MomentumOptimizer, momentum, use_nesterov=nesterov, rule=KerasMomentum)
        super().__init__(name, made, learning_rate, **limits)


class Adam(Optimizer):
    """Keras' Adam."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float | None = _EPSILON,
        amsgrad: bool = False,
        name: str = "Adam",
        **limits: Any,
    ) -> None:
        """Take the step size, the decays of both moments and what is added to the root; no amsgrad.

        Without an ``epsilon`` it is Keras' own, as that of RMSprop.
        """
        if checks.truth("amsgrad", amsgrad):
            raise UnsupportedProgramError("amsgrad: expected False, as it is not simulated, got True")
        added = _EPSILON if epsilon is None else epsilon
        super().__init__(name, _made(train.AdamOptimizer, beta_1, beta_2, added), learning_rate, **limits)


class RMSprop(Optimizer):
    """Keras' RMSprop."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float | None = _EPSILON,
        centered: bool = False,
        name: str = "RMSprop",
        **limits: Any,
    ) -> None:
        """Take the step size, the decays of the mean square and of the steps, and what is added to the root.

        With momentum it is added under the root.
        """
        added = _EPSILON if epsilon is None else epsilon
        made = _made(train.RMSPropOptimizer, rho, momentum, added, centered=centered, rule=KerasRMSProp)
        super().__init__(name, made, learning_rate, **limits)


class Adagrad(Optimizer):
    """Keras' Adagrad."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = _EPSILON,
        name: str = "Adagrad",
        **limits: Any,
    ) -> None:
        """Take the step size, what the sums of squares begin with, and what is added to their root."""
        first = checks.not_negative("initial_accumulator_value", initial_accumulator_value)
        added = _EPSILON if epsilon is None else checks.not_negative("epsilon", epsilon)
        super().__init__(name, lambda rate: learning.Adagrad(rate, first, added), learning_rate, **limits)


class Adadelta(Optimizer):
    """Keras' Adadelta."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.95,
        epsilon: float = _EPSILON,
        name: str = "Adadelta",
        **limits: Any,
    ) -> None:
        """Take the step size, the decay of the means of squares, and what is added under their roots."""
        added = _EPSILON if epsilon is None else epsilon
        super().__init__(name, _made(train.AdadeltaOptimizer, rho, added, rule=KerasAdadelta), learning_rate, **limits)


class Ftrl(Optimizer):
    """Keras' FTRL."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        name: str = "Ftrl",
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float = 0.0,
        **limits: Any,
    ) -> None:
        """Take the step size, its power of the sums of squares, what these begin with, and the penalties."""
        made = _made(
            train.FtrlOptimizer,
            learning_rate_power,
            initial_accumulator_value,
            l1_regularization_strength,
            l2_regularization_strength,
            l2_shrinkage_regularization_strength=l2_shrinkage_regularization_strength,
            beta=beta,
            rule=KerasFtrl,
        )
        super().__init__(name, made, learning_rate, **limits)


class LAMB(Optimizer):
    """LAMB, as Graphcore's addons for Keras have it."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay_rate: float = 0.0,
        exclude_from_weight_decay: list[str] | None = None,
        name: str = "LAMB",
        **limits: Any,
    ) -> None:
        """Take the step size, the decays of moments and weights, and parts of the names that do not decay."""
        made = _made(train.LAMBOptimizer, weight_decay_rate, beta_1, beta_2, epsilon, exclude_from_weight_decay)
        super().__init__(name, made, learning_rate, **limits)


_CLASSES: Final = (Adadelta, Adagrad, Adam, Ftrl, LAMB, RMSprop, SGD)
_BY_NAME: Final[dict[str, type[Any]]] = {kind.__name__.lower(): kind for kind in _CLASSES}


def get(identifier: Any) -> BaseOptimizer:
    """Return an optimizer by its name, its class or itself, of Keras or ``tf.train``.

    Raises ProgramError for an unknown name, ProgramTypeError for what is no optimizer.
    """
    if isinstance(identifier, Mapping):
        identifier = revived("optimizer", identifier)
    if isinstance(identifier, BaseOptimizer):
        return identifier
    if isinstance(identifier, type) and issubclass(identifier, Optimizer):
        return identifier()  # type: ignore[call-arg]
    checks.instance("optimizer", identifier, str, "an optimizer such as keras.optimizers.SGD(0.01), or its name")
    if identifier.lower() not in _BY_NAME:
        raise ProgramError(f"Unknown optimizer: {identifier}. Expected one of {', '.join(sorted(_BY_NAME))}")
    result: BaseOptimizer = _BY_NAME[identifier.lower()]()
    return result


__getattr__, __dir__ = offering(
    "tf.keras.optimizers",
    {name: f"{__name__}:{name}" for name in (*(kind.__name__ for kind in _CLASSES), "Optimizer", "get")}
    | {"schedules": "ipusim.ipu.tensorflow.keras.schedules"},
)
