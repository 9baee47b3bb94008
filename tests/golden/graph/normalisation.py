"""Kernels of batch normalisation, against eager TensorFlow."""

import numpy as np

from tests.golden.graph.eager import Case
from tests.golden.graph.values import drawn, positive

X = drawn(4, 5, 3, 6) * 3 + 1
GIVEN = {"scale": positive(6), "offset": drawn(6, seed=1)}
RUNNING = {"mean": drawn(6, seed=2), "variance": positive(6, seed=3)}
NOTHING = {"mean": np.zeros(0, np.float32), "variance": np.zeros(0, np.float32)}
CLOSE = {"rtol": 2e-5, "atol": 2e-5}
SAVED = {"reserve_space_1": drawn(6, seed=2), "reserve_space_2": positive(6, seed=3)}
BACK = {"y_backprop": drawn(4, 5, 3, 6, seed=5), "x": X, "scale": positive(6), **SAVED}

CASES = [
    *(
        Case(kind, {"x": X, **GIVEN, **NOTHING}, {"epsilon": 0.01}, **CLOSE)
        for kind in ("FusedBatchNorm", "FusedBatchNormV2")
    ),
    *(
        Case(kind, {"x": X, **GIVEN, **RUNNING}, {"is_training": False}, unset=(3, 4), **CLOSE)
        for kind in ("FusedBatchNorm", "FusedBatchNormV2")
    ),
    *(
        Case(kind, BACK, {"is_training": training}, **CLOSE)
        for kind in ("FusedBatchNormGrad", "FusedBatchNormGradV2")
        for training in (True, False)
    ),
    Case("FusedBatchNormV3", {"x": X, **GIVEN, **RUNNING}, {"is_training": False}, unset=(3, 4, 5), **CLOSE),
    Case("FusedBatchNormV3", {"x": X, **GIVEN, **NOTHING}, {"epsilon": 0.01}, unset=(5,), **CLOSE),
    Case("FusedBatchNormV3", {"x": X, **GIVEN, **RUNNING}, {"exponential_avg_factor": 0.1}, unset=(5,), **CLOSE),
    Case("FusedBatchNormV3", {"x": np.zeros((1, 1, 1, 6), np.float32), **GIVEN, **NOTHING}, unset=(5,), **CLOSE),
    *(
        Case(
            "FusedBatchNormGradV3",
            {**BACK, "reserve_space_3": np.zeros(0, np.float32)},
            {"is_training": training},
            **CLOSE,
        )
        for training in (True, False)
    ),
    Case(
        "FusedBatchNormV3",
        {"x": np.moveaxis(X, -1, 1).copy(), **GIVEN, **NOTHING},
        {"data_format": "NCHW"},
        unset=(5,),
        **CLOSE,
    ),
]
