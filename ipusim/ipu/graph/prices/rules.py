"""Choose the simulator's optimizer that prices a weight update of a single operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ipusim.api import Work, learning
from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.prices.nodes import work_of_node
from ipusim.ipu.graph.prices.observed import ObservedNode


def _momentum(node: Node) -> learning.Momentum:
    return learning.Momentum(learning_rate=0.0, momentum=0.0, nesterov=node.attributes["use_nesterov"])


#: Functions returning the simulator's optimizer, by operation type. Rates and decays have any value: they do not
#: change the work.
RULES: Final[dict[str, Callable[[Node], Any]]] = {
    "ResourceApplyGradientDescent": lambda node: learning.SGD(learning_rate=0.0),
    "ResourceApplyMomentum": _momentum,
    "ResourceApplyKerasMomentum": _momentum,
    "ResourceApplyAdam": lambda node: learning.Adam(learning_rate=0.0),
    "ResourceApplyRMSProp": lambda node: learning.RMSProp(learning_rate=0.0),
    "ResourceApplyCenteredRMSProp": lambda node: learning.RMSProp(learning_rate=0.0, centered=True),
    "ResourceApplyAdagrad": lambda node: learning.Adagrad(learning_rate=0.0),
    "ResourceApplyAdagradV2": lambda node: learning.Adagrad(learning_rate=0.0),
    "ResourceApplyAdadelta": lambda node: learning.Adadelta(learning_rate=0.0),
    "ResourceApplyFtrl": lambda node: learning.Ftrl(learning_rate=1.0),
}


def rule_of(node: Node) -> Any:
    """Return the simulator's optimizer for an update node; None for other nodes."""
    make = RULES.get(node.type)
    return None if make is None else make(node)


def work_of_update(entry: ObservedNode) -> Work | None:
    """Return the work of an update node; None for a free node."""
    rule = rule_of(entry.node)
    if rule is None:
        return work_of_node(entry)
    variable = entry.inputs[0]
    work: Work = rule.work(variable.size, variable.dtype.itemsize)
    return work
