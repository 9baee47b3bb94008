"""Read and change variables, whose handles arrive as Variable objects."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.node import Node, Variable
from ipusim.ipu.graph.registry import Kernel, register, register_function

register_function("ReadVariableOp", lambda variable: variable.value)
register_function("VarIsInitializedOp", lambda variable: np.True_)


def _copy_of(value: Any) -> Array:
    """Return an array without shared memory: later changes of a view's base would reach the variable."""
    array = np.asarray(value)
    return array if array.base is None else array.copy()


register_function("AssignVariableOp", lambda variable, value: variable.assign(_copy_of(value)), effect=True)
register_function(
    "AssignAddVariableOp", lambda variable, value: variable.assign(np.asarray(variable.value + value)), effect=True
)
register_function(
    "AssignSubVariableOp", lambda variable, value: variable.assign(np.asarray(variable.value - value)), effect=True
)


@register("VariableShape")
def _variable_shape(node: Node) -> Kernel:
    dtype = node.output_types[0]
    return lambda variable: np.array(np.shape(variable.value), dtype)


register_function("ResourceGather", lambda variable, indices: np.take(variable.value, indices, 0))
register_function("ResourceGatherNd", lambda variable, indices: variable.value[tuple(np.moveaxis(indices, -1, 0))])


def _scattered(change: Kernel) -> Kernel:
    """Return a kernel that changes rows of a variable, one after another if an index repeats."""

    def run(variable: Variable, indices: Array, updates: Array) -> None:
        value = np.array(variable.value)
        change(value, indices, updates)
        variable.assign(value)

    return run


_CHANGES = {
    "ResourceScatterAdd": np.add.at,
    "ResourceScatterSub": np.subtract.at,
    "ResourceScatterMul": np.multiply.at,
    "ResourceScatterDiv": np.divide.at,
    "ResourceScatterMax": np.maximum.at,
    "ResourceScatterMin": np.minimum.at,
    "ResourceScatterUpdate": lambda value, indices, updates: value.__setitem__(indices, updates),
}
for _type, _change in _CHANGES.items():
    register_function(_type, _scattered(_change), effect=True)
