"""Read and change variables, whose handles arrive as Variable objects."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.node import Variable
from ipusim.ipu.graph.registry import Kernel, kernel

kernel("ReadVariableOp")(lambda variable: variable.value)
kernel("VarIsInitializedOp")(lambda variable: np.True_)


def _copy_of(value: Any) -> Array:
    """Return an array without shared memory: later changes of a view's base would reach the variable."""
    array = np.asarray(value)
    return array if array.base is None else array.copy()


kernel("AssignVariableOp", effect=True)(lambda variable, value: variable.assign(_copy_of(value)))
kernel("AssignAddVariableOp", effect=True)(lambda variable, value: variable.assign(np.asarray(variable.value + value)))
kernel("AssignSubVariableOp", effect=True)(lambda variable, value: variable.assign(np.asarray(variable.value - value)))
kernel("VariableShape", "out_type")(lambda dtype, variable: np.array(np.shape(variable.value), dtype))
kernel("ResourceGather")(lambda variable, indices: np.take(variable.value, indices, 0))
kernel("ResourceGatherNd")(lambda variable, indices: variable.value[tuple(np.moveaxis(indices, -1, 0))])


def _scattered(change: Kernel, by_element: bool) -> Kernel:
    """Return a kernel that changes rows or elements of a variable, one after another if an index repeats."""

    def run(variable: Variable, indices: Array, updates: Array) -> None:
        value = np.array(variable.value)
        change(value, tuple(np.moveaxis(indices, -1, 0)) if by_element else indices, updates)
        variable.assign(value)

    return run


_CHANGES = {
    "Add": np.add.at,
    "Sub": np.subtract.at,
    "Mul": np.multiply.at,
    "Div": np.divide.at,
    "Max": np.maximum.at,
    "Min": np.minimum.at,
    "Update": lambda value, indices, updates: value.__setitem__(indices, updates),
}
for _name, _change in _CHANGES.items():
    kernel(f"ResourceScatter{_name}", effect=True)(_scattered(_change, by_element=False))
    if _name in {"Add", "Sub", "Update"}:  # XLA compiles no other changes of elements
        kernel(f"ResourceScatterNd{_name}", effect=True)(_scattered(_change, by_element=True))
