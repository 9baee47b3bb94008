"""A lookup in a table part by part, each of which gives the rows that it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipusim.model.layers.embedding import Embedding
from ipusim.model.layers.layer import Array, LayerCost, Saved
from ipusim.model.work import VectorWork, Work, in_turn


@dataclass(frozen=True)
class SerializedLookup:
    """Rows of (table, ids), looked up in so many parts of the table one after another."""

    parts: int

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], Saved]:
        """Return the rows, (..., elements); raises ModelError for ids that the table does not have."""
        table, ids = arrays
        rows, _ = Embedding(*table.shape).forward({"W": table}, ids)
        return (rows,), (table, ids)

    def backward(self, saved: Saved, grads: Sequence[Array], wanted: Sequence[int]) -> list[Array]:
        """Return the table's gradient, of each row the sum of those of its uses."""
        table, ids = saved
        found = Embedding(*table.shape).backward_weights({"W": table}, (ids, grads[0]))
        return [found["W"] for _ in wanted]

    def cost(self, arrays: Sequence[Array], wanted: Sequence[int]) -> LayerCost:
        """Return the work: of each part that of a lookup of all ids, and the sum of rows that others leave zero."""
        table, ids = arrays
        size, taken = table.dtype.itemsize, ids.size * table.shape[1]
        one = Embedding(table.shape[0] // self.parts, table.shape[1]).cost((), ids.size, size)
        add = Work(vector=VectorWork(taken), sram_bytes=3 * taken * size, itemsize=size)
        there = (one.forward,) * self.parts + (add,) * (self.parts - 1)
        return LayerCost(in_turn(there, size), in_turn((one.backward,) * self.parts, size))
