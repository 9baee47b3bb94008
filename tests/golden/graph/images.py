"""Kernels of images, against eager TensorFlow."""

import numpy as np

from tests.golden.graph.eager import Case
from tests.golden.graph.values import drawn, whole

X = drawn(2, 4, 6, 3)
CLOSE = {"rtol": 2e-5, "atol": 2e-6}
CENTRES = [{}, {"align_corners": True}, {"half_pixel_centers": True}]
SIZES = [(8, 9), (2, 3), (1, 1)]
BLOCKS = np.array([[1, 1], [0, 3]], np.int32)

CASES = [
    *(
        Case(kind, {"images": X, "size": whole(*size)}, flags, **CLOSE)
        for kind in ("ResizeBilinear", "ResizeNearestNeighbor")
        for flags in CENTRES
        for size in SIZES
    ),
    *(
        Case("ResizeBilinearGrad", {"grads": drawn(2, *size, 3), "original_image": X}, flags, **CLOSE)
        for flags in CENTRES
        for size in SIZES
    ),
    *(
        Case("ResizeNearestNeighborGrad", {"grads": drawn(2, *size, 3), "size": whole(4, 6)}, flags, **CLOSE)
        for flags in CENTRES
        for size in SIZES
    ),
    Case("SpaceToBatchND", {"input": X, "block_shape": whole(2, 3), "paddings": BLOCKS}),
    Case("SpaceToBatchND", {"input": drawn(2, 4, 3), "block_shape": whole(2), "paddings": np.zeros((1, 2), np.int32)}),
    Case("BatchToSpaceND", {"input": drawn(12, 2, 3, 3), "block_shape": whole(2, 3), "crops": BLOCKS}),
    Case("BatchToSpaceND", {"input": drawn(4, 2, 3), "block_shape": whole(2), "crops": np.zeros((1, 2), np.int32)}),
    Case("LRN", {"input": X}, {"depth_radius": 1, "bias": 1.0, "alpha": 0.5, "beta": 0.75}, **CLOSE),
    Case("LRN", {"input": X}, **CLOSE),
]
SQUARES = np.pad(X * X, ((0, 0),) * 3 + ((1, 1),))
NORM = 1 + 0.5 * sum(SQUARES[..., at : at + 3] for at in range(3))
CASES.append(
    Case(
        "LRNGrad",
        {
            "input_grads": drawn(2, 4, 6, 3, seed=1),
            "input_image": X,
            "output_image": (X * NORM**-0.75).astype(np.float32),
        },
        {"depth_radius": 1, "bias": 1.0, "alpha": 0.5, "beta": 0.75},
        **CLOSE,
    )
)
