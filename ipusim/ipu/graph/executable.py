"""Run part of a graph as NumPy steps in sequence.

Every tensor has a slot: the index of its value in a list.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Final, NamedTuple

import numpy as np

from ipusim.base.errors import ProgramError
from ipusim.ipu.graph import kernels as _kernels  # noqa: F401 - registers every kernel
from ipusim.ipu.graph.control_flow import CONTROL_FLOW
from ipusim.ipu.graph.needed import NeededNodes, runs_for_effect
from ipusim.ipu.graph.node import Graph, Node, Output, Variable
from ipusim.ipu.graph.registry import Kernel, find

#: Slot of the invocation, which kernels may take as an argument.
_INVOCATION: Final = 0


class Invocation:
    """Context for one run of a graph's part.

    Attributes:
        variables: variables by the handle's shared name.
        key: integers that seed draws, such as program seed and micro-batch number.
        session: the host's running session, or None outside of sessions.
    """

    def __init__(self, variables: Mapping[str, Variable], key: tuple[int, ...] = (0,), session: Any = None) -> None:
        """Take variables, seed key and session."""
        self.variables, self.key, self.session = variables, key, session
        self._draws: dict[str, int] = {}

    def generator(self, node: Node) -> np.random.Generator:
        """Return the generator for a node's next draw.

        Key, node seeds, node name and number of earlier draws seed a Philox generator.
        """
        count = self._draws[node.name] = self._draws.get(node.name, 0) + 1
        seeds = (node.attributes.get("seed", 0), node.attributes.get("seed2", 0))
        entropy = (*self.key, *(abs(seed) for seed in seeds), zlib.crc32(node.name.encode()), count)
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy)))


class Step(NamedTuple):
    """One node of an executable.

    Attributes:
        kernel: function of the node.
        inputs, outputs: slot numbers read and written.
        node: the node.
    """

    kernel: Kernel
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    node: Node


#: Called after every executed step with inputs and results.
Observer = Callable[[Step, Sequence[Any], Sequence[Any]], object]


class Executable:
    """Nodes of a graph that compute ``fetches`` and run requested effects, in topological order.

    Attributes:
        external: tensors that other parts compute; :meth:`run` takes their values after the feeds' values.
        steps: nodes in order of execution.
        variables: shared names of variables whose handles the nodes use.
    """

    def __init__(
        self,
        graph: Graph,
        feeds: Sequence[Output],
        fetches: Sequence[Output],
        targets: Iterable[str] = (),
        part: Collection[str] | None = None,
        observer: Observer | None = None,
    ) -> None:
        """Order the needed nodes.

        Args:
            graph: the graph.
            feeds: tensors with values given by the caller.
            fetches: tensors to return.
            targets: names of nodes whose effects run.
            part: node names of the part, by default all nodes; other tensors are external.
            observer: called for every executed step, including steps in bodies of loops and branches.

        Raises:
            UnsupportedProgramError: if a node has no kernel.
        """
        self._graph, self._observer = graph, observer
        self._bodies: dict[str, Executable] = {}
        needed_nodes = NeededNodes(graph, feeds, fetches, targets, part)
        self.external = needed_nodes.external
        self._slots: dict[Output, int] = {}
        self._feeds = [self._slot_of(tensor) for tensor in (*feeds, *needed_nodes.external)]
        self._constants: list[tuple[int, Any]] = []
        self._handles: list[tuple[int, str]] = []
        self.steps: list[Step] = []
        for node in needed_nodes.in_order():
            self._add(node)
        unknown_tensors = [tensor for tensor in fetches if tensor not in self._slots]
        if unknown_tensors:
            raise ProgramError(
                f"tensor {unknown_tensors[0].node}:{unknown_tensors[0].number} is not made by the graph that is run"
            )
        self._fetches = [self._slots[tensor] for tensor in fetches]

    @property
    def variables(self) -> tuple[str, ...]:
        """Shared names of variables whose handles the nodes use."""
        return tuple(name for _, name in self._handles)

    def observed_by(self, observer: Observer) -> Executable:
        """Return a copy that reports its steps to an observer, except steps in bodies of loops and branches."""
        observed = copy(self)
        observed._observer = observer
        return observed

    def run(self, invocation: Invocation, values: Iterable[Any]) -> list[Any]:
        """Execute all steps.

        Args:
            invocation: the variables, and the generators of random draws.
            values: values of the feeds, then values of :attr:`external`.

        Returns:
            Values of the fetches.
        """
        slots: list[Any] = [None] * (len(self._slots) + 1)
        slots[_INVOCATION] = invocation
        for slot, value in self._constants:
            slots[slot] = value
        for slot, name in self._handles:
            slots[slot] = invocation.variables[name]
        for slot, value in zip(self._feeds, values, strict=True):
            slots[slot] = value
        observer = self._observer
        for step in self.steps:
            kernel, inputs, outputs, _ = step
            result = kernel(*[slots[slot] for slot in inputs])
            if len(outputs) == 1:
                slots[outputs[0]] = result[0] if isinstance(result, tuple) else result
            elif outputs:
                for slot, value in zip(outputs, result, strict=True):
                    slots[slot] = value
            if observer is not None:
                observer(step, [slots[slot] for slot in inputs], [slots[slot] for slot in outputs])
        return [slots[slot] for slot in self._fetches]

    def _slot_of(self, tensor: Output) -> int:
        """Return a tensor's slot number; a new tensor gets a new slot."""
        return self._slots.setdefault(tensor, len(self._slots) + 1)

    def _add(self, node: Node) -> None:
        """Add a node as a step or a fixed value."""
        if node.type == "Const":
            value = node.attributes["value"]
            value.flags.writeable = False
            self._constants.append((self._slot_of(node.outputs[0]), value))
        elif node.type == "VarHandleOp":
            self._handles.append((self._slot_of(node.outputs[0]), shared_name(node)))
        elif node.type not in ("Placeholder", "NoOp"):
            inputs = tuple(self._slot_of(tensor) for tensor in node.inputs)
            kernel, knows_invocation = self._kernel(node)
            input_slots = (_INVOCATION, *inputs) if knows_invocation else inputs
            self.steps.append(Step(kernel, input_slots, tuple(self._slot_of(tensor) for tensor in node.outputs), node))

    def _kernel(self, node: Node) -> tuple[Kernel, bool]:
        """Return a node's kernel, and whether the invocation comes before the inputs."""
        if node.type in CONTROL_FLOW:
            return CONTROL_FLOW[node.type](node, self._body), True
        entry = find(node)
        kernel = entry.maker(node)
        if not entry.draws:
            return kernel, entry.invoked
        return lambda invocation, *values: kernel(invocation.generator(node), *values), True

    def _body(self, name: str) -> Executable:
        """Return the body of a called function."""
        if name not in self._bodies:
            body = self._graph.functions[name]
            effects = [node.name for node in body.nodes.values() if runs_for_effect(node)]
            self._bodies[name] = Executable(body, body.inputs, body.outputs, effects, observer=self._observer)
        return self._bodies[name]


def shared_name(node: Node) -> str:
    """Return the shared name of a handle's variable."""
    return node.attributes.get("shared_name") or node.name
