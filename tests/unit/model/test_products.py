import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipusim.model.layers.layers import Dense
from ipusim.model.layers.products import add_product


def tolerance(dtype):
    return 16 * np.finfo(dtype).eps


@given(
    rows=st.integers(1, 300),
    m=st.integers(1, 40),
    n=st.integers(1, 40),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    seed=st.integers(0, 2**16),
)
def test_adds_the_product_in_place(rows, m, n, dtype, seed):
    rng = np.random.default_rng(seed)
    left, right, start = (rng.uniform(-1, 1, shape).astype(dtype) for shape in ((rows, m), (rows, n), (m, n)))
    total = start.copy()
    add_product(total, left, right)
    exact = start.astype(np.float64) + left.astype(np.float64).T @ right.astype(np.float64)
    bound = np.abs(start) + np.abs(left).astype(np.float64).T @ np.abs(right).astype(np.float64)
    assert total.dtype == dtype
    assert (np.abs(total - exact) <= tolerance(dtype) * rows * bound).all()


@pytest.mark.parametrize("order", ["rows in columns", "every second row", "total by columns"])
def test_adds_whatever_the_arrays_layout(order):
    rng = np.random.default_rng(0)
    left, right, total = rng.standard_normal((12, 5)), rng.standard_normal((12, 7)), rng.standard_normal((5, 7))
    if order == "rows in columns":
        left, right = np.asfortranarray(left), np.asfortranarray(right)
    elif order == "every second row":
        left, right = left[::2], right[::2]
    else:
        total = np.asfortranarray(total)
    expected = total + np.einsum("rm,rn->mn", left, right)
    add_product(total, left, right)
    np.testing.assert_allclose(total, expected, rtol=1e-13, atol=1e-14)


def test_a_wider_total_takes_products_of_narrow_arrays():
    left, right = np.full((2, 1), 3, np.float32), np.full((2, 1), 5, np.float32)
    total = np.array([[2.0**40]])
    add_product(total, left, right)
    assert total.tolist() == [[2.0**40 + 30]]


@pytest.mark.parametrize(
    "dense", [Dense(4, "tanh"), Dense(4, "relu", use_bias=False), Dense(4, serialization_factor=2)]
)
@pytest.mark.parametrize("need_input_gradient", [True, False])
def test_dense_adds_what_it_would_return(dense, need_input_gradient):
    rng = np.random.default_rng(1)
    parameters = dense.initial_parameters((3, 6), rng, np.float64)
    x, grad = rng.standard_normal((2, 3, 6)), rng.standard_normal((2, 3, 4))
    _, saved = dense.forward(parameters, x)
    totals = {name: rng.standard_normal(array.shape) for name, array in parameters.items()}
    before = {name: array.copy() for name, array in totals.items()}
    dx, gradients = dense.backward(parameters, saved, grad, need_input_gradient)
    again, rest = dense.backward_input(parameters, saved, grad, need_input_gradient)
    dense.add_weight_gradients(parameters, rest, totals)
    assert gradients.keys() == totals.keys()
    for name, gradient in gradients.items():
        np.testing.assert_allclose(totals[name], before[name] + gradient, rtol=1e-12, atol=1e-14)
    if need_input_gradient:
        np.testing.assert_array_equal(again, dx)
    else:
        assert again is dx is None
