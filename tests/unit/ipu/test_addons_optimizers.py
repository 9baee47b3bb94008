"""Optimizers of Graphcore's addons: Keras' rules with dtypes of their own for the state."""

from __future__ import annotations

import numpy as np
import pytest

from tests.programs import tensorflow

START = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
GRADIENTS = [np.cos(np.arange(6, dtype=np.float32) + step).reshape(2, 3) for step in range(4)]


@pytest.fixture
def optimizers():
    tensorflow()
    from ipusim.ipu.keras import optimizers  # noqa: PLC0415

    return optimizers


def updated(optimizer):
    tf = tensorflow()
    variable = tf.Variable(START, name="kernel")
    for gradient in GRADIENTS:
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
    return variable.numpy()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Adam", {"epsilon": 1e-12}),
        ("SGD", {}),
        ("SGD", {"momentum": 0.9}),
        ("SGD", {"momentum": 0.9, "nesterov": True}),
    ],
)
def test_a_rule_is_that_of_keras(optimizers, name, options):
    own = getattr(optimizers, f"{name}IpuOptimizer")(0.1, **options)
    other = getattr(tensorflow().keras.optimizers.legacy, name)(0.1, **options)
    np.testing.assert_allclose(updated(own), updated(other), rtol=1e-5, atol=1e-6)


def lamb(decay, patterns=(), clip=np.inf):
    """LAMB by its formula, without a correction at the start."""
    value, m, v = START.astype(float), 0.0, 0.0
    for gradient in GRADIENTS:
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        direction = m / (np.sqrt(v) + 1e-6) + decay * value * ("decay" not in patterns)
        ratio = min(np.linalg.norm(value), clip) / np.linalg.norm(direction)
        value = value - 0.1 * direction * (1 if "norms" in patterns else ratio)
    return value


def test_lamb_is_its_formula(optimizers):
    kind = optimizers.LAMBIpuOptimizer
    plain = kind(0.1, weight_decay_rate=0.01, debiasing=False)
    np.testing.assert_allclose(updated(plain), lamb(0.01), rtol=1e-4)
    clipped = kind(0.1, debiasing=False, weight_norm_clip=0.5)
    np.testing.assert_allclose(updated(clipped), lamb(0, clip=0.5), rtol=1e-4)
    patterns = {"exclude_from_weight_decay": ["kern"], "exclude_from_layer_adaptation": ["nel:"]}
    excluding = kind(0.1, weight_decay_rate=0.5, debiasing=False, **patterns)
    np.testing.assert_allclose(updated(excluding), lamb(0.5, ("decay", "norms")), rtol=1e-4)
    assert kind.from_config(excluding.get_config()).get_config() == excluding.get_config()


def test_a_state_has_its_own_dtype(optimizers):
    adam = optimizers.AdamIpuOptimizer(0.1, m_dtype="float16", amsgrad=True, vhat_dtype="float16")
    near = updated(optimizers.AdamIpuOptimizer(0.1, amsgrad=True))
    np.testing.assert_allclose(updated(adam), near, atol=2e-2)
    assert [weight.dtype.name for weight in adam.weights[1:]] == ["float16", "float32", "float16"]
    assert optimizers.AdamIpuOptimizer.from_config(adam.get_config()).m_dtype == "float16"
