"""Apply the weight update of a traced step to all stages at once."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from ipusim.api import Array, VectorWork, Work, functions, learning
from ipusim.ipu.graph.averaging import Averaging
from ipusim.ipu.graph.executable import Executable, Invocation, shared_name
from ipusim.ipu.graph.node import Graph, Node, Output, Variable
from ipusim.ipu.graph.prices.nodes import FREE, work_of_node
from ipusim.ipu.graph.prices.observed import Observation, ObservedNode
from ipusim.ipu.graph.prices.rules import rule_of
from ipusim.ipu.graph.stage_passes import Constants


class GraphUpdate:
    """Applies accumulated gradients through the nodes of a traced update; a ``learning.JointOptimizer``.

    Attributes:
        slots: initial values of the optimizer's own variables, by shared name.
        owners: trained variable that a slot belongs to; update counters belong to the first trained variable.
    """

    gradient_map = None  # nodes of the update clip or map gradients

    def __init__(
        self,
        graph: Graph,
        update: Executable,
        trained_variables: Mapping[str, Array],
        slots: Mapping[str, Array],
        constants: Constants,
        rule: Any = None,
        averaging: Averaging | None = None,
    ) -> None:
        """Take the update and all variables in use.

        The update takes gradients in the order of ``trained_variables``.

        ``constants`` holds the tensors that the update reads but does not compute. If replicas average gradients,
        ``averaging`` splits the update in two parts: before the averaging and after it.

        The work per variable comes from the first of these that exists:

        - ``rule``;
        - the rule of the operations that update variables, if all have the same type;
        - all operations of the update.

        Operations without a rule on whole variables, such as clipping of gradients, are added in the second case.
        """
        self._update, self._trained_variables, self._constants = update, dict(trained_variables), constants
        self._averaging = averaging
        self.slots = dict(slots)
        self.owners = _owners(graph, update, trained_variables, slots)
        rules = {step.node.type: step_rule for step in update.steps if (step_rule := rule_of(step.node)) is not None}
        self._rule = rule or (next(iter(rules.values())) if len(rules) == 1 else None)
        self._works = {} if rule else self._works_of_nodes(graph)

    def initial_state(self, parameters: Mapping[str, Array]) -> dict[str, Array]:
        """Return the slots that belong to these variables, at initial values."""
        return {name: np.array(value) for name, value in self.slots.items() if self.owners[name] in parameters}

    def apply(self, parameters: Mapping[str, Array], gradients: Mapping[str, Array], state: dict[str, Array]) -> None:
        """Update the variables of a one-stage model."""
        self._apply([learning.StageUpdate(parameters, gradients, state)])

    def of_replica(self, update_values: Constants) -> GraphUpdate:
        """Return the update for one replica, with values from the replica's last stage."""
        result = copy(self)
        result._constants = ChainMap(dict[Output, Any](), update_values, self._constants)  # type: ignore[arg-type]
        return result

    def begin(self, stages: Sequence[learning.StageUpdate], replicated: bool) -> Callable[[], object]:
        """Return a function that updates the variables of all stages after gradient averaging.

        Replicas run the part of the update before averaging here. Without replicas or an averaging node, nothing runs
        yet.
        """
        averaging = self._averaging
        if not replicated or averaging is None:
            return lambda: self._apply(stages)
        gradients = {name: array for stage in stages for name, array in stage.gradients.items()}
        unaveraged_gradients = [gradients[name].copy() for name in self._trained_variables]
        results = self._run(averaging.gradient_part, stages, unaveraged_gradients)
        for name, value in zip(averaging.names, results, strict=True):
            gradients[name][...] = value
        return lambda: self._run(
            averaging.update_part, stages, [*(gradients[name] for name in averaging.names), *unaveraged_gradients]
        )

    def work(self, parameter_count: int, itemsize: int) -> Work:
        """Return the work for updating one variable."""
        node_work = self._works.get(parameter_count)
        if self._rule is None:
            return node_work or Work(itemsize=itemsize)
        work: Work = self._rule.work(parameter_count, itemsize)
        if node_work is None:
            return work
        return replace(
            work,
            vector=work.vector + node_work.vector,
            sram_bytes=work.sram_bytes + node_work.sram_bytes,
            compute_sets=work.compute_sets + node_work.compute_sets,
        )

    def state_bytes(self, parameter_count: int, itemsize: int) -> int:
        """Return the bytes of one variable's slots."""
        slot_sizes = [
            value.nbytes
            for name, value in self.slots.items()
            if value.size == self._trained_variables[self.owners[name]].size == parameter_count
        ]
        variable_count = sum(value.size == parameter_count for value in self._trained_variables.values())
        return sum(slot_sizes) // max(variable_count, 1)

    def _apply(self, stages: Sequence[learning.StageUpdate]) -> None:
        gradients = {name: array for stage in stages for name, array in stage.gradients.items()}
        self._run(self._update, stages, [gradients[name] for name in self._trained_variables])

    def _run(self, part: Executable, stages: Sequence[learning.StageUpdate], fed: Sequence[Array]) -> list[Any]:
        """Run a part of the update on all stages' variables, in place."""
        arrays: dict[str, Array] = {}
        for stage in stages:
            arrays |= {**stage.parameters, **stage.state}
        state = functions.surroundings().untrained  # the last stage may read a shared update counter
        values = {} if state is None else {name: state.values[name] for name in arrays if name in state.values}
        variables = {name: Variable(name, values.get(name, array)) for name, array in arrays.items()}
        with np.errstate(all="ignore"):
            results = part.run(Invocation(variables), [*fed, *self._outer(part)])
        for name, variable in variables.items():
            if variable.assigned:
                arrays[name][...] = variable.value
                if state is not None and name in values:
                    state.write(name, variable.value)
        return results

    def _outer(self, part: Executable) -> list[Any]:
        """Return values of tensors from outside the step that a part of the update reads."""
        return [self._constants[tensor] for tensor in part.external]

    def _works_of_nodes(self, graph: Graph) -> dict[int, Work]:
        """Return the work of the operations without a rule, by a variable's element count.

        If a rule gives the main work, operations on single numbers, such as learning rates, are ignored.
        """
        min_size = 1 if self._rule is None else 2
        if self._rule is not None and not any(_may_work(graph, step.node) for step in self._update.steps):
            return {}
        observation = Observation(graph)
        observed = self._update.observed_by(observation)
        variables = {
            name: Variable(name, np.array(value)) for name, value in {**self._trained_variables, **self.slots}.items()
        }
        with np.errstate(all="ignore"):
            zeros = [np.zeros_like(value) for value in self._trained_variables.values()]
            observed.run(Invocation(variables), [*zeros, *self._outer(self._update)])
        works: dict[int, list[Work]] = {}
        for entry in observation.nodes:
            work = None if self._rule and rule_of(entry.node) else work_of_node(entry)
            if work is not None and _size(entry) >= min_size:
                works.setdefault(_size(entry), []).append(work)
        sizes = Counter(value.size for value in self._trained_variables.values())
        return {
            size: _join_works(works[size], variable_count) for size, variable_count in sizes.items() if size in works
        }


def _may_work(graph: Graph, node: Node) -> bool:
    """Tell whether a node without a rule may compute on more than single numbers, by type and static shapes."""
    if node.type in FREE or rule_of(node) is not None:
        return False
    producers = ((graph.nodes[tensor.node], tensor.number) for tensor in node.inputs if tensor.node in graph.nodes)
    shapes = [producer.output_shapes[number] for producer, number in producers if producer.type != "VarHandleOp"]
    return any(shape != () for shape in (*shapes, *node.output_shapes))


def _size(entry: ObservedNode) -> int:
    return max((form.size for form in (*entry.inputs, *entry.outputs)), default=0)


def _join_works(works: Sequence[Work], variable_count: int) -> Work:
    """Add up works; return a variable's share if ``variable_count`` variables have equal sizes."""
    vector = sum((work.vector for work in works), VectorWork())
    counts = vector.elementwise, vector.reductions, vector.quotients, vector.transcendentals
    share = VectorWork(*(count // variable_count for count in counts))
    sram_bytes = sum(work.sram_bytes for work in works) // variable_count
    return Work(
        vector=share,
        sram_bytes=sram_bytes,
        compute_sets=max(sum(work.compute_sets for work in works) // variable_count, 1),
    )


def _owners(
    graph: Graph, update: Executable, trained_variables: Mapping[str, Array], slots: Mapping[str, Array]
) -> dict[str, str]:
    """Return the trained variable that each slot belongs to.

    The same operation updates slot and variable. Otherwise the slot's name contains the variable's name, or the slot
    belongs to the first trained variable.
    """
    owners: dict[str, str] = {}
    for step in update.steps:
        handles = [graph.nodes[tensor.node] for tensor in step.node.inputs if tensor.node in graph.nodes]
        names = [shared_name(node) for node in handles if node.type == "VarHandleOp"]
        trained_names = [name for name in names if name in trained_variables]
        if len(trained_names) == 1:
            owners |= {name: trained_names[0] for name in names if name in slots}
    for name in slots:
        candidates = [
            variable for variable in trained_variables if name.startswith(variable) or f"/{variable}/" in f"/{name}/"
        ]
        owners.setdefault(name, max(candidates, key=len) if candidates else next(iter(trained_variables)))
    return owners
