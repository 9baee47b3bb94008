"""Record the pass of every node while TensorFlow traces a program into a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ipusim.ipu.graph.cut import FEED, Kind, Role, Trace
from ipusim.ipu.graph.node import Graph
from ipusim.ipu.graph.reading import handle_name, output_of, read_graph
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.graph.traced_step import TracedStep, handed_to_update

tf = load()


class StepTracer:
    """Traces one training step or inference step into TensorFlow's current graph.

    Attributes:
        graph: TensorFlow's graph.

    Example:
        The optimizer's functions are called, and write gradients and update as nodes of the graph::

            tracer = StepTracer()
            with tracer.feed():
                images, labels = queue._dequeue()
            for function in stages:
                values = tracer.stage(function, values)
            pairs = tracer.gradients(lambda: optimizer.compute_gradients(loss))
            tracer.update(lambda accumulated: optimizer.apply_gradients(accumulated), pairs)
            step = tracer.step([loss])
    """

    def __init__(self) -> None:
        """Begin to record in TensorFlow's default graph."""
        self.graph = tf.compat.v1.get_default_graph()
        self._roles: dict[str, Role] = {}
        self._gradient_nodes: list[str] = []
        self._gradients: dict[str, Any] = {}
        self._accumulators: dict[str, Any] = {}
        self._update_nodes: list[str] = []
        self._names_so_far: set[str] = set()
        self._stages = 0
        self._parts: tuple[int, ...] = ()

    @contextmanager
    def feed(self) -> Iterator[None]:
        """Assign the block's new nodes to the feed."""
        with self._new_names() as new_names:
            yield
        self._roles.update(dict.fromkeys(new_names, FEED))

    @contextmanager
    def of_stage(self, number: int) -> Iterator[None]:
        """Assign nodes written in the block to the forward pass of a stage."""
        with self._new_names() as new_names:
            yield
        self._roles.update(dict.fromkeys(new_names, Role(Kind.FORWARD, number)))
        self._stages = max(self._stages, number + 1)

    def stage(
        self, function: Callable[..., Any], values: Sequence[Any], keywords: Mapping[str, Any] | None = None
    ) -> Any:
        """Trace the function of the next stage.

        Args:
            function: takes and returns tensors.
            values: tensors of the previous stage or the feed, possibly dictionaries of tensors.
            keywords: tensors by argument name.

        Returns:
            Results of the function.
        """
        number = self._stages
        with self.of_stage(number):

            def enter(value: Any) -> Any:
                return tf.identity(tf.convert_to_tensor(value), f"stage{number}_input")

            return function(*tf.nest.map_structure(enter, list(values)), **tf.nest.map_structure(enter, keywords or {}))

    def concurrent(self, parts: Sequence[int]) -> None:
        """Record the number of concurrent stages per position of the pipeline."""
        self._parts = tuple(parts) if max(parts) > 1 else ()

    def gradients(self, compute: Callable[[], Sequence[tuple[Any, Any]]]) -> list[tuple[Any, Any]]:
        """Trace gradients.

        Args:
            compute: returns pairs (gradient, variable), like an optimizer's ``compute_gradients``.

        Returns:
            Pairs with a gradient; gradients are dense tensors.
        """
        with self._new_names() as new_names:
            pairs = [
                (tf.convert_to_tensor(gradient), variable) for gradient, variable in compute() if gradient is not None
            ]
        self._gradient_nodes += new_names
        self._gradients.update({self.name_of(variable): gradient for gradient, variable in pairs})
        return pairs

    def update(
        self,
        apply: Callable[[list[tuple[Any, Any]]], Any],
        pairs: Sequence[tuple[Any, Any]],
        dtypes: Mapping[str, Any] | None = None,
    ) -> Any:
        """Trace the weight update.

        Args:
            apply: takes pairs (accumulated gradient, variable).
            pairs: gradients and variables.
            dtypes: dtypes of accumulated gradients by variable name; by default the gradient's dtype.

        Returns:
            Result of ``apply``.
        """
        with self._new_names() as new_names:
            accumulated = [
                (
                    tf.compat.v1.placeholder(
                        (dtypes or {}).get(self.name_of(variable), gradient.dtype), variable.shape
                    ),
                    variable,
                )
                for gradient, variable in pairs
            ]
            result = apply(accumulated)
        self._update_nodes += new_names
        self._accumulators.update({self.name_of(variable): tensor for tensor, variable in accumulated})
        return result

    def step(self, results: Sequence[Any]) -> TracedStep:
        """Read the graph.

        Args:
            results: tensors that the last stage returns or enqueues.

        Returns:
            The step as plain values.
        """
        graph = self.read()
        gradients = {name: output_of(tensor) for name, tensor in self._gradients.items()}
        outputs = tuple(output_of(tensor) for tensor in results)
        fed = {name: output_of(tensor) for name, tensor in self._accumulators.items()}
        update_inputs = handed_to_update(graph, self._roles, fed, self._update_nodes)
        trace = Trace(
            graph,
            self._roles,
            self._gradient_nodes,
            gradients,
            outputs,
            self._stages,
            parts=self._parts,
            update_inputs=update_inputs,
        )
        return TracedStep(trace, fed, tuple(self._update_nodes))

    def name_of(self, variable: Any) -> str:
        """Return a variable's name in the nodes."""
        return variable_name(variable)

    def read(self) -> Graph:
        """Return the graph as plain values."""
        return read_graph(self.graph)

    @contextmanager
    def _new_names(self) -> Iterator[list[str]]:
        """Collect names of nodes written in the block.

        Assignments of initial values are left out, and so are nodes that an inner block has recorded.
        """
        names: list[str] = []
        start = len(self.graph.get_operations())
        yield names
        known = initializers() | self._names_so_far
        names += [name for name in names_since(self.graph, start) if name not in known]
        self._names_so_far.update(names)


def names_since(graph: Any, start: int) -> list[str]:
    """Return names of a graph's operations from number ``start`` on, except placeholders that a session feeds."""
    return [operation.name for operation in graph.get_operations()[start:] if not is_fed_by_session(operation)]


def initializers() -> set[str]:
    """Return names of operations for initial values of variables, in the current graph."""
    variables = tf.compat.v1.global_variables() + tf.compat.v1.local_variables()
    operations = (getattr(variable, "initializer", None) for variable in variables)
    return {operation.name for operation in operations if operation is not None}


def is_fed_by_session(operation: Any) -> bool:
    """Tell whether an operation is a placeholder with a constant default, fed by a session.

    Inside a function nothing feeds the placeholder, which takes its default.
    """
    if operation.type != "PlaceholderWithDefault" or operation.graph.building_function:
        return False
    return bool(operation.inputs[0].op.type == "Const")


def variable_name(variable: Any) -> str:
    """Return a variable's name in the nodes."""
    return handle_name(variable.handle, variable.name)
