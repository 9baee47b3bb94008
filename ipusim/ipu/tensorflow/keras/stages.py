"""A Keras model as the functions that a pipeline or a loop runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ipusim.ipu.each_loss import concrete
from ipusim.ipu.structures import leaves
from ipusim.ipu.tensorflow.keras.data import Element
from ipusim.ipu.tensorflow.keras.graph import Graph
from ipusim.ipu.tensorflow.keras.objective import Objective
from ipusim.ipu.tensorflow.keras.symbolic import Node, tensors


class Computing(Protocol):
    """A model, as its task knows it."""

    @property
    def graph(self) -> Graph | None:
        """Its calls, where they are known."""
        ...

    def output_names_of(self, outputs: Any) -> tuple[str, ...]:
        """Return the names of outputs."""
        ...

    def __call__(self, inputs: Any, training: bool | None = None) -> Any:
        """Return what it gives."""
        ...


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be computed of each batch.

    Attributes:
        model: with which.
        element: what a batch consists of.
        objective: the losses and metrics; None where the outputs themselves are wanted.
        training: whether it trains.
    """

    model: Computing
    element: Element
    objective: Objective | None
    training: bool

    def body(self, *arrays: Any) -> list[Any]:
        """Return what a batch's arrays give: the loss and statistics, or the outputs."""
        x, y, weights = self.element.unpack(arrays)
        return self.result(self.model(x, training=self.training), y, weights)

    def result(self, outputs: Any, y: Any, weights: Any) -> list[Any]:
        """Return what outputs give, with labels and weights."""
        if self.objective is None:
            return [concrete(each) for each in leaves(outputs)]
        names = self.model.output_names_of(outputs)
        return self.objective.terms(names, y, in_order(outputs), weights)


def stages(task: Task, graph: Graph, stage_of: Sequence[int]) -> list[Callable[..., Any]]:
    """Return the function of each stage, where ``stage_of`` has that of each call of the graph.

    What later stages need of tensors goes from stage to stage, and behind it labels and weights.
    """
    count = max(stage_of, default=0) + 1
    of = [[node for node, at in zip(graph.nodes, stage_of, strict=True) if at == stage] for stage in range(count)]
    travels = [_alive(graph, of, stage) for stage in range(count)]
    parts = task.element.y, task.element.sample_weight
    beside = [place for part in parts if part is not None for place in leaves(part)]
    return [_Stage(task, graph, of, travels, beside, stage) for stage in range(count)]


class _Stage:
    """The function of one stage."""

    def __init__(
        self,
        task: Task,
        graph: Graph,
        of: list[list[Node]],
        travels: list[list[int]],
        beside: list[int],
        stage: int,
    ) -> None:
        self._task, self._graph, self._nodes = task, graph, of[stage]
        self._takes, self._gives = travels[stage - 1] if stage else None, travels[stage]
        self._beside, self._is_last = beside, stage == len(of) - 1

    def __call__(self, *arrays: Any) -> Any:
        task, graph = self._task, self._graph
        if self._takes is None:
            x, _, _ = task.element.unpack(arrays)
            values, beside = graph.given(x), [arrays[place] for place in self._beside]
        else:
            count = len(self._takes)
            values, beside = dict(zip(self._takes, arrays[:count], strict=True)), list(arrays[count:])
        graph.run(values, self._nodes, task.training)
        if not self._is_last:
            return (*(concrete(values[each]) for each in self._gives), *beside)
        _, y, weights = replace(task.element, x=None).unpack(dict(zip(self._beside, beside, strict=True)))
        return task.result(graph.result(values), y, weights)


def _alive(graph: Graph, of: list[list[Node]], stage: int) -> list[int]:
    """Return the tensors that are there after a stage and needed by later ones, in the order in which they came."""
    there = [id(each) for each in tensors(graph.inputs)]
    there += [id(each) for nodes in of[: stage + 1] for node in nodes for each in tensors(node.outputs)]
    needed = {id(each) for each in tensors(graph.outputs)}
    needed |= {id(each) for nodes in of[stage + 1 :] for node in nodes for each in node.inputs}
    return [each for each in dict.fromkeys(there) if each in needed]


def in_order(outputs: Any) -> Any:
    """Return outputs in a list, where they are by names."""
    return list(outputs.values()) if isinstance(outputs, dict) else outputs
