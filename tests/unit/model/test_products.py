import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipusim.model.layers.layers import Dense
from ipusim.model.layers.products import add_product


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
    assert (np.abs(total - exact) <= 16 * np.finfo(dtype).eps * rows * bound).all()


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


def test_a_serialized_kernel_adds_its_gradients_to_what_is_there():
    dense, rng = Dense(4, serialization_factor=2), np.random.default_rng(1)
    parameters = dense.initial_parameters((6,), rng, np.float64)
    rest, totals = (np.ones((8, 6)), np.ones((8, 4))), {name: np.ones_like(array) for name, array in parameters.items()}
    dense.add_weight_gradients(parameters, rest, totals)
    for name, gradient in dense.backward_weights(parameters, rest).items():
        np.testing.assert_array_equal(totals[name], 1 + gradient)
