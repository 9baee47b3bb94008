"""Kernels that read and change variables, against eager TensorFlow."""

import numpy as np
import pytest

from ipusim.base.errors import UnsupportedProgramError
from tests.golden.graph.eager import check_graph
from tests.golden.graph.values import drawn, names, positive, whole
from tests.programs import tensorflow

CHANGES = names("Add Sub Mul Div Max Min Update")
CHANGES_OF_ELEMENTS = names("Add Sub Update")
IN_GRAPHS = [
    "ReadVariableOp",
    "VarIsInitializedOp",
    "VariableShape",
    "AssignVariableOp",
    "AssignAddVariableOp",
    "AssignSubVariableOp",
    "ResourceGather",
    "ResourceGatherNd",
    *(f"ResourceScatter{name}" for name in CHANGES),
    *(f"ResourceScatterNd{name}" for name in CHANGES_OF_ELEMENTS),
    "ResourceStridedSliceAssign",
]


@pytest.fixture
def tf():
    return tensorflow()


def test_assignments_and_reads_follow_each_other(tf):
    variable = tf.Variable(drawn(2, 3))

    def function(x):
        before = variable.read_value()
        variable.assign(x)
        variable.assign_add(x * 2)
        between = variable.read_value()
        variable.assign_sub(before)
        shape = tf.raw_ops.VariableShape(input=variable.handle)
        return before, between, variable.read_value(), shape, tf.raw_ops.VarIsInitializedOp(resource=variable.handle)

    check_graph(function, drawn(2, 3, seed=1), variables=[variable])


def test_rows_are_gathered(tf):
    table = tf.Variable(drawn(5, 3))

    def function(rows, places):
        return (
            tf.raw_ops.ResourceGather(resource=table.handle, indices=rows, dtype=tf.float32),
            tf.raw_ops.ResourceGatherNd(resource=table.handle, indices=places, dtype=tf.float32),
        )

    check_graph(function, np.array([[0, 4], [4, 2]], np.int32), np.array([[0, 1], [3, 2]], np.int32), variables=[table])


def check_change(tf, change, indices, updates):
    table = tf.Variable(positive(5, 3))

    def function(places, values):
        change(table.handle, places, values)
        return table.read_value()

    check_graph(function, indices, updates, variables=[table])


@pytest.mark.parametrize("change", CHANGES)
def test_rows_change(tf, change):
    operation = getattr(tf.raw_ops, f"ResourceScatter{change}")
    rows = whole(1, 3, 4) if change == "Update" else whole(1, 3, 1)
    check_change(
        tf, lambda table, at, by: operation(resource=table, indices=at, updates=by), rows, positive(3, 3, seed=1)
    )


@pytest.mark.parametrize("change", CHANGES_OF_ELEMENTS)
def test_elements_change(tf, change):
    operation = getattr(tf.raw_ops, f"ResourceScatterNd{change}")
    places = np.array([[0, 1], [3, 2], [0, 1 if change != "Update" else 2]], np.int32)
    check_change(tf, lambda table, at, by: operation(ref=table, indices=at, updates=by), places, positive(3, seed=1))


def test_slices_are_assigned(tf):
    table = tf.Variable(drawn(5, 3))

    def function(row, column, number):
        table[1].assign(row)
        table[::-2, 2].assign(column)
        table[..., 0:1].assign(table[..., 1:2])
        table[-1, 1].assign(number)
        return table.read_value()

    check_graph(function, drawn(3, seed=1), drawn(3, seed=2), np.float32(7), variables=[table])


def test_a_change_without_a_kernel_is_refused(tf):
    variable = tf.Variable(drawn(2))

    def function(delta):
        tf.raw_ops.ResourceApplyProximalGradientDescent(var=variable.handle, alpha=1.0, l1=0.0, l2=0.0, delta=delta)
        return variable.read_value()

    with pytest.raises(UnsupportedProgramError, match="ResourceApplyProximalGradientDescent is not simulated"):
        check_graph(function, drawn(2, seed=1), variables=[variable])
