"""Every layer's and loss's gradient against finite differences, and against autograd of its own formula."""

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad as autograd_grad

from ipusim.model.functions.python_layer import PythonLayer, PythonLoss
from ipusim.model.layers.layers import Dense, Flatten
from ipusim.model.layers.losses import MeanSquaredError, SoftmaxCrossEntropy
from tests.formulas import assert_gradient, with_special_points


def swish(x, W, b):
    z = anp.dot(x, W) + b
    return z / (1 + anp.exp(-z))


def mean_cross_entropy(x, labels):
    shifted = x - anp.max(x, axis=1, keepdims=True)
    logs = shifted - anp.log(anp.sum(anp.exp(shifted), axis=1, keepdims=True))
    return -anp.mean(logs[anp.arange(len(labels)), labels])


def scaled_square(x, labels, scale):
    return anp.mean(scale * (x - labels) ** 2)


LAYERS = {
    "flatten": (Flatten(), (3, 2)),
    "identity": (Dense(4), (5,)),
    "relu": (Dense(4, "relu"), (5,)),
    "tanh": (Dense(4, "tanh"), (5,)),
    "no bias": (Dense(4, "tanh", use_bias=False), (5,)),
    "last axis": (Dense(4, "relu"), (3, 5)),
    "python": (PythonLayer(swish, {"W": (5, 4), "b": (4,)}), (5,)),
}

LOSSES = {
    "cross entropy": (SoftmaxCrossEntropy(), (4,), "classes"),
    "cross entropy of sequences": (SoftmaxCrossEntropy(), (3, 4), "classes"),
    "mse": (MeanSquaredError(), (3, 2), "targets"),
    "python": (PythonLoss(mean_cross_entropy), (4,), "classes"),
    "python with a parameter": (PythonLoss(scaled_square, {"scale": (2,)}, {"scale": 1.5}), (2,), "targets"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer_gradients_equal_finite_differences(name):
    layer, shape = LAYERS[name]
    rng = np.random.default_rng(1)
    parameters = layer.initial_parameters(shape, rng, np.float64)
    for key in parameters:
        parameters[key] = rng.standard_normal(parameters[key].shape)
    x = with_special_points(rng.standard_normal((3, *shape)))
    weight = rng.standard_normal((3, *layer.output_shape(shape)))

    def scalar():
        return float((layer.forward(parameters, x)[0] * weight).sum())

    grad_x, gradients = layer.backward(parameters, layer.forward(parameters, x)[1], weight)
    assert_gradient(grad_x, scalar, x, rtol=1e-6, atol=1e-8)
    assert list(gradients) == list(layer.parameter_shapes(shape))
    for key, value in gradients.items():
        assert_gradient(value, scalar, parameters[key], rtol=1e-6, atol=1e-8)
    skipped, same = layer.backward(parameters, layer.forward(parameters, x)[1], weight, need_input_gradient=False)
    assert skipped is None
    for key, value in gradients.items():
        np.testing.assert_array_equal(same[key], value)


@pytest.mark.parametrize("name", LOSSES)
def test_loss_gradients_equal_finite_differences(name):
    loss, shape, kind = LOSSES[name]
    rng = np.random.default_rng(2)
    x = with_special_points(rng.standard_normal((3, *shape)))
    labels = rng.integers(0, shape[-1], (3, *shape[:-1])) if kind == "classes" else rng.standard_normal((3, *shape))
    parameters = loss.initial_parameters(shape, rng, np.float64)

    def scalar():
        return 2.5 * float(loss.forward(parameters, x, labels)[0])

    grad_x, gradients = loss.backward(parameters, loss.forward(parameters, x, labels)[1], scale=2.5)
    assert_gradient(grad_x, scalar, x, rtol=1e-6, atol=1e-8)
    for key, value in gradients.items():
        assert_gradient(value, scalar, parameters[key], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("activation", "function"),
    [("identity", lambda z: z), ("relu", lambda z: anp.maximum(z, 0)), ("tanh", anp.tanh)],
)
def test_dense_equals_autograd(activation, function):
    rng = np.random.default_rng(3)
    W, b, x, weight = (rng.standard_normal(s) for s in ((5, 4), (4,), (6, 5), (6, 4)))

    def scalar(x, W, b):
        return anp.sum(function(anp.dot(x, W) + b) * weight)

    layer = Dense(4, activation)
    grad_x, gradients = layer.backward({"W": W, "b": b}, layer.forward({"W": W, "b": b}, x)[1], weight)
    for ours, argument in ((grad_x, 0), (gradients["W"], 1), (gradients["b"], 2)):
        np.testing.assert_allclose(ours, autograd_grad(scalar, argument)(x, W, b), rtol=1e-13, atol=1e-14)


def test_cross_entropy_equals_autograd():
    rng = np.random.default_rng(4)
    x, labels = rng.standard_normal((6, 4)), rng.integers(0, 4, 6)
    loss = SoftmaxCrossEntropy()
    value, saved = loss.forward({}, x, labels)
    assert float(value) == pytest.approx(mean_cross_entropy(x, labels), rel=1e-14)
    np.testing.assert_allclose(
        loss.backward({}, saved)[0], autograd_grad(mean_cross_entropy)(x, labels), rtol=1e-12, atol=1e-15
    )
