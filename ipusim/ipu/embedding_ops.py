"""Look up rows of tables on the IPU and on the host: Graphcore's ``embedding_ops``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.array_operations import SerializedLookup
from ipusim.ipu.traced.host_tables import HostTable, check_ids
from ipusim.ipu.traced.operations import operate

tf = load()
_V1: Final = tf.compat.v1
#: Graphcore's names for ways to divide a table.
_STRATEGIES: Final = ("TOKEN", "ENCODING")


def embedding_lookup(params: Any, ids: Any, name: str | None = None, serialization_factor: int = 1) -> Any:
    """Look up rows of a table in successive parts of the table.

    Args:
        params: table of shape (rows, ...).
        ids: row indices, whole numbers.
        name: name of the operation.
        serialization_factor: the table's number of parts.

    Raises:
        ProgramError: if the parts do not divide the rows (Graphcore's message).
        ModelError: if an id is out of range.
    """
    table, row_ids = tf.convert_to_tensor(params), tf.convert_to_tensor(ids)
    parts = checks.whole("serialization_factor", serialization_factor, 1)
    if not table.shape.rank:
        checks.wrong_value("params", "a table of rows", params)
    count, *row = table.shape.as_list()
    if count % parts:
        raise ProgramError(
            f"The serialization_factor ({parts}) must divide the size of the 0th dimension of params ({count})."
        )
    matrix, shape = tf.reshape(table, [count, -1]) if len(row) != 1 else table, row_ids.shape.as_list()
    form = (table.dtype, [*shape, matrix.shape[1]])
    rows = operate(SerializedLookup(parts), [matrix, row_ids], [form], name or "embedding_lookup")[0]
    return tf.reshape(rows, [*shape, *row]) if len(row) != 1 else rows


class HostEmbeddingOptimizerSpec:
    """SGD of a table on the host, applied after every mini-batch.

    Attributes:
        mini_batches: mini-batches whose gradients are summed before a table update.
    """

    mini_batches: int = 1

    def __init__(self, learning_rate: float, optimizer_name: str | None = None) -> None:
        """Set the learning rate.

        Args:
            learning_rate: step size of SGD.
            optimizer_name: without effect.

        Raises:
            ProgramTypeError: unless learning_rate is a number.
        """
        if isinstance(learning_rate, bool) or np.ndim(checks.numbers("learning_rate", learning_rate)):
            checks.wrong_type("learning_rate", "a number", learning_rate)
        self._learning_rate = float(learning_rate)

    def get_learning_rate(self) -> float:
        """Return the learning rate."""
        return self._learning_rate

    def create_slot_variables(self, embedding_tensor: Any, name: str) -> list[Any]:
        """Return an empty list: SGD has no slot variables.

        Args:
            embedding_tensor, name: without effect.
        """
        return []

    def create_register_instruction(self, embedding_tensor: Any, slot_vars: Sequence[Any], name: str) -> Any:
        """Return the operation that connects a table with the IPUs.

        Args:
            embedding_tensor: variable of the table.
            slot_vars: without effect.
            name: name of the operation.
        """
        return _operation(lambda: _register(embedding_tensor, self, 1), f"{name}/register")

    def create_deregister_instruction(self, embedding_tensor: Any, slot_vars: Sequence[Any], name: str) -> Any:
        """Return the operation that disconnects a table from the IPUs.

        Args:
            embedding_tensor, name: see ``create_register_instruction``.
            slot_vars: without effect.
        """
        return _operation(lambda: _register(embedding_tensor, self, -1), f"{name}/deregister")

    def create_lookup_instruction(
        self, embedding_tensor: Any, indices: Any, slot_vars: Sequence[Any], partition_strategy: str, name: str
    ) -> Any:
        """Look up rows of a table in a stage; raises ProgramTypeError unless indices are whole numbers.

        Args:
            embedding_tensor: variable of the table.
            indices: row indices, whole numbers.
            slot_vars, partition_strategy: without effect: SGD has no slots, and the table is not partitioned.
            name: without effect: the look-up is named after its table.
        """
        return _look_up(embedding_tensor, self, indices, clip=False)


class HostEmbeddingSGDGAOptimizerSpec(HostEmbeddingOptimizerSpec):
    """SGD by the summed gradients of several mini-batches."""

    def __init__(self, learning_rate: float, accumulation_factor: int) -> None:
        """Set the learning rate and the number of mini-batches.

        Args:
            learning_rate: step size of SGD.
            accumulation_factor: mini-batches whose gradients are summed.

        Raises:
            ProgramError: if accumulation_factor is below 1.
            ProgramTypeError: unless accumulation_factor is a number.
        """
        super().__init__(learning_rate)
        self.mini_batches = checks.whole("accumulation_factor", accumulation_factor, 1)

    def get_accumulation_factor(self) -> int:
        """Return the number of mini-batches per table update."""
        return self.mini_batches


class HostEmbedding:
    """Embedding table on the host, with look-ups from IPUs.

    Rows arrive over the host's streams before a stage's forward pass; in training, gradients return after the backward
    pass. The host applies a micro-batch's gradients at once, unless the optimizer specification accumulates them.
    Micro-batches in flight therefore see the table as of their look-up.
    """

    def __init__(
        self,
        name: str,
        embedding_tensor: Any,
        partition_strategy: str = "TOKEN",
        optimizer_spec: HostEmbeddingOptimizerSpec | None = None,
    ) -> None:
        """Check the arguments.

        Args:
            name: name of the embedding.
            embedding_tensor: table of shape (tokens, encoding), an array or a variable.
            partition_strategy: TOKEN or ENCODING; without effect, because the host holds the table.
            optimizer_spec: optimizer of the table; None for a constant table.

        Raises:
            ProgramError: if an argument has a value that is not valid.
            ProgramTypeError: if an argument has a wrong type.
        """
        self._name = checks.text("name", name)
        if partition_strategy not in _STRATEGIES:
            checks.wrong_value("partition_strategy", " or ".join(_STRATEGIES), partition_strategy)
        if optimizer_spec is not None and not isinstance(optimizer_spec, HostEmbeddingOptimizerSpec):
            checks.wrong_type("optimizer_spec", "a HostEmbeddingOptimizerSpec or None", optimizer_spec)
        if not hasattr(embedding_tensor, "handle"):
            initial = checks.numbers("embedding_tensor", embedding_tensor)
            embedding_tensor = _V1.Variable(initial, trainable=False, name=self._name, use_resource=True)
        shape, dtype = tuple(embedding_tensor.shape.as_list()), embedding_tensor.dtype.base_dtype
        if len(shape) != 2 or not dtype.is_floating:
            requirement = f"a table of numbers of rank two and not {dtype.name} of shape {shape}"
            checks.wrong_value("embedding_tensor", requirement, name)
        self._variable, self._spec = embedding_tensor, optimizer_spec
        _host_table(embedding_tensor, optimizer_spec)

    def get_embedding_tensor(self) -> Any:
        """Return the table as a variable of the host."""
        return self._variable

    def lookup(self, indices: Any, clip_indices: bool = True) -> Any:
        """Look up rows in a stage, shape (*indices.shape, encoding).

        Args:
            indices: row indices, whole numbers.
            clip_indices: whether to clip indices to the table's range.

        Raises:
            ProgramTypeError: unless indices are whole numbers. An index out of range raises an error while the
                program runs.
        """
        return _look_up(self._variable, self._spec, indices, clip=checks.truth("clip_indices", clip_indices))

    @contextmanager
    def register(self, session: Any = None) -> Iterator[HostEmbedding]:
        """Connect the table with the IPUs for look-ups by programs inside the block.

        Args:
            session: without effect: the table is connected for any session.
        """
        _register(self._variable, self._spec, 1)
        try:
            yield self
        finally:
            _register(self._variable, self._spec, -1)


def create_host_embedding(
    name: str,
    shape: Any,
    dtype: Any,
    partition_strategy: str = "TOKEN",
    optimizer_spec: HostEmbeddingOptimizerSpec | None = None,
    initializer: Any = None,
) -> HostEmbedding:
    """Create a host embedding with a new table.

    Args:
        name: name of the embedding.
        shape: (tokens, encoding).
        dtype: floating-point dtype.
        partition_strategy: TOKEN or ENCODING; without effect.
        optimizer_spec: optimizer of the table; None for a constant table.
        initializer: initializer as in ``tf.get_variable``.
    """
    kind = tf.as_dtype(dtype)
    checks.dtype("dtype", kind.as_numpy_dtype, "f")
    if tf.executing_eagerly():
        start_value = initializer or tf.keras.initializers.GlorotUniform()
        variable = tf.Variable(
            start_value(shape, kind) if callable(start_value) else start_value, name=checks.text("name", name)
        )
    else:
        checked_name = checks.text("name", name)
        variable = _V1.get_variable(checked_name, shape, kind, initializer, trainable=False, use_resource=True)
    return HostEmbedding(name, variable, partition_strategy, optimizer_spec)


def _host_table(variable: Any, spec: HostEmbeddingOptimizerSpec | None) -> HostTable:
    """Return the host table of a variable, trained by ``spec``."""
    if not hasattr(variable, "handle"):
        raise ProgramError(f"embedding_tensor: expected the variable of a HostEmbedding, got {variable!r}")
    tables: dict[Any, HostTable] = variable.__dict__.setdefault("_ipusim_tables", {})
    if spec not in tables:
        tables[spec] = HostTable(variable, spec, variable.op.name if hasattr(variable, "op") else variable.name)
    return tables[spec]


def _look_up(variable: Any, spec: HostEmbeddingOptimizerSpec | None, indices: Any, *, clip: bool) -> Any:
    """Look up rows of a variable's table in a stage.

    Raises:
        ProgramTypeError: unless indices are whole numbers.
        ProgramError: for constant indices out of range, without ``clip``.
    """
    ids = tf.convert_to_tensor(indices)
    if not ids.dtype.is_integer:
        checks.wrong_type("indices", "whole numbers that depend on no variable", indices)
    table, values = _host_table(variable, spec), tf.get_static_value(ids)
    if values is not None and not clip:
        check_ids(variable.name, int(variable.shape[0]), values)
    return table.look_up(ids, clip=clip)


def _register(variable: Any, spec: HostEmbeddingOptimizerSpec | None, change: int) -> None:
    """Change the number of open ``register`` blocks of a table."""
    _host_table(variable, spec).registered += change


def _operation(function: Callable[[], None], name: str) -> Any:
    """Return an operation that calls a function on the host; eager TensorFlow calls the function at once."""

    def call() -> Any:
        function()
        return np.int32(0)

    result = tf.numpy_function(call, [], tf.int32, name=name)
    return None if tf.executing_eagerly() else result.op
