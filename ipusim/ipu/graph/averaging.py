"""Split a weight update where it averages gradients over replicas.

Names of variables are shared names, which the variables' handles have in TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipusim.ipu.graph.executable import Executable
from ipusim.ipu.graph.needed import runs_for_effect
from ipusim.ipu.graph.node import Graph, Node, Output
from ipusim.ipu.graph.registry import value_of


@dataclass(eq=False)
class Averaged:
    """Marker value of a node that averages a gradient over replicas.

    Attributes:
        variable: shared name of the gradient's variable.
        in_pass: whether the node runs in a forward pass that may change variables; no separate weight update exists.
    """

    variable: str
    in_pass: bool = False


@dataclass(frozen=True, eq=False)
class Averaging:
    """Weight update in two parts, before and after gradients are averaged over replicas.

    Attributes:
        names: shared names of variables with averaged gradients.
        gradient_part: part that computes the gradients to average, from the accumulated gradients of all variables.
        update_part: remaining update; inputs are the averages, followed by the accumulated gradients.
    """

    names: tuple[str, ...]
    gradient_part: Executable
    update_part: Executable


def averaging_of(
    graph: Graph, accumulators: dict[str, Output], update_nodes: Sequence[str], part: set[str]
) -> Averaging | None:
    """Split a weight update at gradient averaging; None if no node averages.

    If several nodes average the gradient of a variable, only the first one averages; the others forward the gradient.

    Args:
        graph: the graph.
        accumulators: tensor holding the accumulated gradient, by variable.
        update_nodes: node names of the update.
        part: names of all nodes allowed to run in an update.
    """
    marks: dict[str, Node] = {}
    for name in update_nodes:
        mark = value_of(graph.nodes[name], Averaged)
        if mark is not None and mark.variable in accumulators:
            marks.setdefault(mark.variable, graph.nodes[name])
    if not marks:
        return None
    fed, sources = list(accumulators.values()), [node.inputs[0] for node in marks.values()]
    gradient_part = Executable(graph, fed, sources, (), part)
    step_names = {step.node.name for step in gradient_part.steps}
    effects = [name for name in update_nodes if runs_for_effect(graph.nodes[name]) and name not in step_names]
    averages = [Output(node.name, 0) for node in marks.values()]
    update_part = Executable(graph, [*averages, *fed], [], effects, part)
    return Averaging(tuple(marks), gradient_part, update_part)
