"""tf.einsum with an index more than once in an operand: NumPy's values, and gradients by differences."""

from __future__ import annotations

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad

from ipusim.base.errors import ProgramError
from ipusim.ipu import tensorflow as tf
from tests.special_points import assert_gradient

RNG = np.random.default_rng(3)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("ii->", [(3, 3)]),
        ("iii->i", [(2, 2, 2)]),
        ("iiii->i", [(2, 2, 2, 2)]),
        ("iji->ij", [(2, 3, 2)]),
        ("iji->j", [(2, 3, 2)]),
        ("ijji->ji", [(2, 3, 3, 2)]),
        ("...ii->...i", [(2, 3, 3)]),
        ("ii...->i...", [(3, 3, 2, 4)]),
        ("i...i->...i", [(3, 2, 3)]),
        ("...ii", [(2, 3, 3)]),
        (" i i , i j -> j ", [(3, 3), (3, 2)]),
        ("ab,bb,b", [(2, 3), (3, 3), (3,)]),
        ("ij,jk", [(2, 3), (3, 2)]),
    ],
)
def test_repeated_indices(equation, shapes):
    arrays = [RNG.normal(size=shape) for shape in shapes]
    result = tf.einsum(equation, *arrays)
    np.testing.assert_allclose(result, np.einsum(equation, *arrays), rtol=1e-12)
    weight = RNG.normal(size=np.shape(result))

    def value(*arrays):
        return anp.sum(tf.einsum(equation, *arrays) * weight)

    for place, array in enumerate(arrays):
        assert_gradient(grad(value, place)(*arrays), lambda: value(*arrays), array, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("equation", "shape", "text"),
    [
        ("ii->i", (3, 2), r"^inputs: expected axes of one size for index 'i', got \(3, 2\)"),
        ("ii->i", (3,), r"^einsum: expected tensors that go together, got IndexError"),
        ("ij,jk->ik", (2, 2), r"^einsum: expected tensors that go together, got ValueError"),
    ],
)
def test_operands_that_do_not_go_with_the_equation_are_refused(equation, shape, text):
    with pytest.raises(ProgramError, match=text):
        tf.einsum(equation, np.ones(shape))
