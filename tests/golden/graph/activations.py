"""Kernels of activation functions, softmax and cross entropies, against eager TensorFlow."""

import numpy as np

from tests.golden.graph.eager import Case
from tests.golden.graph.values import SPECIAL, drawn, names, whole

ONES = np.ones_like(SPECIAL)
ONE = names("Relu Relu6 Elu Selu Softplus Softsign LeakyRelu")
OF_INPUT = ["ReluGrad", "Relu6Grad", "SoftplusGrad", "SoftsignGrad", "LeakyReluGrad"]
OF_RESULT = names("EluGrad SeluGrad")
LOGITS = drawn(4, 6) * 5
LARGE = np.array([[1e4, -1e4, 0], [0, 0, 0], [-1e4, -1e4, -1e4]], np.float32)
SHARES = np.array([[0.5, 0.5, 0], [0, 1, 0], [0.2, 0.3, 0.5]], np.float32)

CASES = [
    *(Case(kind, {"features": SPECIAL}, label="special") for kind in ONE),
    *(Case(kind, {"features": drawn(3, 4) * 4}, rtol=2e-6) for kind in ONE),
    *(Case(kind, {"features": drawn(3, 4, dtype=np.float16)}, rtol=2e-3, atol=1e-3) for kind in ONE),
    *(Case(kind, {"gradients": ONES, "features": SPECIAL}, label="special") for kind in OF_INPUT),
    *(Case(kind, {"gradients": drawn(3, 4), "features": drawn(3, 4, seed=1) * 4}, rtol=2e-6) for kind in OF_INPUT),
    *(Case(kind, {"gradients": ONES, "outputs": SPECIAL}, label="special") for kind in OF_RESULT),
    *(Case(kind, {"gradients": drawn(3, 4), "outputs": drawn(3, 4, seed=1)}, rtol=2e-6) for kind in OF_RESULT),
    Case("Sigmoid", {"x": SPECIAL}, label="special"),
    Case("Sigmoid", {"x": drawn(3, 4) * 8}, rtol=2e-6),
    Case("Sigmoid", {"x": drawn(5, dtype=np.float16)}, rtol=2e-3, atol=1e-3),
    Case("SigmoidGrad", {"y": drawn(4), "dy": drawn(4, seed=1)}),
    Case("LeakyRelu", {"features": drawn(4)}, {"alpha": 0.3}),
    Case("LeakyReluGrad", {"gradients": drawn(4), "features": drawn(4, seed=1)}, {"alpha": 0.3}),
    *(Case(kind, {"logits": LOGITS}, rtol=2e-6) for kind in ("Softmax", "LogSoftmax")),
    *(Case(kind, {"logits": LARGE}, label="large") for kind in ("Softmax", "LogSoftmax")),
    *(Case(kind, {"logits": LOGITS.astype(np.float16)}, rtol=4e-3, atol=2e-3) for kind in ("Softmax", "LogSoftmax")),
    Case("SparseSoftmaxCrossEntropyWithLogits", {"features": LOGITS, "labels": whole(0, 5, 2, 2)}, rtol=3e-6),
    Case("SparseSoftmaxCrossEntropyWithLogits", {"features": LARGE, "labels": whole(0, 1, 2, dtype=np.int64)}),
    Case("SoftmaxCrossEntropyWithLogits", {"features": LARGE / 1e4, "labels": SHARES}, rtol=3e-6),
    Case("SoftmaxCrossEntropyWithLogits", {"features": LARGE, "labels": SHARES}, label="large"),
]
