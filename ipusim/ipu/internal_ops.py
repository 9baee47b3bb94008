"""Print tensors: Graphcore's ``internal_ops``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipusim.api import Array, Work, functions
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.traced.operations import operate_without_gradient

tf = load()


def print_tensor(input: Any, name: str = "") -> Any:
    """Print a tensor to the standard error, as NumPy writes it; a stage prints in every forward pass.

    Args:
        input: the tensor.
        name: text printed before the tensor.

    Returns:
        The print operation. A stage prints even without returning it; a session prints if it runs the operation.
    """
    checked_name = checks.text("name", name)
    return operate_without_gradient(_Print(checked_name), [input], [], "PrintTensor")[0]


@dataclass(frozen=True)
class _Print:
    """Operation that prints its input (x,) while the program runs."""

    name: str

    def forward(self, *arrays: Array) -> tuple[Array, ...]:
        """Print the input, except in a trial pass; there are no results."""
        if functions.surroundings().look_ups is None:
            text = np.array2string(arrays[0], separator=", ")
            print(f"{self.name}: {text}" if self.name else text, file=sys.stderr)
        return ()

    def cost(self, arrays: Sequence[Array]) -> Work:
        """Return the work: a read, and an exchange to the tile that prints; the transfer to the host takes no time."""
        (x,) = arrays
        size = max(x.dtype.itemsize, 2)
        return Work(sram_bytes=x.nbytes, exchange_bytes=x.nbytes, itemsize=size)
