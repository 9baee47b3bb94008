"""Gradients that replicas average in the middle of a weight update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipusim.ipu.graph.executable import Executable
from ipusim.ipu.graph.needed import runs_for_effect
from ipusim.ipu.graph.node import Graph, Node, Output
from ipusim.ipu.graph.registry import entry_of


@dataclass(eq=False)
class Averaged:
    """The gradient behind a node that replicas average.

    Attributes:
        variable: shared name of the gradient's variable.
        in_pass: whether the node runs in a pass, where the body of a loop has no weight update apart.
    """

    variable: str
    in_pass: bool = False


@dataclass(frozen=True, eq=False)
class Averaging:
    """A weight update in two parts.

    Attributes:
        names: variables whose gradients are averaged, by shared name.
        before: part that makes these gradients, from the accumulated gradients of all variables.
        after: rest of the update; it takes the averages, then the accumulated gradients.
    """

    names: tuple[str, ...]
    before: Executable
    after: Executable


def averaged_of(node: Node) -> Averaged | None:
    """Return the gradient that a node averages over replicas; None for a node that does not."""
    entry = entry_of(node)
    return entry.value if entry is not None and isinstance(entry.value, Averaged) else None


def averaging_of(
    graph: Graph, accumulators: dict[str, Output], update_nodes: Sequence[str], part: set[str]
) -> Averaging | None:
    """Return a weight update in two parts; None where no node averages.

    The first node that averages the gradient of a variable does so; others hand the gradient on.

    Args:
        graph: the graph.
        accumulators: tensor that stands for the accumulated gradient of each variable.
        update_nodes: names of the nodes of the update.
        part: names of all nodes that may run in an update.
    """
    marks: dict[str, Node] = {}
    for name in update_nodes:
        mark = averaged_of(graph.nodes[name])
        if mark is not None and mark.variable in accumulators:
            marks.setdefault(mark.variable, graph.nodes[name])
    if not marks:
        return None
    fed, made = list(accumulators.values()), [node.inputs[0] for node in marks.values()]
    before = Executable(graph, fed, made, (), part)
    ran = {step.node.name for step in before.steps}
    effects = [name for name in update_nodes if runs_for_effect(graph.nodes[name]) and name not in ran]
    averages = [Output(node.name, 0) for node in marks.values()]
    after = Executable(graph, [*averages, *fed], [], effects, part)
    return Averaging(tuple(marks), before, after)
