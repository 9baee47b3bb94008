"""Functions of Graphcore's ``embedding_ops`` for tables on the IPU."""

from __future__ import annotations

from typing import Any

from ipusim.errors import UnsupportedProgramError
from ipusim.ipu.tensorflow import nn


def embedding_lookup(params: Any, ids: Any, name: str | None = None, serialization_factor: int = 1) -> Any:
    """Return the rows of a table by whole numbers; raises UnsupportedProgramError for a lookup in several parts."""
    if serialization_factor != 1:
        raise UnsupportedProgramError(f"serialization_factor: expected 1, got {serialization_factor!r}")
    return nn.embedding_lookup(params, ids)
