"""Kernels of elementwise operations, against eager TensorFlow."""

import numpy as np

from tests.golden.graph.eager import Case
from tests.golden.graph.values import SPECIAL, drawn, names, positive

A, B = np.meshgrid(SPECIAL, SPECIAL)
WHOLE = np.array([[7, -7, 1, 12], [2**31 - 1, -(2**31), 3, -12]], np.int32)
DIVISORS = np.array([2, -3, 5, -5], np.int32)
BITS = np.array([[True], [False]])

FLOAT_PAIRS = names("""
    Add AddV2 Sub Mul RealDiv Div DivNoNan MulNoNan FloorDiv FloorMod Mod Maximum Minimum SquaredDifference Atan2 Xdivy
    Xlogy Xlog1py Greater GreaterEqual Less LessEqual Equal NotEqual
""")
WHOLE_PAIRS = names("""
    Add AddV2 Sub Mul Div TruncateDiv FloorDiv FloorMod TruncateMod Maximum Minimum SquaredDifference Greater
    GreaterEqual Less LessEqual Equal NotEqual BitwiseAnd BitwiseOr BitwiseXor
""")
ONE = names("""
    Neg Abs Sign Square Sqrt Rsqrt Reciprocal Inv Exp Expm1 Log Log1p Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh
    Acosh Atanh Floor Ceil Round Rint Erf Erfc IsFinite IsNan IsInf
""")
GRADIENTS = names("RsqrtGrad SqrtGrad ReciprocalGrad InvGrad TanhGrad")
HALF = ["Neg", "Abs", "Square", "Sqrt", "Exp", "Log", "Tanh", "Erf", "Floor"]

CASES = [
    *(Case(kind, {"x": A, "y": B}, label="special") for kind in FLOAT_PAIRS),
    *(Case(kind, {"x": drawn(2, 3), "y": positive(3)}, label="broadcast") for kind in FLOAT_PAIRS),
    *(Case(kind, {"x": drawn(0, 3), "y": drawn(3)}, label="empty") for kind in FLOAT_PAIRS),
    *(Case(kind, {"x": WHOLE, "y": DIVISORS}) for kind in WHOLE_PAIRS),
    *(
        Case(kind, {"x": np.array([[True], [False]]), "y": np.array([True, False])})
        for kind in ("LogicalAnd", "LogicalOr")
    ),
    *(Case(kind, {"x": WHOLE, "y": np.array([1, 2, 3, 4], np.int32)}) for kind in ("LeftShift", "RightShift")),
    Case("Pow", {"x": positive(4), "y": drawn(4)}),
    Case("Pow", {"x": A, "y": B}, label="special"),
    Case("Pow", {"x": np.array([2, -3, 5], np.int32), "y": np.array([3, 2, 0], np.int32)}),
    *(Case(kind, {"x": SPECIAL}, label="special", rtol=2e-6) for kind in ONE if kind not in ("Sin", "Cos", "Tan")),
    *(Case(kind, {"x": drawn(3, 5)}, rtol=2e-6) for kind in ONE),
    *(Case(kind, {"x": SPECIAL[[0, 1, 2, 3, 8, 10]]}, label="special") for kind in ("Sin", "Cos", "Tan")),
    *(Case(kind, {"x": drawn(3, 5, dtype=np.float16)}, rtol=2e-3, atol=1e-3) for kind in HALF),
    *(Case(kind, {"x": positive(6) * 4}, rtol=1e-5, atol=1e-5) for kind in ("Lgamma", "Digamma")),
    Case("Erf", {"x": drawn(4, dtype=np.float64)}),
    *(Case(kind, {"y": positive(4), "dy": drawn(4)}) for kind in GRADIENTS),
    *(Case(kind, {"y": SPECIAL, "dy": np.ones_like(SPECIAL)}, label="special") for kind in GRADIENTS),
    Case("LogicalNot", {"x": BITS}),
    *(
        Case(kind, {"x": np.linspace(0.05, 0.95, 7, dtype=np.float32)}, rtol=1e-5, atol=1e-5)
        for kind in ("Erfinv", "Ndtri")
    ),
    *(Case(kind, {"x": drawn(6) * 3}, rtol=1e-5, atol=1e-6) for kind in ("BesselI0e", "BesselI1e")),
    *(Case(kind, {"a": positive(6), "x": positive(6, seed=1)}, rtol=1e-4, atol=1e-5) for kind in ("Igamma", "Igammac")),
    Case("Zeta", {"x": positive(5) + 1, "q": positive(5, seed=1)}, rtol=1e-4),
    Case("NextAfter", {"x1": drawn(4), "x2": drawn(4, seed=1)}, rtol=0, atol=0),
    Case("Bitcast", {"input": drawn(4)}, {"type": np.int32}),
    Case("Invert", {"x": WHOLE}),
    Case("Neg", {"x": WHOLE}),
    Case("Abs", {"x": WHOLE}),
    Case("Sign", {"x": WHOLE}),
    Case("Square", {"x": WHOLE}),
    Case("AddN", {"inputs": [drawn(2, 3), drawn(2, 3, seed=1), drawn(2, 3, seed=2)]}),
    Case("AddN", {"inputs": [SPECIAL]}),
    *(Case("Cast", {"x": drawn(5) * 9}, {"DstT": kind}) for kind in (np.int32, np.float16, np.float64, np.bool_)),
    Case("Cast", {"x": np.array([-1.7, 1.7, -0.2], np.float32)}, {"DstT": np.int64}),
    Case("Cast", {"x": BITS}, {"DstT": np.float32}),
    Case("ClipByValue", {"t": SPECIAL, "clip_value_min": np.float32(-1), "clip_value_max": np.float32(2)}),
    Case("Select", {"condition": np.array([True, False]), "x": drawn(2, 3), "y": drawn(2, 3, seed=1)}),
    Case("Select", {"condition": drawn(2, 3) > 0, "x": drawn(2, 3), "y": drawn(2, 3, seed=1)}),
    Case("SelectV2", {"condition": BITS, "t": drawn(3), "e": np.float32(2)}),
    Case("SelectV2", {"condition": drawn(2, 1) > 0, "t": SPECIAL, "e": -SPECIAL}),
    Case("SelectV2", {"condition": np.bool_(True), "t": np.float32(1), "e": drawn(3)}),
    *(
        Case("SelectV2", {"condition": BITS, "t": np.array([1, 0, 3], kind), "e": np.array([0, 1, 2], kind)})
        for kind in (np.int8, np.bool_, np.float16, np.int64)
    ),
    *(Case(kind, {"input": SPECIAL}) for kind in ("Identity", "Snapshot", "StopGradient", "PreventGradient")),
    Case("PlaceholderWithDefault", {"input": SPECIAL}, {"shape": [None]}),
    Case("EnsureShape", {"input": drawn(2, 3)}, {"shape": [2, None]}),
    Case("CheckNumerics", {"tensor": drawn(3)}, {"message": "not finite"}),
    Case("IdentityN", {"input": [drawn(2), np.array([1, 2], np.int32)]}),
    Case("IdentityN", {"input": [drawn(2)]}),
]
