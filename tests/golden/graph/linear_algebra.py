"""Kernels of matrices, against eager TensorFlow."""

import numpy as np

from tests.golden.graph.eager import Case
from tests.golden.graph.values import drawn, whole

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
SQUARE = drawn(2, 4, 4) + 4 * np.eye(4, dtype=np.float32)
POSITIVE = (SQUARE @ SQUARE.swapaxes(-1, -2)).astype(np.float32)
ALIGNMENTS = ["RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"]
NONE = {"num_rows": np.int32(-1), "num_cols": np.int32(-1), "padding_value": np.float32(7)}

CASES = [
    Case("MatrixDiagV3", {"diagonal": drawn(2, 3), "k": np.int32(0), **NONE}),
    Case("MatrixDiagV3", {"diagonal": drawn(2, 3), "k": np.int32(1), **NONE}),
    Case("MatrixDiagV3", {"diagonal": drawn(3), "k": np.int32(-2), **NONE}),
    *(
        Case("MatrixDiagV3", {"diagonal": drawn(3, 4), "k": whole(-1, 1), **NONE}, {"align": align})
        for align in ALIGNMENTS
    ),
    Case(
        "MatrixDiagV3",
        {
            "diagonal": drawn(2, 3),
            "k": np.int32(0),
            "num_rows": np.int32(3),
            "num_cols": np.int32(5),
            "padding_value": np.float32(0),
        },
    ),
    *(
        Case(
            "MatrixDiagPartV3", {"input": drawn(2, 3, 5), "k": offset, "padding_value": np.float32(9)}, {"align": align}
        )
        for offset in (np.int32(0), np.int32(2), whole(-1, 2))
        for align in ALIGNMENTS
    ),
    Case("MatrixSetDiagV3", {"input": drawn(2, 3, 4), "diagonal": drawn(2, 3, seed=1), "k": np.int32(0)}),
    Case("MatrixSetDiagV3", {"input": drawn(3, 4), "diagonal": drawn(2, 3, seed=1), "k": whole(0, 1)}),
    *(Case("MatrixInverse", {"input": SQUARE}, {"adjoint": flag}, **CLOSE) for flag in (False, True)),
    *(
        Case("MatrixSolve", {"matrix": SQUARE, "rhs": drawn(2, 4, 3)}, {"adjoint": flag}, **CLOSE)
        for flag in (False, True)
    ),
    *(
        Case(
            "MatrixTriangularSolve",
            {"matrix": SQUARE, "rhs": drawn(2, 4, 3)},
            {"lower": lower, "adjoint": flag},
            **CLOSE,
        )
        for lower in (False, True)
        for flag in (False, True)
    ),
    Case("Cholesky", {"input": POSITIVE}, **CLOSE),
    Case("MatrixDeterminant", {"input": SQUARE}, **CLOSE),
    Case("Cross", {"a": drawn(4, 3), "b": drawn(4, 3, seed=1)}),
]
