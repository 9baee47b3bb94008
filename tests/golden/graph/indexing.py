"""Kernels that pick, place and order elements, against eager TensorFlow."""

import numpy as np

from tests.golden.graph.eager import Case
from tests.golden.graph.values import drawn, whole

X = drawn(4, 5, 6)
ROWS = np.array([[0, 2], [3, 1]], np.int32)
SEGMENTS = {"data": drawn(5, 2), "segment_ids": whole(0, 2, -1, 2, 3), "num_segments": np.int32(5)}


def strided(first, last, steps, **masks):
    return {"begin": whole(*first), "end": whole(*last), "strides": whole(*steps)}, {
        f"{name}_mask": value for name, value in masks.items()
    }


SLICES = [
    strided((1, 0, 2), (3, 5, 6), (1, 2, 3)),
    strided((0, 4), (0, 0), (1, -2), begin=1, end=1),
    strided((2, 1), (3, 0), (1, 1), shrink_axis=1, end=2),
    strided((0, 1), (0, 3), (1, 1), ellipsis=1),
    strided((0, 0, 1), (0, 0, 3), (1, 1, 1), new_axis=1, begin=2, end=2),
    strided((-1, -3), (0, -1), (1, 1), shrink_axis=1),
]
PLACES = np.array([[0, 1], [3, 4], [0, 1]], np.int32)

CASES = [
    Case("Slice", {"input": X, "begin": whole(1, 0, 2), "size": whole(2, -1, 0)}),
    Case("Slice", {"input": X, "begin": whole(1, 2, 2), "size": whole(2, -1, 3)}),
    *(Case("StridedSlice", {"input": X, **places}, masks) for places, masks in SLICES),
    *(
        Case("StridedSliceGrad", {"shape": whole(4, 5, 6), **places, "dy": drawn(*shape)}, masks)
        for (places, masks), shape in zip(
            SLICES, [(2, 3, 2), (4, 2, 6), (4, 6), (4, 5, 2), (1, 4, 2, 6), (2, 6)], strict=True
        )
    ),
    Case("Gather", {"params": X, "indices": ROWS}),
    Case("GatherV2", {"params": X, "indices": ROWS, "axis": np.int32(1)}),
    Case("GatherV2", {"params": X, "indices": np.zeros((0,), np.int64), "axis": np.int32(0)}),
    Case(
        "GatherV2",
        {"params": drawn(2, 5, 3), "indices": np.array([[0, 4], [2, 2]], np.int32), "axis": np.int32(1)},
        {"batch_dims": 1},
    ),
    Case(
        "GatherV2",
        {"params": drawn(2, 3, 5), "indices": np.array([[0, 4], [2, 2]], np.int32), "axis": np.int32(2)},
        {"batch_dims": 1},
    ),
    Case("GatherNd", {"params": X, "indices": PLACES}),
    Case("GatherNd", {"params": X, "indices": np.zeros((2, 0), np.int32)}),
    Case("ScatterNd", {"indices": PLACES, "updates": drawn(3, 6), "shape": whole(4, 5, 6)}),
    *(
        Case(
            f"TensorScatter{name}",
            {
                "tensor": X,
                "indices": PLACES[:2] if name == "Update" else PLACES,
                "updates": drawn(2 if name == "Update" else 3, 6, seed=1),
            },
        )
        for name in ("Update", "Add", "Sub", "Max", "Min")
    ),
    *(Case(f"UnsortedSegment{name}", SEGMENTS) for name in ("Sum", "Prod", "Max", "Min")),
    Case(
        "UnsortedSegmentSum",
        {
            "data": drawn(2, 3, 4),
            "segment_ids": np.array([[0, 1, 0], [1, 1, 2]], np.int64),
            "num_segments": np.int32(3),
        },
    ),
    Case(
        "UnsortedSegmentMax",
        {"data": np.array([3, -5], np.int32), "segment_ids": whole(0, 0), "num_segments": np.int32(2)},
    ),
    *(
        Case(f"Segment{name}", {"data": drawn(4, 2), "segment_ids": whole(0, 0, 2, 2)})
        for name in ("Sum", "Mean", "Prod", "Max", "Min")
    ),
    Case("Roll", {"input": X, "shift": whole(1, -2), "axis": whole(0, 2)}),
    Case("ListDiff", {"x": whole(4, 1, 4, 7, 0), "y": whole(1, 0)}),
    Case("Bincount", {"arr": whole(0, 2, 2, 7), "size": np.int32(4), "weights": np.zeros(0, np.float32)}),
    Case("Bincount", {"arr": whole(0, 2, 2, 7), "size": np.int32(4), "weights": drawn(4)}),
    *(
        Case(
            kind,
            {"indices": [whole(0, 2), np.array([[1], [2]], np.int32)], "data": [drawn(2, 3), drawn(2, 1, 3, seed=1)]},
        )
        for kind in ("DynamicStitch", "ParallelDynamicStitch")
    ),
    Case("DynamicStitch", {"indices": [np.int32(0), np.int32(1)], "data": [drawn(3), drawn(3, seed=1)]}),
    Case("Unique", {"x": whole(4, 1, 4, 0, 1)}),
    Case("Unique", {"x": np.zeros(0, np.int64)}, {"out_idx": np.int64}),
    Case("Where", {"condition": np.array([[True, False], [True, True]])}),
    Case("Where", {"condition": np.zeros((0, 2), np.bool_)}),
    Case("TopKV2", {"input": np.array([[1, 3, 3, -1], [0, 0, 0, 0]], np.float32), "k": np.int32(2)}),
    Case(
        "InTopKV2",
        {
            "predictions": np.array([[1, 2, 2], [3, 1, 0], [np.nan, 1, 0], [1, 2, 3]], np.float32),
            "targets": whole(1, 2, 1, 7),
            "k": np.int32(1),
        },
    ),
    Case("InTopK", {"predictions": drawn(4, 3), "targets": whole(1, 2, 1, 0)}, {"k": 2}),
    Case("ReverseSequence", {"input": X, "seq_lengths": whole(0, 1, 3, 5)}, {"seq_dim": 1, "batch_dim": 0}),
    Case(
        "ReverseSequence",
        {"input": drawn(5, 3), "seq_lengths": whole(2, 5, 1, dtype=np.int64)},
        {"seq_dim": 0, "batch_dim": 1},
    ),
]
