"""Kernels of reductions and running sums, against eager TensorFlow."""

import numpy as np

from tests.golden.graph.eager import Case
from tests.golden.graph.values import SPECIAL, drawn, names, whole

X = drawn(3, 4, 5)
NUMBERS = names("Sum Mean Prod Max Min")

CASES = [
    *(
        Case(kind, {"input": X, "axis": whole(0, -1)}, {"keep_dims": keep})
        for kind in NUMBERS
        for keep in (False, True)
    ),
    *(Case(kind, {"input": X, "axis": np.zeros(0, np.int32)}) for kind in NUMBERS),
    *(Case(kind, {"input": SPECIAL, "axis": np.int32(0)}, label="special") for kind in NUMBERS),
    *(
        Case(kind, {"input": drawn(0, 3), "axis": whole(0)}, label="empty")
        for kind in ("Sum", "Prod", "Max", "Min", "Mean")
    ),
    *(Case(kind, {"input": np.arange(6, dtype=np.int32).reshape(2, 3) - 2, "axis": whole(1)}) for kind in NUMBERS),
    *(
        Case(kind, {"input": drawn(40, 9, dtype=np.float16), "axis": whole(0)}, rtol=4e-3, atol=2e-2)
        for kind in ("Sum", "Mean", "Max")
    ),
    *(Case(kind, {"input": X > 0.5, "axis": whole(1)}) for kind in ("All", "Any")),
    *(Case(kind, {"input": np.zeros((0, 2), np.bool_), "axis": whole(0)}) for kind in ("All", "Any")),
    *(
        Case(kind, {"input": np.array([[1, 3, 3], [2, 2, 1]], np.float32), "dimension": np.int32(1)})
        for kind in ("ArgMax", "ArgMin")
    ),
    Case("ArgMax", {"input": X, "dimension": np.int32(-2)}, {"output_type": np.int32}),
    Case("L2Loss", {"t": X}),
    *(
        Case(kind, {"x": X, "axis": np.int32(1)}, {"exclusive": exclusive, "reverse": backwards}, rtol=2e-6)
        for kind in ("Cumsum", "Cumprod")
        for exclusive in (False, True)
        for backwards in (False, True)
    ),
    Case("BiasAddGrad", {"out_backprop": drawn(2, 3, 4, 5)}),
    Case("BiasAddGrad", {"out_backprop": drawn(2, 3, 4, 5)}, {"data_format": "NCHW"}),
    Case("BiasAddGrad", {"out_backprop": drawn(6, 5)}),
    *(Case("EuclideanNorm", {"input": X, "axis": whole(0, 2)}, {"keep_dims": keep}) for keep in (False, True)),
]
