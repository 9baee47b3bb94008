"""Kernels of checks and prints, which compute nothing."""

import numpy as np
import pytest

from tests.golden.graph.eager import check_graph
from tests.golden.graph.values import drawn
from tests.programs import tensorflow

IN_GRAPHS = ["Assert", "PrintV2", "ControlTrigger", "Print"]


@pytest.mark.filterwarnings("ignore")
def test_values_pass():
    tf = tensorflow()

    def function(x):
        tf.raw_ops.Assert(condition=tf.constant(True), data=[x])
        tf.raw_ops.PrintV2(input=tf.constant("text"))
        tf.raw_ops.ControlTrigger()
        return tf.raw_ops.Print(input=x, data=[x], message="") + 1

    check_graph(function, drawn(3, dtype=np.float32))
