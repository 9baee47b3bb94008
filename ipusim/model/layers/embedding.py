"""Embed tokens as rows of a table, and add rows of a table by position."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from annotated_doc import Doc
from annotated_types import Ge, Le

from ipusim.base.errors import ModelError
from ipusim.model.layers.keys import Axis
from ipusim.model.layers.layer import Array, InHalves, Key, LayerCost, Parameters, Rest, Saved, Shape, all_later
from ipusim.model.work import ID_BYTES, TableBytes, VectorWork, work_of


class _Table(InHalves):
    """Common initialisation of layers with a single table."""

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shape of the table."""
        raise NotImplementedError

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Draw from [-0.05, 0.05], Keras' ``uniform`` and default for embeddings, in double precision."""
        shape = self.parameter_shapes(input_shape)["W"]
        return {"W": rng.uniform(-0.05, 0.05, shape).astype(dtype, copy=False)}


@dataclass(frozen=True)
class Embedding(_Table):
    """Rows of a table chosen by tokens; the first layer of a model on tokens.

    The table ``W`` has shape (input_dim, output_dim), as in Graphcore's Keras ``Embedding``, and starts uniform in
    [-0.05, 0.05]. Ids are whole numbers with a gradient of zero.
    """

    kind: ClassVar = "embedding"
    #: Whether the layer may be inside another layer, such as a residual block.
    may_be_inner: ClassVar = False

    input_dim: Annotated[int, Ge(1), Le(10**7), Doc("rows of the table, the size of the vocabulary")]
    output_dim: Annotated[Axis, Doc("elements of a row")]

    def __post_init__(self) -> None:
        """Raise ModelError for a table without rows or columns."""
        if self.input_dim < 1 or self.output_dim < 1:
            raise ModelError(f"expected an embedding of at least 1 x 1, got {self.input_dim} x {self.output_dim}")

    def check_ids(self, ids: Array) -> None:
        """Raise ModelError unless ``ids`` are whole numbers from 0 to ``input_dim`` - 1."""
        if ids.dtype.kind not in "iu":
            raise ModelError(f"an embedding needs whole numbers as its input, got {ids.dtype}")
        if ids.size and (ids.min() < 0 or ids.max() >= self.input_dim):
            wrong_id = ids.min() if ids.min() < 0 else ids.max()
            raise ModelError(
                f"an embedding of {self.input_dim} rows needs ids from 0 to {self.input_dim - 1}, got {wrong_id}"
            )

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape with ``output_dim`` as a further axis."""
        return (*input_shape, self.output_dim)

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shape of the table."""
        return {"W": (self.input_dim, self.output_dim)}

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return the rows of ids ``x``: (batch, ...) to (batch, ..., output_dim).

        Raises ModelError for ids outside the table.
        """
        self.check_ids(x)
        return parameters["W"].take(x, axis=0), x

    def backward_input(
        self, parameters: Parameters, saved_values: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return zeros for the ids, and the rest: ids and row gradients."""
        return (np.zeros_like(grad, shape=saved_values.shape) if need_input_gradient else None), (saved_values, grad)

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        """Return the table's gradient: the sum of row gradients over uses (a scatter-add)."""
        ids, grad = rest_values
        table = np.zeros_like(parameters["W"])
        np.add.at(table, ids.reshape(-1), grad.reshape(-1, self.output_dim))
        return {"W": table}

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work for R rows of D elements each.

        Forward: two exchanges, first ids, then rows (PopLibs' multiSlice); between them, tiles read R*D elements from
        local parts of the table and write them. Backward: R*D sums into a zeroed table, entirely in the second half.
        """
        ids = batch * math.prod(input_shape)
        elements, table = ids * self.output_dim, self.input_dim * self.output_dim
        forward = work_of(itemsize, accesses=ids + 2 * elements, exchanged=ids + elements, compute_sets=2)
        backward = work_of(
            itemsize,
            vector=VectorWork(elements),
            accesses=ids + 3 * elements + table,
            exchanged=ids + elements,
            compute_sets=3,
        )
        return LayerCost(forward, backward, all_later(backward))


@dataclass(frozen=True)
class HostEmbedding(Embedding):
    """An embedding with the table on the host, like Graphcore's HostEmbedding.

    Per micro-batch, ids go to the host and rows return; in training, ids and row gradients go back. The host owns
    table, accumulator, optimizer state and update. The arithmetic equals an :class:`Embedding`'s.
    """

    kind: ClassVar = "host_embedding"

    def table_bytes(self, input_shape: Shape, batch: int, itemsize: int) -> TableBytes:
        """Return the bytes moved per micro-batch: ids of 4 bytes, rows, and gradients."""
        ids = batch * math.prod(input_shape)
        rows = ids * self.output_dim * itemsize
        return TableBytes(ids * ID_BYTES, rows, rows)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work of placing received rows, or outgoing gradients."""
        elements = batch * math.prod(input_shape) * self.output_dim
        move = work_of(itemsize, accesses=2 * elements, compute_sets=1)
        return LayerCost(move, move, all_later(move))


@dataclass(frozen=True)
class PositionEmbedding(_Table):
    """Adds a trained row to each position of a sequence.

    The table ``W`` has a sample's shape (positions, elements), as in BERT and GPT, and starts uniform in [-0.05,
    0.05], like an :class:`Embedding` of the positions.
    """

    kind: ClassVar = "position_embedding"

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape; raises ModelError unless it is (positions, elements)."""
        if len(input_shape) != 2:
            raise ModelError(f"a position embedding needs an input of two axes, got {len(input_shape)}")
        return input_shape

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shape of the table."""
        return {"W": input_shape}

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return ``x + W``, of shape (batch, positions, elements)."""
        return x + parameters["W"], None

    def backward_input(
        self, parameters: Parameters, saved_values: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return ``grad``, unchanged."""
        return (grad if need_input_gradient else None), grad

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        """Return the sum over the batch for the table."""
        grad: Array = rest_values
        return {"W": grad.sum(axis=0)}

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work: a sum per element, in either pass; backward in the second half."""
        table = math.prod(input_shape)
        elements = batch * table
        forward = work_of(itemsize, vector=VectorWork(elements), accesses=2 * elements + table, exchanged=elements)
        backward = work_of(
            itemsize,
            vector=VectorWork(reductions=elements),
            accesses=elements + table,
            exchanged=elements,
            compute_sets=2,
        )
        return LayerCost(forward, backward, all_later(backward))
