"""Weight updates of tf_keras' own optimizers, which are many operations, as the simulator's optimizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ipusim.api import learning

_RULES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "SGD": lambda optimizer: (
        learning.Momentum(learning_rate=0.0, momentum=0.0, nesterov=optimizer.nesterov)
        if optimizer.momentum
        else learning.SGD(learning_rate=0.0)
    ),
    "Adam": lambda optimizer: None if optimizer.amsgrad else learning.Adam(learning_rate=0.0),
    "RMSprop": lambda optimizer: learning.RMSProp(learning_rate=0.0, centered=optimizer.centered),
    "Adagrad": lambda _: learning.Adagrad(learning_rate=0.0),
    "Adadelta": lambda _: learning.Adadelta(learning_rate=0.0),
}
#: Attributes of an optimizer that add operations to its rule.
_MORE: Final = ("weight_decay", "clipnorm", "clipvalue", "global_clipnorm", "use_ema")


def rule_of_optimizer(optimizer: Any) -> Any:
    """Return the simulator's optimizer with the price of an optimizer of tf_keras.

    Args:
        optimizer: an optimizer of a model.

    Returns:
        The simulator's; None for a subclass or another optimizer, whose operations are priced one by one.
    """
    kind = type(optimizer)
    if not kind.__module__.startswith("tf_keras.") or any(getattr(optimizer, name, None) for name in _MORE):
        return None
    if "legacy" in kind.__module__ or kind.__name__ not in _RULES or "optimizer_v2" in kind.__module__:
        return None
    return _RULES[kind.__name__](optimizer)
