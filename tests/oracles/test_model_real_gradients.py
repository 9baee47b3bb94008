"""The gradients of a four-stage tanh network against numbers worked out outside ipusim."""

import numpy as np
import pytest

from ipusim.model.layers.layers import Dense
from ipusim.model.layers.losses import MeanSquaredError
from ipusim.model.layers.network import NamedLayer, Network
from ipusim.model.learning.optimizers import SGD
from ipusim.model.stages.build_stages import build_stages
from tests.formulas import split

TOTAL_LOSS = 1.199476564522408
NORMS_W = (0.144851349674, 0.247679034096, 0.232041943062, 0.216592091332)
NORMS_B = (0.054385701653, 0.123799985132, 0.131979525410, 0.193043516674)
SUM_OF_W_AFTER_STEP = 3.272176079932
COUNT = 8


@pytest.fixture
def case():
    draws = np.random.RandomState(0)
    W = [draws.randn(8, 8) / np.sqrt(8) for _ in range(4)]
    b = [0.1 * draws.randn(8) for _ in range(4)]
    X, Y = draws.randn(32, 8), draws.randn(32, 8)
    layers = tuple(NamedLayer(f"tanh{i}", Dense(8, "tanh")) for i in range(4))
    network = Network(layers, (8,), NamedLayer("mse", MeanSquaredError()))
    stages = build_stages(network, split(network, ["tanh1", "tanh2", "tanh3"]))
    parameters = [{f"tanh{i}/W": W[i].copy(), f"tanh{i}/b": b[i].copy()} for i in range(4)]
    return stages, parameters, X.reshape(COUNT, 4, 8), Y.reshape(COUNT, 4, 8)


def accumulate(stages, parameters, X, Y):
    """Run each micro-batch through all stages and back, adding up losses and gradients, each divided by COUNT."""
    total = 0.0
    sums = [{key: np.zeros_like(array) for key, array in own.items()} for own in parameters]
    for inputs, labels in zip(X, Y, strict=True):
        x, kept = inputs, []
        for stage, own in zip(stages, parameters, strict=True):
            x, saved = stage.bind(own).forward(x, labels)
            kept.append(saved)
        total += float(x) / COUNT
        grad = None
        for i in reversed(range(len(stages))):
            gradients = {}
            grad = stages[i].bind(parameters[i]).backward(kept[i], grad, i > 0, gradients.__setitem__)
            for key, value in gradients.items():
                sums[i][key] += value / COUNT
    return total, sums


def test_loss_and_gradient_norms(case):
    total, sums = accumulate(*case)
    assert total == pytest.approx(TOTAL_LOSS, rel=1e-13)
    assert [np.linalg.norm(s[f"tanh{i}/W"]) for i, s in enumerate(sums)] == pytest.approx(NORMS_W, abs=6e-13)
    assert [np.linalg.norm(s[f"tanh{i}/b"]) for i, s in enumerate(sums)] == pytest.approx(NORMS_B, abs=6e-13)


def test_weights_after_one_step(case):
    _, parameters, _, _ = case
    _, sums = accumulate(*case)
    for own, gradients in zip(parameters, sums, strict=True):
        SGD(0.1).apply(own, gradients, {})
    assert sum(own[f"tanh{i}/W"].sum() for i, own in enumerate(parameters)) == pytest.approx(
        SUM_OF_W_AFTER_STEP, abs=6e-13
    )
