"""Compile a computation into one host operation, which runs nodes and programs on simulated IPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ipusim.api import Array
from ipusim.base.errors import EndOfDataError, IpusimError, ProgramError
from ipusim.ipu.graph.enqueued import EnqueueItem
from ipusim.ipu.graph.executable import Executable, Invocation, shared_name
from ipusim.ipu.graph.needed import runs_for_effect
from ipusim.ipu.graph.node import Graph, Variable
from ipusim.ipu.graph.reading import output_of, read_graph
from ipusim.ipu.graph.registry import entry_of, value_of
from ipusim.ipu.graph.tape import note_origins
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.graph.tracing import initializers, names_since, variable_name
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.devices import ONE_PIPELINE
from ipusim.ipu.traced.collectives import CollectiveMark
from ipusim.ipu.traced.device_program import DeviceProgram
from ipusim.ipu.traced.host_tables import tables_of
from ipusim.ipu.traced.loops import add_iteration
from ipusim.ipu.traced.pipelines import CLAIMED
from ipusim.ipu.traced.queues import Infeed
from ipusim.ipu.traced.sessions import FAILURES, LOCK, RunningSession, session_token

tf = load()


def compile_computation(
    computation: Callable[..., Any], inputs: Sequence[Any], options: Callable[[], Mapping[str, Any]]
) -> Any:
    """Trace a computation into TensorFlow's current graph, and add the operation that runs the computation.

    A computation with queues or collectives, but without loop or pipeline, becomes a loop of one iteration.

    Args:
        computation: takes and returns tensors; returned operations run too.
        inputs: arguments of the computation.
        options: returns the request options for a one-iteration loop; see :func:`~ipusim.ipu.traced.loops.add_loop`.

    Returns:
        Results as a list of tensors, or the operation if the computation returns no tensors.
    """
    note_origins()
    graph = tf.compat.v1.get_default_graph()
    start = len(graph.get_operations())
    scope = tf.compat.v1.get_variable_scope()
    with tf.compat.v1.variable_scope(scope, use_resource=True):
        outcome = computation(*inputs)
    tensors = [tf.convert_to_tensor(value) for value in checks.as_list(outcome) if not isinstance(value, tf.Operation)]
    if values := _values_of_iteration(graph, start):
        queue = add_iteration(
            start, tensors, options, next((value for value in values if isinstance(value, Infeed)), None)
        )
        operation = Computation(graph, start, []).results()
        if queue is None:
            return operation
        with tf.control_dependencies([operation]):
            return queue.dequeue()
    return Computation(graph, start, tensors).results()


def _values_of_iteration(graph: Any, start: int) -> list[Any]:
    """Return queues and collectives from operation ``start`` on; empty if operations contain a loop or pipeline."""
    nodes = read_graph(graph).nodes
    nodes_of_iteration = [nodes[node.name] for node in graph.get_operations()[start:]]
    values = [entry.value for node in nodes_of_iteration if (entry := entry_of(node)) is not None]
    if any(isinstance(value, DeviceProgram) for value in values):
        return []
    return [value for value in values if isinstance(value, EnqueueItem | Infeed | CollectiveMark)]


class Computation:
    """Nodes of a compiled computation, and the operation that runs the nodes."""

    def __init__(self, graph: Any, start: int, tensors: Sequence[Any]) -> None:
        """Read the nodes from operation ``start`` on; ``tensors`` are the computation's results.

        Raises:
            ProgramError: if the computation has several pipelines (Graphcore's message).
        """
        variables = tf.compat.v1.global_variables() + tf.compat.v1.local_variables()
        self._tensors, self._nodes = list(tensors), read_graph(graph)
        part = set(names_since(graph, start)) - CLAIMED.get(graph, set()) - initializers()
        effects = [name for name, node in self._nodes.nodes.items() if name in part and runs_for_effect(node)]
        fetches = [output_of(tensor) for tensor in tensors]
        self._executable = Executable(self._nodes, [], fetches, effects, part)
        self._inputs = [
            graph.get_tensor_by_name(f"{tensor.node}:{tensor.number}") for tensor in self._executable.external
        ]
        programs = [item for step in self._executable.steps if (item := value_of(step.node, DeviceProgram))]
        if sum(program.pipelined for program in programs) > 1:
            raise ProgramError(ONE_PIPELINE)
        self._tables = tables_of(self._nodes, [node.name for node in graph.get_operations()[start:]])
        tables = (table.shared_name for table in self._tables)
        names = {
            *tables,
            *self._executable.variables,
            *(name for program in programs for name in _variables_of(program)),
        }
        self._variables = [variable for variable in variables if variable_name(variable) in names]
        self._reads = [variable.read_value() for variable in self._variables]
        self._placeholders = [tf.compat.v1.placeholder(variable.dtype, variable.shape) for variable in self._variables]
        self._assigns = [
            variable.assign(value, read_value=False)
            for variable, value in zip(self._variables, self._placeholders, strict=True)
        ]

    def results(self) -> Any:
        """Add the operation; return the results, or the operation if no results exist."""
        dtypes = [tensor.dtype for tensor in self._tensors]
        outputs = tf.numpy_function(self._run, [session_token(), *self._inputs], dtypes or tf.int32)
        if not dtypes:
            return outputs.op
        results = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
        for tensor, source in zip(results, self._tensors, strict=True):
            tensor.set_shape(source.shape)
        return results

    def _run(self, token: Any, *values: Any) -> Any:
        """Run the nodes in a copy of the caller's context (``contextvars``).

        ``token`` is the number of the session's run, which the caller began.
        """
        host = RunningSession(int(token))
        return host.context.copy().run(self._run_in, host, values)

    def _run_in(self, host: RunningSession, values: Sequence[Any]) -> Any:
        """Read variables, run the nodes, and assign changed variables."""
        with LOCK, np.errstate(all="ignore"):
            read = host.run(self._reads)
            variables = {
                variable_name(variable): Variable(variable_name(variable), np.asarray(value))
                for variable, value in zip(self._variables, read, strict=True)
            }
            for table in self._tables:
                table.connect(host.session, variables[table.shared_name])
            try:
                outputs = self._executable.run(Invocation(variables, session=host), values)
            except EndOfDataError:
                raise StopIteration from None  # becomes TensorFlow's OutOfRangeError
            except IpusimError as error:
                FAILURES[host.session] = error
                raise
            self._assign(host, variables)
        results: list[Array] = [np.asarray(value) for value in outputs]
        return results if results else np.int32(0)

    def _assign(self, host: RunningSession, variables: dict[str, Variable]) -> None:
        """Assign changed values to TensorFlow's variables inside the session's run."""
        changes = [
            (assign, placeholder, variables[variable_name(variable)].value)
            for variable, assign, placeholder in zip(self._variables, self._assigns, self._placeholders, strict=True)
            if variables[variable_name(variable)].assigned
        ]
        if changes:
            host.run([assign for assign, _, _ in changes], {placeholder: value for _, placeholder, value in changes})


def _variables_of(program: DeviceProgram) -> set[str]:
    """Return shared names of all variables used by a program."""
    graph: Graph = program.step.graph
    nodes = {*program.step.trace.owners, *program.step.trace.gradient_nodes, *program.step.update_nodes}
    return {
        shared_name(graph.nodes[tensor.node])
        for name in nodes
        if name in graph.nodes
        for tensor in graph.nodes[name].inputs
        if tensor.node in graph.nodes and graph.nodes[tensor.node].type == "VarHandleOp"
    }
