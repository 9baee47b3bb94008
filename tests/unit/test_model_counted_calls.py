"""Products that are counted in a function have the shapes of its matrices, and lose no multiply-accumulate."""

import autograd.numpy as np
import pytest

from ipusim.base.errors import ModelError
from ipusim.model.functions.counting import count_passes
from ipusim.model.work import Product


@pytest.mark.parametrize(
    ("function", "shapes", "products"),
    [
        (np.dot, [(5, 3), (3, 2)], [Product(5, 3, 2)]),
        (np.dot, [(3,), (3,)], [Product(1, 3, 1)]),
        (np.outer, [(5,), (2,)], [Product(5, 1, 2)]),
        (lambda a, b: np.tensordot(a, b, 2), [(5, 3, 4), (3, 4, 2)], [Product(5, 12, 2)]),
        (np.matmul, [(5, 3), (3, 2)], [Product(5, 3, 2)]),
        (np.matmul, [(7, 5, 3), (3, 2)], [Product(35, 3, 2)]),
        (np.matmul, [(7, 5, 3), (7, 3, 2)], [Product(5, 3, 2, 7)]),
        (np.matmul, [(7, 1, 5, 3), (4, 3, 2)], [Product(5, 3, 2, 28)]),
        (np.matmul, [(5, 3), (3,)], [Product(5, 3, 1)]),
        (np.matmul, [(3,), (7, 3, 2)], [Product(1, 3, 2, 7)]),
        (lambda a, b: np.einsum("bhik,bhjk->bhij", a, b), [(2, 3, 5, 4), (2, 3, 6, 4)], [Product(5, 4, 6, 6)]),
        (lambda a, b: np.einsum("ij,jk->k", a, b), [(5, 3), (3, 2)], [Product(1, 15, 2)]),
        (lambda a: np.einsum("ij->i", a), [(5, 3)], [Product(5, 3, 1)]),
        (lambda a, b: np.einsum(a, [0, 1], b, [1, 2], [0, 2]), [(5, 3), (3, 2)], [Product(5, 3, 2)]),
        (lambda a, b: np.inner(a, b.T), [(5, 3), (3, 2)], [Product(5, 3, 2)]),
        (lambda a, b: a @ b, [(5, 3), (3, 2)], [Product(5, 3, 2)]),
        (lambda a: np.sum(np.tanh(a)), [(5, 3)], []),
    ],
)
def test_the_shapes_are_those_of_the_matrices(function, shapes, products):
    forward, _ = count_passes(function, [np.ones(shape) for shape in shapes], range(len(shapes)))
    assert list(forward.products) == products


@pytest.mark.parametrize(
    ("name", "function"),
    [("slogdet", lambda a: np.linalg.slogdet(a)[1]), ("eigh", lambda a: np.sum(np.linalg.eigh(a)[0]))],
)
def test_what_gives_several_arrays_is_no_change_of_view(name, function):
    with pytest.raises(ModelError, match=f"^the work of '{name}' cannot be counted: give the layer's cost$"):
        count_passes(function, [np.eye(3)], [0])


def test_the_gradients_of_a_product_are_the_two_others_of_its_sizes():
    _, backward = count_passes(np.dot, [np.ones((5, 3)), np.ones((3, 2))], [0, 1])
    assert [sorted((each.m, each.k, each.n)) for each in backward.products] == [[2, 3, 5]] * 2
