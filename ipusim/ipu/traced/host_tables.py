"""Keep tables of rows in host memory; stages look up rows, and send gradients of rows back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from ipusim.api import Array, functions, models
from ipusim.base.errors import ProgramError, ProgramStateError
from ipusim.ipu.graph.executable import Invocation
from ipusim.ipu.graph.node import Graph, Variable
from ipusim.ipu.graph.own_nodes import add_node
from ipusim.ipu.graph.registry import Entry, value_of
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.graph.tracing import variable_name
from ipusim.ipu.runtime.host_block import check_on_ipu

tf = load()


class Rule(Protocol):
    """Learning rule of a table.

    Attributes:
        mini_batches: mini-batches per table update; their gradients are summed.
    """

    mini_batches: int

    def get_learning_rate(self) -> float:
        """Return the step size."""


@dataclass(eq=False)
class _State:
    """A table's state in a session.

    Attributes:
        values: current rows.
        variable: variable during the current program run, for the assignment after an update.
        sums: gradients not applied yet.
        gradient_rows: row numbers with gradients in ``sums``.
        complete_count: number of complete mini-batches in ``sums``.
        looked_up: rows whose gradients have not yet arrived, by micro-batch and look-up.
    """

    values: Array
    variable: Variable
    sums: Array
    gradient_rows: list[Array] = field(default_factory=list)
    complete_count: int = 0
    looked_up: dict[tuple[int, ...], dict[int, Array]] = field(default_factory=dict)


class HostTable:
    """A table of rows in host memory.

    Attributes:
        variable: TensorFlow variable holding the rows.
        registered: number of open ``register`` blocks; programs may use the table only inside such a block.
    """

    def __init__(self, variable: Any, rule: Rule | None, name: str) -> None:
        """Take the variable and the learning rule; a table without a rule does not learn."""
        self.variable, self.registered, self._rule, self._name = variable, 0, rule, name
        self._states: WeakKeyDictionary[Any, _State] = WeakKeyDictionary()
        self._state: _State | None = None
        self._look_up_numbers = count()
        #: Empty variable as an input of look-ups: TensorFlow then writes the node for the rows' gradients.
        self._gradient_carrier = None if rule is None else _empty_variable(f"{name}/host")

    @property
    def shared_name(self) -> str:
        """Variable's name in the nodes."""
        return variable_name(self.variable)

    def connect(self, session: Any, variable: Variable) -> None:
        """Start from the variable's value in a session."""
        values = np.array(variable.value) if self._rule is not None else np.asarray(variable.value)
        state = self._states.get(session)
        if state is None:
            state = self._states[session] = _State(values, variable, np.zeros_like(values[:0]))
        state.values, state.variable = values, variable
        state.looked_up.clear()
        self._state = state

    def look_up(self, ids: Any, *, clip: bool) -> Any:
        """Add a look-up node returning rows, (*ids.shape, width), and a node for the rows' gradients.

        Args:
            ids: integers.
            clip: whether to clip numbers out of range; otherwise such numbers raise ProgramError.
        """
        advice = "its rows come to the IPU, so look them up outside of the scope"
        check_on_ipu(operation=f"table {self._name!r} is looked up", advice=advice)
        number, width = next(self._look_up_numbers), int(self.variable.shape[1])
        form = (self.variable.dtype.base_dtype, [*ids.shape.as_list(), width])

        def take_rows(invocation: Invocation, ids: Array, *_: Any) -> Array:
            rows = self._in_range(np.asarray(ids), clip=clip)
            return self._rows(rows, (*invocation.key, number))

        def take_gradients(invocation: Invocation, ids: Array, upstream: Array) -> Array:
            rows = self._in_range(np.asarray(ids), clip=clip)
            self._add_gradients(rows, np.asarray(upstream), (*invocation.key, number))
            return np.zeros(0, np.float32)

        forward = Entry(lambda _: take_rows, invoked=True, value=self)
        backward = Entry(lambda _: take_gradients, invoked=True, value=self)
        if self._gradient_carrier is None:
            return tf.stop_gradient(add_node(forward, [ids], [form], "host_rows")[0])

        def call(ids: Any, carrier: Any) -> Any:
            (rows,) = add_node(forward, [ids, carrier], [form], "host_rows")

            def pull_back(upstream: Any) -> Any:
                inputs = [ids, tf.convert_to_tensor(upstream)]
                return None, add_node(backward, inputs, [(tf.float32, [0])], "host_rows_grad")[0]

            return rows, pull_back

        return tf.custom_gradient(call)(ids, self._gradient_carrier.read_value())

    def _in_range(self, ids: Array, *, clip: bool) -> Array:
        """Return row numbers clipped to the table's range, or check the range."""
        row_count = int(self.variable.shape[0])
        if clip:
            return np.clip(ids, 0, row_count - 1)
        check_ids(self._name, row_count, ids)
        return ids

    def _rows(self, ids: Array, key: tuple[int, ...]) -> Array:
        """Return rows; a recomputed look-up of a micro-batch returns the rows of the first look-up."""
        look_ups = functions.surroundings().look_ups
        if look_ups is not None:
            dtype = self.variable.dtype.as_numpy_dtype
            rows = np.zeros((*ids.shape, int(self.variable.shape[1])), dtype)
            gradients = 0 if self._rule is None else rows.nbytes
            look_ups.append(models.TableBytes(ids.size * models.ID_BYTES, rows.nbytes, gradients))
            return rows
        state = self._connected()
        *micro_batch, look_up = key
        if len(micro_batch) < 2 or self._rule is None:  # inference
            return state.values.take(ids, axis=0)
        if not self.registered:
            raise ProgramStateError(
                f"HostEmbedding {self._name!r}: expected the program to run inside `with embedding.register(session):`"
            )
        rows_of_look_ups = state.looked_up.setdefault(tuple(micro_batch), {})
        if look_up not in rows_of_look_ups:
            rows_of_look_ups[look_up] = state.values.take(ids, axis=0)
        return rows_of_look_ups[look_up]

    def _add_gradients(self, ids: Array, gradients: Array, key: tuple[int, ...]) -> None:
        """Add gradients to the sums; update the table when enough micro-batches are complete."""
        if functions.surroundings().look_ups is not None:
            return
        assert self._rule is not None
        state, (*micro_batch, look_up) = self._connected(), key
        if not len(state.sums):
            state.sums = np.zeros_like(state.values)
        np.add.at(state.sums, ids.reshape(-1), gradients.reshape(-1, state.values.shape[1]))
        state.gradient_rows.append(ids.reshape(-1))
        open_look_ups = state.looked_up.get(tuple(micro_batch), {})
        open_look_ups.pop(look_up, None)
        if open_look_ups:
            return
        state.looked_up.pop(tuple(micro_batch), None)
        state.complete_count += 1
        if state.complete_count == self._rule.mini_batches:
            rows = np.unique(np.concatenate(state.gradient_rows))
            state.values[rows] -= state.values.dtype.type(self._rule.get_learning_rate()) * state.sums[rows]
            state.sums[rows] = 0
            state.complete_count = 0
            state.gradient_rows.clear()
            state.variable.assign(state.values)

    def _connected(self) -> _State:
        assert self._state is not None
        return self._state


def check_ids(name: str, row_count: int, ids: Array) -> None:
    """Raise ProgramError for row numbers outside the table."""
    if ids.size and (ids.min() < 0 or ids.max() >= row_count):
        wrong = int(ids.min() if ids.min() < 0 else ids.max())
        raise ProgramError(
            f"indices: expected numbers from 0 to {row_count - 1}, the rows of the table {name!r}, got {wrong}"
        )


def tables_of(graph: Graph, names: Iterable[str] | None = None) -> list[HostTable]:
    """Return the tables looked up by nodes, including bodies of called functions.

    Args:
        graph: the graph.
        names: names of the nodes, by default all nodes.
    """
    nodes_called = graph.nodes.values() if names is None else (graph.nodes[name] for name in names)
    inner = (node for body in graph.functions.values() for node in body.nodes.values())
    values = (value_of(node, HostTable) for nodes in (nodes_called, inner) for node in nodes if node.type == "PyFunc")
    return list(dict.fromkeys(filter(None, values)))


def _empty_variable(name: str) -> Any:
    """Return a trainable variable without elements."""
    if tf.executing_eagerly():
        return tf.Variable(tf.zeros([0]), name=name)
    return tf.compat.v1.Variable(tf.zeros([0]), name=name, use_resource=True)
