import sys
import textwrap
import warnings
from pathlib import Path

import autograd.numpy as anp
import numpy as np
import pytest

from ipusim.base.errors import ModelError
from ipusim.model.functions.counting import count_passes
from ipusim.model.functions.python_file import load_function
from ipusim.model.functions.python_layer import PythonLayer, PythonLoss
from ipusim.model.layers.layer import LayerCost
from ipusim.model.work import MeasuredWork, Product, VectorWork
from tests.machine_costs import vector_operations


def affine(x, W, b):
    return anp.matmul(x, W) + b


def shift(x, a, b):
    return anp.tanh(x + a + b)


def squared(x, labels):
    return anp.mean((x - labels) ** 2)


AFFINE = {"W": (20, 7), "b": (7,)}


def test_tanh_far_out_has_gradient_zero_without_a_warning():
    x = np.full((1, 1), 500.0, np.float32)
    layer = PythonLayer(anp.tanh)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grad, _ = layer.backward({}, layer.forward({}, x)[1], np.ones_like(x))
    assert grad == 0


def test_gradients_never_share_memory():
    layer = PythonLayer(shift, {"a": (2, 3), "b": (2, 3)})
    parameters = layer.initial_parameters((3,), np.random.default_rng(0), np.float64)
    grad = np.ones((2, 3))
    grad_x, gradients = layer.backward(parameters, layer.forward(parameters, np.ones((2, 3)))[1], grad)
    arrays = [grad, grad_x, gradients["a"], gradients["b"]]
    for i in (2, 3):
        assert not any(np.shares_memory(arrays[i], other) for j, other in enumerate(arrays) if j != i)


def test_parameter_that_the_function_ignores_has_gradient_zero():
    layer = PythonLayer(lambda x, a: x * 2.0, {"a": (3,)})
    parameters = {"a": np.ones(3)}
    grad_x, gradients = layer.backward(parameters, layer.forward(parameters, np.ones((2, 3)))[1], np.ones((2, 3)))
    np.testing.assert_array_equal(gradients["a"], np.zeros(3))
    np.testing.assert_array_equal(grad_x, np.full((2, 3), 2.0))


def test_parameters_start_as_declared():
    layer = PythonLayer(lambda x, g, W, b: x, {"g": (3,), "W": (3, 3), "b": (3,)}, {"g": 1.0})
    drawn = layer.initial_parameters((3,), np.random.default_rng(0), np.float32)
    np.testing.assert_array_equal(drawn["g"], np.ones(3, np.float32))
    np.testing.assert_array_equal(drawn["b"], np.zeros(3, np.float32))
    assert 0.5 < np.abs(drawn["W"]).max() <= 1.0
    with pytest.raises(
        ModelError, match="cannot fill 'h', because the function has no such parameter; the parameters are g"
    ):
        PythonLayer(lambda x, g: x, {"g": (3,)}, {"h": 1.0})


def test_shapes_that_do_not_fit_name_function_line_and_shapes():
    with pytest.raises(ModelError, match=rf"'affine' \(.*{Path(__file__).name}:\d+\) on \(2, 3\): ValueError: matmul"):
        PythonLayer(affine, AFFINE).output_shape((3,))


def test_output_must_keep_the_batch():
    with pytest.raises(ModelError, match=r"batch as its first axis: 2 samples of shape \(3,\) gave shape \(\)"):
        PythonLayer(anp.sum).output_shape((3,))


def test_function_without_gradient_is_refused_at_once():
    with pytest.raises(ModelError, match="NotImplementedError: VJP of ldexp"):
        PythonLayer(lambda x: anp.ldexp(x, 2)).output_shape((3,))


def test_python_loss_checks_labels_and_result():
    with pytest.raises(ModelError, match=r"declared for labels of shape \(\) .* got \(3,\)"):
        PythonLoss(squared).check_labels((3,), np.zeros((4, 3)))
    with pytest.raises(ModelError, match=r"must return a scalar.* gave shape \(2,\)"):
        PythonLoss(lambda x, labels: x[:, 0] * labels).check_labels((3,), np.zeros(4))


def test_counted_matmul_equals_the_formula():
    cost = PythonLayer(affine, AFFINE).cost((20,), 32, 4)
    assert (cost.forward.macs, cost.forward.vector) == (32 * 20 * 7, VectorWork(32 * 7))
    assert cost.forward.compute_sets == 1
    # The product reads x and W and writes z; the sum reads z and b and writes y.
    assert cost.forward.sram_bytes == 4 * (32 * 20 + 20 * 7 + 32 * 7 + 32 * 7 + 7 + 32 * 7)
    assert cost.backward.macs == 2 * 32 * 20 * 7
    assert cost.backward.vector == VectorWork(reductions=32 * 7)  # the bias gradient is a sum over the batch
    assert cost.backward.compute_sets == 2  # that sum goes over tiles
    first = PythonLayer(affine, AFFINE).cost((20,), 32, 4, need_input_gradient=False)
    assert first.backward.macs == 32 * 20 * 7


def test_elementwise_reductions_and_views_by_hand():
    cost = PythonLayer(lambda x: anp.reshape(x, (-1, 6)) * anp.sum(x, axis=(1, 2))[:, None]).cost((2, 3), 4, 2)
    assert (cost.forward.macs, cost.forward.vector) == (0, VectorWork(24, 24))  # a sum of 24, a product of 24
    assert PythonLayer(anp.exp).cost((10,), 2, 4).forward.vector == VectorWork(transcendentals=20)
    assert PythonLayer(lambda x: 1 / x).cost((10,), 2, 4).forward.vector == VectorWork(quotients=20)
    assert cost.forward.itemsize == 2


def test_loss_is_counted_too():
    cost = PythonLoss(squared, label_shape=(3,), label_dtype="float32").cost((3,), 4, 4)
    assert vector_operations(cost.forward) == 12 + 12 * 4 + 12  # difference, power, mean
    assert cost.forward.compute_sets == 1 + 1 + 2
    assert vector_operations(cost.backward) > 12


def test_errors_while_counting_are_explained():
    def even_batches_only(x):
        return anp.reshape(x, (2, -1, 3)).reshape((-1, 3))

    layer = PythonLayer(even_batches_only)
    assert layer.output_shape((3,)) == (3,)
    with pytest.raises(ModelError, match=r"'even_batches_only' \(.*py:\d+\) on \(5, 3\): ValueError: cannot reshape"):
        layer.cost((3,), 5, 4)


def test_given_cost_is_taken():
    given = LayerCost(MeasuredWork(cycles=10), MeasuredWork(cycles=20))
    assert PythonLayer(affine, AFFINE, stated_cost=given).cost((20,), 32, 4) is given


def test_load_function_runs_the_file_and_leaves_no_trace(tmp_path):
    text = """
        from __future__ import annotations
        from dataclasses import dataclass

        @dataclass
        class Scale:
            by: float = 3.0

        def triple(x):
            return Scale().by * x
    """
    (tmp_path / "mine.py").write_text(textwrap.dedent(text))
    before = set(sys.modules)
    assert load_function("mine.py:triple", tmp_path)(2.0) == 6.0
    assert load_function(f"{tmp_path}/mine.py:triple", tmp_path / "elsewhere")(1.0) == 3.0
    assert not [name for name in set(sys.modules) - before if "mine" in name]
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


@pytest.mark.parametrize(
    ("text", "reference", "message"),
    [
        ("x = 1", "mine.py", "form 'file.py:function', got 'mine.py'"),
        ("f = 3", "mine.py:f", "'f' in .*mine.py is of type int, not a function"),
        ("def f(:\n  pass", "mine.py:f", "mine.py:1: SyntaxError"),
        ("x = 1\ny = x / 0", "mine.py:f", "mine.py:2: ZeroDivisionError: division by zero"),
        ("\nimport no_such_module_at_all", "mine.py:f", "mine.py:2: ModuleNotFoundError: No module named"),
        ("raise SystemExit(3)", "mine.py:f", "mine.py:1: SystemExit: 3"),
        ("x = 1\n\0", "mine.py:f", "mine.py:.*null bytes"),
        ("x = 1", "mi\0ne.py:f", "no file can have this name: embedded null"),
    ],
)
def test_load_function_says_what_is_wrong(tmp_path, text, reference, message):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(ModelError, match=message):
        load_function(reference, tmp_path)


@pytest.mark.parametrize(
    ("function", "shapes", "products"),
    [
        (anp.dot, [(5, 3), (3, 2)], [Product(5, 3, 2)]),
        (anp.dot, [(3,), (3,)], [Product(1, 3, 1)]),
        (anp.outer, [(5,), (2,)], [Product(5, 1, 2)]),
        (lambda a, b: anp.tensordot(a, b, 2), [(5, 3, 4), (3, 4, 2)], [Product(5, 12, 2)]),
        (anp.matmul, [(5, 3), (3, 2)], [Product(5, 3, 2)]),
        (anp.matmul, [(7, 5, 3), (3, 2)], [Product(35, 3, 2)]),
        (anp.matmul, [(7, 5, 3), (7, 3, 2)], [Product(5, 3, 2, 7)]),
        (anp.matmul, [(7, 1, 5, 3), (4, 3, 2)], [Product(5, 3, 2, 28)]),
        (anp.matmul, [(5, 3), (3,)], [Product(5, 3, 1)]),
        (anp.matmul, [(3,), (7, 3, 2)], [Product(1, 3, 2, 7)]),
        (lambda a, b: anp.einsum("bhik,bhjk->bhij", a, b), [(2, 3, 5, 4), (2, 3, 6, 4)], [Product(5, 4, 6, 6)]),
        (lambda a, b: anp.einsum("ij,jk->k", a, b), [(5, 3), (3, 2)], [Product(1, 15, 2)]),
        (lambda a: anp.einsum("ij->i", a), [(5, 3)], [Product(5, 3, 1)]),
        (lambda a, b: anp.einsum(a, [0, 1], b, [1, 2], [0, 2]), [(5, 3), (3, 2)], [Product(5, 3, 2)]),
        (lambda a, b: anp.inner(a, b.T), [(5, 3), (3, 2)], [Product(5, 3, 2)]),
        (lambda a, b: a @ b, [(5, 3), (3, 2)], [Product(5, 3, 2)]),
        (lambda a: anp.sum(anp.tanh(a)), [(5, 3)], []),
    ],
)
def test_the_shapes_are_those_of_the_matrices(function, shapes, products):
    forward, _ = count_passes(function, [anp.ones(shape) for shape in shapes], range(len(shapes)))
    assert list(forward.products) == products


@pytest.mark.parametrize(
    ("name", "function"),
    [("slogdet", lambda a: anp.linalg.slogdet(a)[1]), ("eigh", lambda a: anp.sum(anp.linalg.eigh(a)[0]))],
)
def test_what_gives_several_arrays_is_no_change_of_view(name, function):
    with pytest.raises(ModelError, match=f"^the work of '{name}' cannot be counted: give the layer's cost$"):
        count_passes(function, [anp.eye(3)], [0])


def test_the_gradients_of_a_product_are_the_two_others_of_its_sizes():
    _, backward = count_passes(anp.dot, [anp.ones((5, 3)), anp.ones((3, 2))], [0, 1])
    assert [sorted((each.m, each.k, each.n)) for each in backward.products] == [[2, 3, 5]] * 2
