"""Kernels of checks and prints, which compute nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.golden.graph.eager import check_graph
from tests.golden.graph.values import drawn

IN_GRAPHS = ["Assert", "PrintV2", "ControlTrigger", "Print"]


@pytest.mark.filterwarnings("ignore")
def test_values_pass():
    from ipusim.ipu.graph.tensorflow_import import load  # noqa: PLC0415

    tf = load()

    def function(x):
        tf.raw_ops.Assert(condition=tf.constant(True), data=[x])
        tf.raw_ops.PrintV2(input=tf.constant("text"))
        tf.raw_ops.ControlTrigger()
        return tf.raw_ops.Print(input=x, data=[x], message="") + 1

    check_graph(function, drawn(3, dtype=np.float32))
