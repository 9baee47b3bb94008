import numpy as np
import pytest

from ipusim.base.errors import ModelError
from ipusim.model.layers.layer import LayerCost, glorot_uniform
from ipusim.model.layers.layers import Dense, Reshape
from ipusim.model.layers.losses import MeanSquaredError, SoftmaxCrossEntropy
from ipusim.model.work import Product, VectorWork, Work


def test_dense_starts_glorot_uniform_with_zero_bias():
    parameters = Dense(300).initial_parameters((200,), np.random.default_rng(0), np.float32)
    limit = np.sqrt(6 / 500)
    W = parameters["W"]
    assert W.shape == (200, 300)
    assert W.dtype == np.float32
    assert limit * 0.999 < np.abs(W).max() <= np.float32(limit)
    assert W.std() == pytest.approx(limit / np.sqrt(3), rel=0.01)  # of a uniform distribution
    np.testing.assert_array_equal(parameters["b"], np.zeros(300, np.float32))


def test_glorot_counts_a_receptive_field_in_both_fans():
    W = glorot_uniform((3, 3, 16, 32), np.random.default_rng(0), np.float64)
    limit = np.sqrt(6 / (9 * 16 + 9 * 32))
    assert 0.99 * limit < np.abs(W).max() <= limit


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("loss", "labels"), [(SoftmaxCrossEntropy(), np.zeros(5, np.int32)), (MeanSquaredError(), np.zeros((5, 4)))]
)
def test_losses_preserve_the_dtype(dtype, loss, labels):
    value, kept = loss.forward({}, np.ones((5, 4), dtype), labels)
    grad, _ = loss.backward({}, kept, scale=0.5)
    assert value.dtype == grad.dtype == dtype


def test_reshape_sees_the_same_elements_in_other_axes_and_costs_nothing():
    x = np.arange(24.0).reshape(2, 3, 4)
    layer = Reshape((6, 2))
    y, saved = layer.forward({}, x)
    np.testing.assert_array_equal(y, np.arange(24.0).reshape(2, 6, 2))
    assert np.shares_memory(x, y)
    assert layer.output_shape((3, 4)) == (6, 2)
    np.testing.assert_array_equal(layer.backward({}, saved, y)[0], x)
    assert layer.backward({}, saved, y, need_input_gradient=False) == (None, {})
    assert layer.cost((3, 4), 2, 4) == LayerCost(Work(), Work())


def test_cross_entropy_is_stable_for_huge_logits():
    value, saved = SoftmaxCrossEntropy().forward({}, np.array([[1e4, 0.0], [-1e4, 0.0]]), np.array([0, 0]))
    assert float(value) == 5000.0
    np.testing.assert_array_equal(SoftmaxCrossEntropy().backward({}, saved)[0], [[0, 0], [-0.5, 0.5]])


def test_accuracy_counts_largest_logits():
    logits = np.array([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0], [5.0, 4.0]])
    assert SoftmaxCrossEntropy().accuracy(logits, np.array([1, 0, 0, 0])) == 0.75
    assert MeanSquaredError().accuracy(logits, logits) is None


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(4), "needs whole-number labels, got float64"),
        (np.zeros((4, 3), int), r"needs labels of shape \(\) for each sample, got \(3,\)"),
        (np.array([0, 1, 3]), "needs labels from 0 to 2, got label 3"),
        (np.array([0, -1, 2]), "needs labels from 0 to 2, got label -1"),
    ],
)
def test_cross_entropy_refuses_labels(labels, message):
    with pytest.raises(ModelError, match=message):
        SoftmaxCrossEntropy().check_labels((3,), labels)


def test_mean_squared_error_refuses_labels():
    with pytest.raises(ModelError, match="needs floating-point targets, got int64"):
        MeanSquaredError().check_labels((3,), np.zeros((4, 3), np.int64))
    with pytest.raises(ModelError, match=r"outputs of shape \(3,\).* got \(2,\)"):
        MeanSquaredError().check_labels((3,), np.zeros((4, 2)))


def test_dense_cost_by_hand():
    cost = Dense(10, "relu").cost((20,), batch=32, itemsize=4)
    assert cost.forward == Work(
        (Product(32, 20, 10),),
        vector=VectorWork(32 * 10 * 2),
        sram_bytes=4 * (32 * 20 + 20 * 10 + 10 + 32 * 10),
        compute_sets=2,
    )
    assert cost.backward == Work(
        (Product(20, 32, 10), Product(32, 10, 20)),
        vector=VectorWork(32 * 10 * 2, reductions=32 * 10),
        sram_bytes=4 * (2 * 32 * 10 + 32 * 20 + 200 + 10 + 200 + 32 * 20),
        compute_sets=1 + 2,
    )
    first = Dense(10, "relu").cost((20,), batch=32, itemsize=4, need_input_gradient=False)
    assert first.forward == cost.forward
    assert (cost.forward.macs, cost.backward.macs) == (32 * 20 * 10, 2 * 32 * 20 * 10)
    assert (first.backward.macs, first.backward.compute_sets) == (32 * 20 * 10, 3)
    assert Dense(10, use_bias=False).cost((20,), 32, 4).forward.compute_sets == 0
