"""Functions of Graphcore's ``internal_ops``: tensors that are printed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipusim.api import Array, LayerCost, Work, functions
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.traced.operations import operate_without_gradient

tf = load()


def print_tensor(input: Any, name: str = "") -> Any:
    """Print a tensor to the standard error, as NumPy writes it: in a stage at each of its forward passes.

    Args:
        input: the tensor.
        name: text in front of it.

    Returns:
        The operation. A stage prints whether it returns the operation or not; a session that runs it prints as well.
    """
    called = checks.text("name", name)
    return operate_without_gradient(_Print(called), [input], [], "PrintTensor")[0]


@dataclass(frozen=True)
class _Print:
    """Prints (x,), while the program runs."""

    name: str

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], None]:
        """Print it, unless the pass is only tried; there is no result."""
        if functions.surroundings().look_ups is None:
            text = np.array2string(arrays[0], separator=", ")
            print(f"{self.name}: {text}" if self.name else text, file=sys.stderr)
        return (), None

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
        """Return the work: it is read, and comes over the exchange to where it leaves; how it leaves takes no time."""
        (x,) = arrays
        size = max(x.dtype.itemsize, 2)
        return LayerCost(Work(sram_bytes=x.nbytes, exchange_bytes=x.nbytes, itemsize=size), Work(itemsize=size))
