"""Trace a model's step, separating tape gradients and the optimizer's update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ipusim.ipu.graph.cut import FEED, Kind
from ipusim.ipu.graph.needed import runs_for_effect
from ipusim.ipu.graph.node import Graph
from ipusim.ipu.graph.split import LISTS
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.graph.traced_step import TracedStep
from ipusim.ipu.graph.tracing import StepTracer
from ipusim.ipu.runtime.context import replaced
from ipusim.ipu.traced.keras.captures import Captures

tf = load()


class ModelTracer(StepTracer):
    """Traces a step in a function's graph.

    Attributes:
        updates: number of ``apply_gradients`` calls so far.
    """

    def __init__(self, captures: Captures) -> None:
        """Begin in TensorFlow's default graph; ``captures`` names the variables."""
        super().__init__()
        self._captures, self.updates = captures, 0

    def name_of(self, variable: Any) -> str:
        """Return a variable's name in the nodes."""
        return self._captures.name_of(variable.handle, variable.name)

    def read(self) -> Graph:
        """Return the graph as plain values."""
        return self._captures.read(self.graph)

    @contextmanager
    def taking_gradients(self) -> Iterator[None]:
        """Record nodes written by tapes in the block as gradient nodes."""
        original = tf.GradientTape.gradient

        def gradient(*arguments: Any, **keywords: Any) -> Any:
            with self._new_names() as names:
                gradients = original(*arguments, **keywords)
            self._gradient_nodes += names
            return gradients

        with replaced(tf.GradientTape, gradient=gradient):
            yield

    @contextmanager
    def updating(self, optimizer: Any) -> Iterator[None]:
        """Let an optimizer update variables from accumulated gradients, separately from the backward pass."""
        apply: Callable[..., Any] = optimizer.apply_gradients

        def apply_gradients(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
            self.updates += 1
            pairs = self.gradients(lambda: list(grads_and_vars))
            return self.update(lambda accumulated: apply(accumulated, *args, **kwargs), pairs)

        optimizer.__dict__["apply_gradients"] = apply_gradients
        try:
            yield
        finally:
            del optimizer.__dict__["apply_gradients"]

    def training_step(self, results: Any) -> TracedStep | None:
        """Read the graph of a training.

        Args:
            results: tensors sent by the last stage.

        Returns:
            The step. None if forward pass, gradients and a single weight update cannot be separated: with two updates,
            with results or effects that depend on gradients, and with variables used after their update.
        """
        step = self.step(results)
        if self.updates != 1:
            return None
        nodes, owners = step.graph.nodes, dict(step.trace.owners)
        gradients = {name for name in step.trace.gradient_nodes if nodes[name].type not in LISTS}
        later_names: list[str] = []
        handles: set[Any] = set()
        update = set(step.update_nodes)
        for name, node in nodes.items():
            if name in update:
                if runs_for_effect(node):
                    handles.update(tensor for tensor in node.inputs if nodes[tensor.node].type == "VarHandleOp")
            elif owners.get(name, FEED).kind is Kind.FORWARD:
                if handles.intersection(node.inputs) or any(tensor.node in update for tensor in node.inputs):
                    return None
                if any(tensor.node in gradients for tensor in node.inputs):
                    if runs_for_effect(node):
                        return None
                    gradients.add(name)
                    later_names.append(name)
                    del owners[name]
        if any(tensor.node in gradients for tensor in step.trace.results):
            return None
        trace = replace(step.trace, owners=owners, gradient_nodes=(*step.trace.gradient_nodes, *later_names))
        return replace(step, trace=trace)
