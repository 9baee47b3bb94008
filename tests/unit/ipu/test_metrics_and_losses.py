"""Shapes of labels, predictions and weights in ``tf.metrics`` and ``tf.losses``, as in TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.ipu import tensorflow as tf

LABELS, PREDICTIONS, WEIGHTS = np.array([1, 0, 1, 1]), np.array([1, 1, 0, 1]), np.array([1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize("weights", [None, WEIGHTS, WEIGHTS[:, None]])
@pytest.mark.parametrize(
    ("name", "expected", "weighted"),
    [
        ("accuracy", 1 / 2, 5 / 10),
        ("precision", 2 / 3, 5 / 7),
        ("recall", 2 / 3, 5 / 8),
        ("mean_squared_error", 1 / 2, 5 / 10),
        ("root_mean_squared_error", 0.5**0.5, 0.5**0.5),
        ("mean_absolute_error", 1 / 2, 5 / 10),
    ],
)
def test_a_last_axis_of_one_element_is_squeezed_in_metrics(name, expected, weighted, weights):
    metric = getattr(tf.metrics, name)
    for labels in (LABELS, LABELS[:, None]):
        for predictions in (PREDICTIONS, PREDICTIONS[:, None]):
            value, _ = metric(labels, predictions, weights=weights)
            assert float(value) == pytest.approx(expected if weights is None else weighted)


def test_weights_of_rows_weigh_all_of_a_row():
    assert float(tf.metrics.mean(np.array([[1.0, 3.0], [5.0, 7.0]]), np.array([1.0, 3.0]))[0]) == 5.0


@pytest.mark.parametrize("name", ["accuracy", "precision", "recall", "mean_squared_error", "mean_absolute_error"])
def test_metrics_refuse_incompatible_shapes(name):
    with pytest.raises(ValueError, match=r"^Shapes \(4, 2\) and \(4,\) are incompatible$"):
        getattr(tf.metrics, name)(np.ones(4), np.ones((4, 2)))
    with pytest.raises(ValueError, match="weights can not be broadcast to values"):
        getattr(tf.metrics, name)(np.ones(4), np.ones(4), np.ones(3))


@pytest.mark.parametrize("shapes", [((4,), (4, 1)), ((4, 1), (4,)), ((4, 1), (4, 4))])
def test_the_mean_squared_error_refuses_incompatible_shapes(shapes):
    labels, predictions = map(np.ones, shapes)
    with pytest.raises(ValueError, match=r"^Shapes .* are incompatible$"):
        tf.losses.mean_squared_error(labels, predictions)


def test_the_mean_squared_error_of_a_placeholder_takes_any_batch():
    fed = tf.placeholder(np.float32, [None, 1])
    loss = tf.losses.mean_squared_error(np.ones((4, 1), np.float32), 2.0 * fed)
    with tf.Session() as session:
        assert session.run(loss, {fed: np.zeros((4, 1))}) == 1.0


def test_a_mean_is_called_with_values_and_weights():
    mean = tf.keras.metrics.Mean()
    assert mean(3.0) == 3.0
    assert mean([5.0, 100.0], sample_weight=[1.0, 0.0]) == 4.0
    assert mean([8.0], [2.0]) == 6.0
    assert mean.result() == 6.0
