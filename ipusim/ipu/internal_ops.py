"""Functions of Graphcore's ``internal_ops``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipusim.api import Array, LayerCost, Work, functions, layers
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.host import Operation, Tensor
from ipusim.ipu.runtime.operations import WithoutGradient
from ipusim.ipu.runtime.stage_call import is_running
from ipusim.ipu.tensorflow.array_functions import tensor


def print_tensor(input: Any, name: str = "") -> Operation:
    """Print a tensor to the standard error, as NumPy writes it: in a stage at each of its forward passes.

    A tensor of the host is printed when a session runs what is returned. A stage may return it beside its results, or
    not: it prints either way.
    """
    x, called = tensor(input), checks.text("name", name)
    if isinstance(x, Tensor):
        return Operation(called or "PrintTensor", lambda running: _print(called, running.value(x)))
    functions.operate_without_gradient(_Print(called), x)
    return Operation(called or "PrintTensor")


@dataclass(frozen=True)
class _Print(WithoutGradient):
    """Prints (x,), while the program runs."""

    name: str

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], layers.Saved]:
        """Print it; there is no result."""
        if is_running():
            _print(self.name, arrays[0])
        return (), None

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
        """Return the work: it is read, and comes over the exchange to where it leaves; how it leaves takes no time."""
        (x,) = arrays
        size = max(x.dtype.itemsize, 2)
        return LayerCost(Work(sram_bytes=x.nbytes, exchange_bytes=x.nbytes, itemsize=size), Work(itemsize=size))


def _print(name: str, value: Any) -> None:
    text = np.array2string(np.asarray(value), separator=", ")
    print(f"{name}: {text}" if name else text, file=sys.stderr)
