"""Choose the simulator's optimizer that gives the work of a tf_keras optimizer's updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ipusim.api import learning
from ipusim.base.errors import ModelError

#: Functions returning the simulator's optimizer from a tf_keras optimizer and its learning rate, by class name.
_RULES: Final[Mapping[str, Callable[[Any, float], Any]]] = {
    "SGD": lambda opt, rate: (
        learning.Momentum(rate, opt.momentum, nesterov=opt.nesterov) if opt.momentum else learning.SGD(rate)
    ),
    "Adam": lambda opt, rate: learning.Adam(rate, opt.beta_1, opt.beta_2, opt.epsilon),
    "RMSprop": lambda opt, rate: learning.RMSProp(rate, opt.rho, opt.momentum, opt.epsilon, centered=opt.centered),
    "Adagrad": lambda opt, rate: learning.Adagrad(rate, opt.initial_accumulator_value, opt.epsilon),
    "Adadelta": lambda opt, rate: learning.Adadelta(rate, opt.rho, opt.epsilon),
}
#: Attributes of an optimizer that add operations to the update, unless empty.
_EXTRA_ATTRIBUTES: Final = ("weight_decay", "clipnorm", "clipvalue", "global_clipnorm", "use_ema", "amsgrad")


def rule_of_optimizer(optimizer: Any) -> Any:
    """Return the simulator's optimizer that gives the work of a tf_keras optimizer's updates.

    Args:
        optimizer: optimizer of a model.

    Returns:
        Simulator's optimizer with the current hyperparameters. None for other optimizers, and for hyperparameters that
        the simulator refuses: the work of an update is then the sum over operations.
    """
    kind = type(optimizer)
    if not kind.__module__.startswith("tf_keras.") or any(getattr(optimizer, name, None) for name in _EXTRA_ATTRIBUTES):
        return None
    if "legacy" in kind.__module__ or kind.__name__ not in _RULES or "optimizer_v2" in kind.__module__:
        return None
    try:
        return _RULES[kind.__name__](optimizer, float(optimizer.learning_rate))
    except ModelError:
        return None
