"""Kernels that read and change variables, against eager TensorFlow."""

import numpy as np
import pytest

from tests.golden.graph.eager import check_graph
from tests.golden.graph.values import drawn, names, positive, whole
from tests.programs import tensorflow

CHANGES = names("Add Sub Mul Div Max Min Update")
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


@pytest.mark.parametrize("change", CHANGES)
def test_rows_change(tf, change):
    table = tf.Variable(positive(5, 3))
    operation = getattr(tf.raw_ops, f"ResourceScatter{change}")

    def function(rows, updates):
        operation(resource=table.handle, indices=rows, updates=updates)
        return table.read_value()

    rows = whole(1, 3, 4) if change == "Update" else whole(1, 3, 1)
    check_graph(function, rows, positive(3, 3, seed=1), variables=[table])
