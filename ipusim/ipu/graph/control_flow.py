"""Run loops, branches and calls of TensorFlow's control flow v2, whose bodies are separate graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.registry import Kernel


class Body(Protocol):
    """A function called by a node."""

    def run(self, invocation: Any, values: Iterable[Any]) -> list[Any]:
        """Return the function's results for given arguments."""


#: Returns a called function by name.
Bodies = Callable[[str], Body]
#: Makes the kernel of a node with bodies; a kernel is the NumPy function of a node. The kernel's first argument is the
#: invocation, which is the context of a run.
ControlMaker = Callable[[Node, Bodies], Kernel]


def _loop(node: Node, bodies: Bodies) -> Kernel:
    condition, body = bodies(node.attributes["cond"]), bodies(node.attributes["body"])

    def run(invocation: Any, *values: Any) -> Any:
        state: Sequence[Any] = values
        while bool(condition.run(invocation, state)[0]):
            state = body.run(invocation, state)
        return tuple(state)

    return run


def _is_true(value: Any) -> bool:
    """Tell whether a branch's predicate holds; an array with axes holds unless it is empty."""
    return bool(value.size) if getattr(value, "ndim", 0) else bool(value)


def _branch(node: Node, bodies: Bodies) -> Kernel:
    true_body, false_body = bodies(node.attributes["then_branch"]), bodies(node.attributes["else_branch"])
    return lambda invocation, predicate, *values: tuple(
        (true_body if _is_true(predicate) else false_body).run(invocation, values)
    )


def _case(node: Node, bodies: Bodies) -> Kernel:
    branches = [bodies(name) for name in node.attributes["branches"]]

    def run(invocation: Any, index: Any, *values: Any) -> Any:
        number = int(index)
        branch = branches[number if 0 <= number < len(branches) else -1]
        return tuple(branch.run(invocation, values))

    return run


def _call(node: Node, bodies: Bodies) -> Kernel:
    body = bodies(node.attributes["f"])
    return lambda invocation, *values: tuple(body.run(invocation, values))


#: Makers by operation type.
CONTROL_FLOW: Final[dict[str, ControlMaker]] = {
    "While": _loop,
    "StatelessWhile": _loop,
    "If": _branch,
    "StatelessIf": _branch,
    "Case": _case,
    "StatelessCase": _case,
    "PartitionedCall": _call,
    "StatefulPartitionedCall": _call,
}
#: Operation types whose bodies have effects, so nodes run even if no node reads the results; each with the type of
#: the same operation without effects.
WITHOUT_EFFECTS: Final = {
    "While": "StatelessWhile",
    "If": "StatelessIf",
    "Case": "StatelessCase",
    "StatefulPartitionedCall": "PartitionedCall",
}
