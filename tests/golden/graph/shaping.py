"""Kernels of operations on shapes and axes, against eager TensorFlow."""

import numpy as np

from tests.golden.graph.eager import Case
from tests.golden.graph.values import drawn, whole

X = drawn(2, 3, 4)
AXIS = np.int32(1)

CASES = [
    Case("Reshape", {"tensor": X, "shape": whole(4, -1)}),
    Case("Reshape", {"tensor": drawn(1, 1), "shape": np.zeros(0, np.int32)}),
    Case("Reshape", {"tensor": drawn(0, 3), "shape": whole(3, 0)}),
    Case("ExpandDims", {"input": X, "axis": np.int32(-1)}),
    Case("ExpandDims", {"input": np.float32(2), "axis": np.int32(0)}),
    Case("Squeeze", {"input": drawn(1, 3, 1)}),
    Case("Squeeze", {"input": drawn(1, 3, 1)}, {"axis": [-1]}),
    Case("Transpose", {"x": X, "perm": whole(2, 0, 1)}),
    Case("InvertPermutation", {"x": whole(2, 0, 1)}),
    Case("Rank", {"input": X}),
    Case("Shape", {"input": X}),
    Case("Shape", {"input": np.float32(1)}, {"out_type": np.int64}),
    Case("ShapeN", {"input": [X, drawn(5)]}),
    Case("ShapeN", {"input": [X]}),
    Case("Size", {"input": X}),
    Case("Size", {"input": drawn(0, 2)}, {"out_type": np.int64}),
    Case("BroadcastTo", {"input": drawn(3, 1), "shape": whole(2, 3, 4)}),
    Case("BroadcastArgs", {"s0": whole(3, 1), "s1": whole(2, 1, 4)}),
    Case("BroadcastArgs", {"s0": np.zeros(0, np.int32), "s1": whole(2)}),
    Case("Tile", {"input": X, "multiples": whole(1, 2, 0)}),
    Case("Tile", {"input": X, "multiples": whole(2, 1, 3)}),
    Case("ReverseV2", {"tensor": X, "axis": whole(0, -1)}),
    Case("Fill", {"dims": whole(2, 3), "value": np.float32(7)}),
    Case("Fill", {"dims": np.zeros(0, np.int32), "value": np.int32(7)}),
    Case("OnesLike", {"x": X}),
    Case("ConcatV2", {"values": [X, X + 1], "axis": np.int32(-1)}),
    Case("ConcatV2", {"values": [drawn(0, 3), drawn(2, 3)], "axis": np.int32(0)}),
    Case("Concat", {"concat_dim": AXIS, "values": [X, X + 1]}),
    Case("ConcatOffset", {"concat_dim": AXIS, "shape": [whole(2, 3, 4), whole(2, 5, 4), whole(2, 1, 4)]}),
    Case("LinSpace", {"start": np.float32(-1), "stop": np.float32(2), "num": np.int32(7)}),
    Case("LinSpace", {"start": np.float32(-1), "stop": np.float32(2), "num": np.int32(1)}),
    Case("Range", {"start": np.int32(3), "limit": np.int32(18), "delta": np.int32(4)}),
    Case("Range", {"start": np.float32(1), "limit": np.float32(0), "delta": np.float32(-0.25)}),
    Case("Pack", {"values": [X, X + 1]}, {"axis": 1}),
    Case("Pack", {"values": [np.float32(1), np.float32(2)]}),
    Case("Unpack", {"value": X}, {"num": 3, "axis": 1}),
    Case("Unpack", {"value": drawn(1, 4)}, {"num": 1}),
    Case("Split", {"axis": np.int32(2), "value": X}, {"num_split": 2}),
    Case("Split", {"axis": np.int32(0), "value": X}, {"num_split": 1}),
    Case("SplitV", {"value": X, "size_splits": whole(1, -1), "axis": np.int32(2)}, {"num_split": 2}),
    Case("SplitV", {"value": X, "size_splits": whole(3, 0), "axis": np.int32(1)}, {"num_split": 2}),
    Case("Pad", {"input": drawn(2, 3), "paddings": np.array([[1, 0], [2, 1]], np.int32)}),
    Case(
        "PadV2",
        {"input": drawn(2, 3), "paddings": np.array([[0, 0], [0, 3]], np.int32), "constant_values": np.float32(9)},
    ),
    Case("MirrorPad", {"input": drawn(3, 3), "paddings": np.array([[1, 2], [2, 0]], np.int32)}, {"mode": "REFLECT"}),
    Case("MirrorPad", {"input": drawn(3, 3), "paddings": np.array([[3, 2], [1, 0]], np.int32)}, {"mode": "SYMMETRIC"}),
    Case("BroadcastGradientArgs", {"s0": whole(2, 1, 4), "s1": whole(3, 1)}),
    Case("BroadcastGradientArgs", {"s0": np.zeros(0, np.int32), "s1": whole(3, 1)}),
    Case("BroadcastGradientArgs", {"s0": whole(1, 1), "s1": whole(1, 1)}),
    Case(
        "OneHot",
        {"indices": whole(0, 2, -1, 5), "depth": np.int32(3), "on_value": np.float32(2), "off_value": np.float32(-1)},
    ),
    Case(
        "OneHot",
        {"indices": whole(0, 2), "depth": np.int32(3), "on_value": np.float32(1), "off_value": np.float32(0)},
        {"axis": 0},
    ),
    Case("MatrixBandPart", {"input": drawn(2, 4, 5), "num_lower": np.int32(1), "num_upper": np.int32(-1)}),
    Case("MatrixBandPart", {"input": drawn(4, 4), "num_lower": np.int32(-1), "num_upper": np.int32(0)}),
    Case("SpaceToDepth", {"input": drawn(2, 4, 6, 3)}, {"block_size": 2}),
    Case("DepthToSpace", {"input": drawn(2, 2, 3, 8)}, {"block_size": 2}),
]
