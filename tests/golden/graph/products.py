"""Kernels of products, against eager TensorFlow."""

import numpy as np

from tests.golden.graph.eager import Case
from tests.golden.graph.values import SPECIAL, drawn

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
BOTH = [(first, second) for first in (False, True) for second in (False, True)]


def operands(first, second, *batch):
    return drawn(*batch, *((7, 3) if first else (3, 7))), drawn(*batch, *((5, 7) if second else (7, 5)), seed=1)


CASES = [
    *(
        Case(
            "MatMul",
            dict(zip("ab", operands(*flags), strict=True)),
            {"transpose_a": flags[0], "transpose_b": flags[1]},
            **CLOSE,
        )
        for flags in BOTH
    ),
    Case("MatMul", {"a": drawn(0, 3), "b": drawn(3, 2)}),
    Case("MatMul", {"a": drawn(2, 0), "b": drawn(0, 3)}),
    Case("MatMul", {"a": np.arange(6, dtype=np.int32).reshape(2, 3), "b": np.arange(6, dtype=np.int32).reshape(3, 2)}),
    Case(
        "MatMul",
        {"a": drawn(8, 16, dtype=np.float16), "b": drawn(16, 4, dtype=np.float16, seed=1)},
        rtol=1e-2,
        atol=1e-2,
    ),
    *(
        Case(kind, dict(zip("xy", operands(*flags, 2), strict=True)), {"adj_x": flags[0], "adj_y": flags[1]}, **CLOSE)
        for kind in ("BatchMatMul", "BatchMatMulV2")
        for flags in BOTH
    ),
    Case("BatchMatMulV2", {"x": drawn(2, 1, 3, 4), "y": drawn(5, 4, 2)}, **CLOSE),
    Case("BatchMatMulV3", {"x": drawn(2, 3, 4), "y": drawn(2, 4, 2)}, {"Tout": np.float32}, **CLOSE),
    *(
        Case("Einsum", {"inputs": [drawn(2, 3, 4), drawn(*shape, seed=1)]}, {"equation": equation}, **CLOSE)
        for equation, shape in (("bij,bjk->bik", (2, 4, 5)), ("bfd,dnh->bfnh", (4, 2, 3)), ("aij,jk->k", (4, 5)))
    ),
    Case("Einsum", {"inputs": [drawn(2, 3, 4)]}, {"equation": "bij->bji"}),
    Case("BiasAdd", {"value": drawn(2, 3), "bias": drawn(3)}),
    Case("BiasAdd", {"value": drawn(2, 4, 4, 3), "bias": drawn(3)}),
    Case("BiasAdd", {"value": drawn(2, 3, 4, 4), "bias": drawn(3)}, {"data_format": "NCHW"}),
    Case("BiasAdd", {"value": SPECIAL.reshape(2, 6), "bias": SPECIAL[:6]}, label="special"),
]
