"""Graphcore's operations on TensorFlow's graph: values and gradients are those of TensorFlow's own."""

import numpy as np
import pytest

STEPS, BATCH, ELEMENTS = 5, 3, 4


@pytest.fixture
def run(tf):
    """Runs tensors of a computation on simulated IPUs, or on the host, with the same variables."""
    from ipusim.ipu.ipu_compiler import compile  # noqa: PLC0415

    def call(build, *, on_ipus):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            tf.compat.v1.set_random_seed(1)
            made = compile(build, []) if on_ipus else build()
            session.run(tf.compat.v1.global_variables_initializer())
            return session.run(list(made))

    return call


def _inputs():
    return np.random.default_rng(0).standard_normal((STEPS, BATCH, ELEMENTS)).astype(np.float32)


@pytest.mark.parametrize("on_ipus", [True, False])
def test_slices_have_the_rows_and_gradients_of_gathered_ones(tf, run, on_ipus):
    """On simulated IPUs, and outside of compiled computations, where the host runs them."""

    def graphcores():
        from ipusim.ipu.slicing_ops import sequence_slice  # noqa: PLC0415

        dst, src = tf.ones([6, ELEMENTS]), tf.constant(_inputs()[:, 0])
        result = sequence_slice(dst, src, [2, 1], [1, 4], [0, 5], False)
        return [result, *tf.gradients(tf.reduce_sum(result**3), [dst, src])]

    def tensorflows():
        dst, src = tf.ones([6, ELEMENTS]), tf.constant(_inputs()[:, 0])
        result = tf.concat([src[1:3], dst[2:5], src[4:5]], 0)
        return [result, *tf.gradients(tf.reduce_sum(result**3), [dst, src])]

    for found, expected in zip(run(graphcores, on_ipus=on_ipus), run(tensorflows, on_ipus=False), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_results_of_a_computation_come_in_its_structure(tf):
    from ipusim.ipu.ipu_compiler import compile  # noqa: PLC0415

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        one, two = tf.constant(1), tf.constant(2)
        for build, expected in (
            (lambda: [one, (two, {"a": one + two})], [1, (2, {"a": 3})]),
            (lambda: {"b": two, "a": one}, {"b": 2, "a": 1}),
            (lambda: (one, tf.no_op()), (1,)),
            (lambda: one * 5, (5,)),
            (tf.no_op, None),
        ):
            assert session.run(compile(build)) == expected


def test_an_expression_of_elements_is_computed(tf, run):
    from ipusim.ipu.custom_ops import codelet_expression_op  # noqa: PLC0415

    def computed():
        return [codelet_expression_op(lambda a, b: a * b + 1, tf.constant([1.0, 2.0]), tf.constant([[3.0], [4.0]]))]

    (found,) = run(computed, on_ipus=True)
    np.testing.assert_array_equal(found, [[4, 7], [5, 9]])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("swish", lambda x: x / (1 + np.exp(-x))),
        ("hard_sigmoid", lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
        ("gelu", lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
    ],
)
def test_an_activation_is_its_formula(tf, run, name, expected):
    from ipusim.ipu import nn_ops  # noqa: PLC0415

    x = np.linspace(-4, 4, 33)
    (found,) = run(lambda: [getattr(nn_ops, name)(tf.constant(x))], on_ipus=True)
    np.testing.assert_allclose(found, expected(x), rtol=1e-6, atol=1e-9)
