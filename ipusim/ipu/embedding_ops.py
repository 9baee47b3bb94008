"""Graphcore's ``embedding_ops``: look-ups in tables on the IPU, and in those on the host."""

from __future__ import annotations

from typing import Any

from ipusim.ipu import checks
from ipusim.ipu.host_embeddings import (
    HostEmbedding,
    HostEmbeddingOptimizerSpec,
    HostEmbeddingSGDGAOptimizerSpec,
    create_host_embedding,
)
from ipusim.ipu.operations.serialized_lookup import SerializedLookup
from ipusim.ipu.tensorflow import nn
from ipusim.ipu.tensorflow.array_functions import tensor
from ipusim.model.functions.operation_call import operate

__all__ = [
    "HostEmbedding",
    "HostEmbeddingOptimizerSpec",
    "HostEmbeddingSGDGAOptimizerSpec",
    "create_host_embedding",
    "embedding_lookup",
]


def embedding_lookup(params: Any, ids: Any, name: str | None = None, serialization_factor: int = 1) -> Any:
    """Return the rows of a table by whole numbers, looked up in as many parts of it one after another.

    Raises ProgramError for parts that do not divide its rows, ModelError for ids that it does not have.
    """
    table, parts = tensor(params), checks.whole("serialization_factor", serialization_factor, 1)
    if parts == 1:
        return nn.embedding_lookup(table, ids)
    if table.ndim != 2 or table.shape[0] % parts:
        checks.wrong_value("serialization_factor", f"a divisor of the rows of a table {table.shape}", parts)
    return operate(SerializedLookup(parts), table, tensor(ids))[0]
