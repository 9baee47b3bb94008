"""Some rows of a tensor, by number: TensorFlow's ``IndexedSlices``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ipusim.ipu import checks
from ipusim.ipu.host import Fetch


@dataclass(frozen=True, eq=False)
class IndexedSlices:
    """Rows of a tensor; a row that is there several times counts several times.

    Attributes:
        values: the rows.
        indices: their numbers.
        dense_shape: of the tensor, where it is known.

    Raises ProgramTypeError for what are no tensors.
    """

    values: Any
    indices: Any
    dense_shape: Any = None

    def __post_init__(self) -> None:
        """Check that they are tensors."""
        for name in ("values", "indices"):
            value = getattr(self, name)
            if not isinstance(value, Fetch):
                object.__setattr__(self, name, checks.numbers(name, value))
