"""Run TensorFlow 2 functions on simulated IPUs, traced by ``tf.function``, for a strategy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ipusim.base.errors import EndOfDataError
from ipusim.ipu.graph.executable import Executable, Invocation
from ipusim.ipu.graph.needed import runs_for_effect
from ipusim.ipu.graph.node import Node, Variable
from ipusim.ipu.graph.reading import assign_handle, handle_name, is_variable_handle, read_graph, read_handle
from ipusim.ipu.graph.registry import Kernel, register
from ipusim.ipu.graph.tape import note_origins
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.traced.function_loops import next_element, place_loops
from ipusim.ipu.traced.host_tables import tables_of
from ipusim.ipu.traced.pipelines import CLAIMED
from ipusim.ipu.traced.sessions import EAGER, LOCK

tf = load()

#: Programs by concrete function.
_PROGRAMS: WeakKeyDictionary[Any, ConcreteProgram] = WeakKeyDictionary()
#: Traced functions of plain Python functions.
_FUNCTIONS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def run_function(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Callable[[], Mapping[str, Any]],
) -> Any:
    """Run a function on simulated IPUs, like a strategy.

    Args:
        function: a function of tensors, plain or from ``tf.function``.
        args, kwargs: arguments of the function.
        options: returns the options of the device that runs loops, keyed like a scenario.

    Returns:
        Results of the function as host tensors.

    Raises:
        OutOfRangeError: if the function reads a data set past its end (TensorFlow's error).
    """
    note_origins()
    tensorflow_function = function if hasattr(function, "get_concrete_function") else _FUNCTIONS.get(function)
    if tensorflow_function is None:
        tensorflow_function = _FUNCTIONS[function] = tf.function(function)
    concrete = tensorflow_function.get_concrete_function(*args, **kwargs)
    if concrete not in _PROGRAMS:
        _PROGRAMS[concrete] = ConcreteProgram(concrete, options)
    return _PROGRAMS[concrete].run(args, kwargs)


class ConcreteProgram:
    """Nodes of a concrete function as a program.

    Attributes:
        graph: the nodes.
    """

    def __init__(self, concrete: Any, options: Callable[[], Mapping[str, Any]]) -> None:
        """Read the function's graph, and replace loops by programs for the device ``options``."""
        graph = concrete.graph
        nodes = self.graph = place_loops(read_graph(graph), options, concrete)
        claimed = CLAIMED.get(graph, set())
        part = nodes.nodes.keys() - claimed
        effects = [name for name in nodes.nodes if name in part and runs_for_effect(nodes.nodes[name])]
        feeds = [tensor for tensor in nodes.inputs if nodes.nodes[tensor.node].type != "VarHandleOp"]
        self._argument_count = len(graph.inputs) - len(graph.captures)
        self._captured = [outside for outside, _ in graph.captures if not self._is_variable(outside)]
        self._handles = {handle_name(outside): outside for outside, _ in graph.captures if self._is_variable(outside)}
        self._run = Executable(nodes, feeds, nodes.outputs, effects, part).run
        self._structure = graph.structured_outputs
        self._tables = tables_of(nodes)

    @staticmethod
    def _is_variable(tensor: Any) -> bool:
        return tensor.dtype == tf.resource and is_variable_handle(tensor)

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run all nodes on argument values, and assign changed variables."""
        leaves = tf.nest.flatten((args, kwargs), expand_composites=True)
        arrays = [tf.constant(leaf) if isinstance(leaf, np.ndarray | np.generic) else leaf for leaf in leaves]
        argument_tensors = [
            leaf for leaf in arrays if tf.is_tensor(leaf)
        ]  # Python numbers are constants of the function
        values = [self._value(tensor) for tensor in (*argument_tensors[: self._argument_count], *self._captured)]
        with LOCK, np.errstate(all="ignore"):
            variables = {name: Variable(name, read_handle(handle)) for name, handle in self._handles.items()}
            tables = [(table, Variable("", table.variable.numpy())) for table in self._tables]
            for table, variable in tables:
                table.connect(EAGER, variable)
            try:
                outputs = self._run(Invocation(variables, session=EAGER), values)
            except EndOfDataError:
                raise tf.errors.OutOfRangeError(None, None, "End of sequence") from None
            for name, variable in variables.items():
                if variable.assigned:
                    assign_handle(self._handles[name], variable.value)
            for table, variable in tables:
                if variable.assigned:
                    table.variable.assign(variable.value)
        tensors = iter([tf.constant(np.asarray(value)) for value in outputs])
        return tf.nest.map_structure(
            lambda leaf: next(tensors) if tf.is_tensor(leaf) else leaf, self._structure, expand_composites=True
        )

    @staticmethod
    def _value(tensor: Any) -> Any:
        """Return a tensor as an array; iterators stay unchanged."""
        return tensor if tensor.dtype in (tf.resource, tf.variant) else tf.convert_to_tensor(tensor).numpy()


@register("IteratorGetNext", effect=True)
def _next_element(node: Node) -> Kernel:
    """Take the next element of a host iterator."""
    return lambda iterator: tuple(next_element(iterator, node))
