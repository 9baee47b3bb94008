"""Graphcore's ``embedding_ops``: look-ups in tables on the IPU, and in those on the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from ipusim.api import Array, functions, layers
from ipusim.base.errors import ProgramError, ProgramStateError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.array_operations import SerializedLookup
from ipusim.ipu.runtime.host import Operation, Running
from ipusim.ipu.runtime.initializers import initial_value
from ipusim.ipu.runtime.names import unique
from ipusim.ipu.runtime.program_state import add
from ipusim.ipu.runtime.variable import NamedVariable
from ipusim.ipu.tensorflow import nn
from ipusim.ipu.tensorflow.array_functions import tensor


def embedding_lookup(params: Any, ids: Any, name: str | None = None, serialization_factor: int = 1) -> Any:
    """Return the rows of a table by whole numbers, looked up in as many parts of it one after another.

    Raises ProgramError for parts that do not divide its rows, ModelError for ids that it does not have.
    """
    table, parts = tensor(params), checks.whole("serialization_factor", serialization_factor, 1)
    if parts == 1:
        return nn.embedding_lookup(table, ids)
    if table.ndim != 2 or table.shape[0] % parts:
        checks.wrong_value("serialization_factor", f"a divisor of the rows of a table {table.shape}", parts)
    return functions.operate(SerializedLookup(parts), table, tensor(ids))[0]


_STRATEGIES: Final = ("TOKEN", "ENCODING")


class HostEmbeddingOptimizerSpec:
    """SGD, by the gradients of each mini-batch as they come, for a table on the host.

    Args:
        learning_rate: its step size.
        optimizer_name: without effect.

    Attributes:
        mini_batches: those whose gradients are added up before the table changes.
    """

    mini_batches: int = 1

    def __init__(self, learning_rate: float, optimizer_name: str | None = None) -> None:
        """Take the learning rate; raises ProgramTypeError for what is no number."""
        if isinstance(learning_rate, bool) or np.ndim(checks.numbers("learning_rate", learning_rate)):
            checks.wrong_type("learning_rate", "a number", learning_rate)
        self._learning_rate = float(learning_rate)

    def get_learning_rate(self) -> float:
        """Return the step size."""
        return self._learning_rate

    def create_slot_variables(self, embedding_tensor: Any, name: str) -> list[Any]:
        """Return none: SGD keeps nothing.

        ``embedding_tensor`` has no effect.
        """
        return []

    def create_register_instruction(self, embedding_tensor: Any, slot_vars: Sequence[Any], name: str) -> Operation:
        """Return the operation that connects a table with the IPUs.

        ``slot_vars`` has no effect: SGD keeps nothing beside a table.
        """
        return Operation(f"{name}/register", lambda _: _set_registered(embedding_tensor, self, True))

    def create_deregister_instruction(self, embedding_tensor: Any, slot_vars: Sequence[Any], name: str) -> Operation:
        """Return the operation that ends that.

        ``slot_vars`` has no effect: SGD keeps nothing beside a table.
        """
        return Operation(f"{name}/deregister", lambda _: _set_registered(embedding_tensor, self, False))

    def create_lookup_instruction(
        self, embedding_tensor: Any, indices: Any, slot_vars: Sequence[Any], partition_strategy: str, name: str
    ) -> Any:
        """Return rows of a table, in a stage; raises as :meth:`HostEmbedding.lookup` does.

        ``slot_vars`` and ``partition_strategy`` have no effect: SGD keeps nothing beside a table, which is in one
        piece.
        """
        return _table(embedding_tensor, self).look_up(indices, clip=False)


class HostEmbeddingSGDGAOptimizerSpec(HostEmbeddingOptimizerSpec):
    """SGD by the sum of the gradients of several mini-batches.

    Args:
        learning_rate: its step size.
        accumulation_factor: mini-batches that are added up.
    """

    def __init__(self, learning_rate: float, accumulation_factor: int) -> None:
        """Take step size and number; raises ProgramError for a number below 1, ProgramTypeError for none."""
        super().__init__(learning_rate)
        self.mini_batches = checks.whole("accumulation_factor", accumulation_factor, 1)

    def get_accumulation_factor(self) -> int:
        """Return the mini-batches that are added up."""
        return self.mini_batches


class HostEmbedding:
    """An embedding on the host that IPUs look rows up in.

    Rows come over the host's streams before the stage's forward pass, and in training their gradients go back behind
    its backward pass. The host applies them at once, each micro-batch's for itself (or as the specification says), so
    that micro-batches that are on their way see the table as it is when they look it up.

    Args:
        name: of the embedding.
        embedding_tensor: the table of rank two, (tokens, encoding): an array or a variable.
        partition_strategy: TOKEN or ENCODING; without effect, as the table is the host's.
        optimizer_spec: how it learns; None for a table that does not.

    Raises ProgramError and ProgramTypeError for arguments of other forms.
    """

    def __init__(
        self,
        name: str,
        embedding_tensor: Any,
        partition_strategy: str = "TOKEN",
        optimizer_spec: HostEmbeddingOptimizerSpec | None = None,
    ) -> None:
        """Take the table."""
        self._name = checks.text("name", name)
        if partition_strategy not in _STRATEGIES:
            checks.wrong_value("partition_strategy", " or ".join(_STRATEGIES), partition_strategy)
        if optimizer_spec is not None and not isinstance(optimizer_spec, HostEmbeddingOptimizerSpec):
            checks.wrong_type("optimizer_spec", "a HostEmbeddingOptimizerSpec or None", optimizer_spec)
        self._variable: NamedVariable = embedding_tensor
        if not isinstance(embedding_tensor, NamedVariable):
            initial = checks.numbers("embedding_tensor", embedding_tensor)
            self._variable = NamedVariable(self._name, np.array(initial), trainable=False)
            add(self._variable)
        if len(self._variable.shape) != 2 or self._variable.dtype.kind != "f":
            checks.wrong_value(
                "embedding_tensor",
                f"a table of numbers of rank two and not {self._variable.dtype} of shape {self._variable.shape}",
                name,
            )
        self._spec = optimizer_spec

    def get_embedding_tensor(self) -> NamedVariable:
        """Return the table as a variable of the host: a session evaluates it, and so does ``numpy()``."""
        return self._variable

    def lookup(self, indices: Any, clip_indices: bool = True) -> Any:
        """Return rows in a stage, shape (*indices.shape, encoding).

        ``clip_indices`` brings what is out of range into it. Raises ProgramTypeError for indices that are no whole
        numbers, and ProgramError for those out of range, of which Graphcore leaves open what they give.
        """
        return _table(self._variable, self._spec).look_up(indices, checks.truth("clip_indices", clip_indices))

    @contextmanager
    def register(self, session: object = None) -> Iterator[HostEmbedding]:
        """Connect the table with the IPUs in the block, in which programs that look it up run.

        ``session`` has no effect: the table is the program's, in any session.
        """
        if (spec := self._spec) is None:
            yield self
            return
        slots = spec.create_slot_variables(self._variable, self._name)
        spec.create_register_instruction(self._variable, slots, self._name).evaluate(Running())
        try:
            yield self
        finally:
            spec.create_deregister_instruction(self._variable, slots, self._name).evaluate(Running())


def create_host_embedding(
    name: str,
    shape: Any,
    dtype: Any,
    partition_strategy: str = "TOKEN",
    optimizer_spec: HostEmbeddingOptimizerSpec | None = None,
    initializer: Any = None,
) -> HostEmbedding:
    """Return an embedding on the host with a new table of ``shape`` (tokens, encoding), drawn by its name.

    ``partition_strategy`` has no effect: the table is the host's, and in one piece.

    ``initializer`` is as that of ``tf.get_variable``. Raises as :class:`HostEmbedding` and get_variable do.
    """
    kind = checks.dtype("dtype", dtype, "f")
    return HostEmbedding(
        name, initial_value(checks.text("name", name), shape, kind, initializer), partition_strategy, optimizer_spec
    )


class _Table:
    """A table at work: its rows as they are, and the gradients that it has not applied.

    Attributes:
        name, learns: see :class:`ipusim.model.functions.host_rows.HostTable`.
        registered: whether programs may look it up.
    """

    def __init__(self, variable: NamedVariable, spec: HostEmbeddingOptimizerSpec | None) -> None:
        self.name, self.learns, self.registered = variable.name, spec is not None, 0
        self._variable, self._spec = variable, spec
        self._version, self._values = -1, variable.initial
        self._sums: Array | None = None
        self._touched: list[Array] = []
        self._complete = 0
        #: The rows that look-ups have given, by micro-batch and look-up, until their gradients come.
        self._looked_up: dict[layers.Key, dict[int, Array]] = {}

    def look_up(self, indices: Any, clip: bool) -> Any:
        """Return rows in a stage."""
        ids = np.asarray(indices)
        if ids.dtype.kind not in "iu":
            checks.wrong_type("indices", "whole numbers that depend on no variable", indices)
        tokens = self._variable.shape[0]
        if clip:
            ids = np.clip(ids, 0, tokens - 1)
        elif ids.size and (ids.min() < 0 or ids.max() >= tokens):
            wrong = int(ids.min() if ids.min() < 0 else ids.max())
            checks.wrong_value("indices", f"numbers from 0 to {tokens - 1}, as the table {self.name!r} has", wrong)
        return functions.look_up(self, ids, unique(self.name))

    def rows(self, ids: Array, key: layers.Key | None) -> Array:
        """Return rows; those of a look-up of a micro-batch again as they were."""
        if key is None or not self.learns:
            return self._now().take(ids, axis=0)
        if not self.registered:
            raise ProgramStateError(
                f"HostEmbedding {self.name!r}: expected the program to run inside `with embedding.register(session):`"
            )
        *micro_batch, which = key
        value = self._looked_up.setdefault(tuple(micro_batch), {})
        if which not in value:
            value[which] = self._now().take(ids, axis=0)
        return value[which]

    def learn(self, ids: Array, gradients: Array, key: layers.Key) -> None:
        """Add gradients up, and change the table when those of all look-ups of enough micro-batches are there."""
        assert self._spec is not None
        values, (*micro_batch, which) = self._now(), key
        if self._sums is None:
            self._sums = np.zeros_like(values)
        np.add.at(self._sums, ids.reshape(-1), np.asarray(gradients).reshape(-1, values.shape[1]))
        self._touched.append(ids.reshape(-1))
        value = self._looked_up.get(tuple(micro_batch), {})
        value.pop(which, None)
        if value:
            return
        self._looked_up.pop(tuple(micro_batch), None)
        self._complete += 1
        if self._complete == self._spec.mini_batches:
            rows = np.unique(np.concatenate(self._touched))
            values[rows] -= values.dtype.type(self._spec.get_learning_rate()) * self._sums[rows]
            self._sums[rows] = 0
            self._complete = 0
            self._touched.clear()
            self._version = self._variable.changed_by(self)

    def value_of(self, name: str) -> Array:
        """Return a copy of the table."""
        return self._values.copy()

    def _now(self) -> Array:
        if self._version != self._variable.version:
            self._values, self._version = self._variable.value_now(), self._variable.version
            self._sums, self._complete = None, 0
            self._touched.clear()
            self._looked_up.clear()
        return self._values


def _table(variable: NamedVariable, spec: HostEmbeddingOptimizerSpec | None) -> _Table:
    """Return the table of a variable that learns as ``spec`` says."""
    if not isinstance(variable, NamedVariable):
        raise ProgramError(f"embedding_tensor: expected the variable of a HostEmbedding, got {variable!r}")
    if id(spec) not in variable.tables:  # which keeps the specification, so that its number stays its own
        variable.tables[id(spec)] = _Table(variable, spec)
    result: _Table = variable.tables[id(spec)]
    return result


def _set_registered(variable: NamedVariable, spec: HostEmbeddingOptimizerSpec, now: bool) -> None:
    _table(variable, spec).registered += 1 if now else -1
