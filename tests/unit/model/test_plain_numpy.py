"""Plain NumPy inside a `python:` layer or loss: refused when it is tried, where its gradient would be lost."""

import copy
import math
import re

import autograd.numpy as anp
import numpy as np
import pytest
import scipy.interpolate
import scipy.special
from autograd import grad
from autograd.extend import defvjp, primitive
from autograd.tracer import getval

from ipusim.base.errors import ModelError
from ipusim.model.functions.python_layer import PythonLayer, PythonLoss
from tests.formulas import assert_gradient

X = np.arange(1.0, 7.0).reshape(2, 3)
SQUARE = np.ones((3, 3))


def adding_in_place(x):
    total = np.zeros(x.shape)
    total += x
    return total


def filling(x):
    buffer = np.empty(x.shape)
    buffer[:] = x
    return buffer


def changing(x):
    doubled = 2 * x
    doubled[0] = 1
    return doubled


#: What a layer does with its input, and what the message calls it.
REFUSED = {
    "ufunc": (lambda x: np.tanh(x) * 2, "numpy.tanh"),
    "ufunc of two": (lambda x: np.maximum(x, 0), "numpy.maximum"),
    "method of a ufunc": (lambda x: np.add.reduce(x) * 2, "numpy.add.reduce"),
    "output of a ufunc": (lambda x: np.add(x, 1, out=np.empty((2, 3))), "assignment in place, by numpy.add"),
    "in place": (adding_in_place, "assignment in place, by numpy.add"),
    "product": (lambda x: np.dot(x, SQUARE), "numpy.dot"),
    "product by einsum": (lambda x: np.einsum("ij,jk", x, SQUARE), "numpy.einsum"),
    "reduction": (lambda x: np.sum(x, axis=0), "numpy.sum"),
    "choice": (lambda x: np.where(x > 2, x, 0.0), "numpy.where"),
    "list of arrays": (lambda x: np.concatenate([x, x]), "numpy.concatenate"),
    "linear algebra": (lambda x: np.linalg.norm(x) * 2, "numpy.linalg.norm"),
    "conversion": (lambda x: np.asarray(x) * 2, "np.asarray"),
    "conversion of a list": (lambda x: np.array(list(x)), "np.array"),
    "elements of a plain array": (filling, "assignment to elements of a plain array"),
    "elements": (changing, "assignment to elements"),
    "math": (lambda x: x * math.sqrt(x[0, 0]), "math.sqrt"),
    "number": (lambda x: x * float(x[0, 0]), "float"),
    "value": (lambda x: np.tanh(getval(x)), "its value, as getval returns it,"),
    "list inside": (lambda x: anp.linalg.multi_dot([x, SQUARE]), "numpy.linalg.multi_dot"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_plain_numpy_is_refused_with_function_line_and_remedy(name):
    function, called = REFUSED[name]
    layer, here = PythonLayer(function), function.__code__.co_filename
    text = (
        rf"^python function '{function.__name__}': {re.escape(called)} \({re.escape(here)}:\d+\) takes an array out of"
    )
    for action in (lambda: layer.output_shape((3,)), lambda: layer.forward({}, X), lambda: layer.cost((3,), 2, 4)):
        with pytest.raises(ModelError, match=text) as caught:
            action()
        assert re.search("autograd|to a new name$", str(caught.value).partition("takes")[2])
    with pytest.raises(ModelError, match=text.replace(re.escape(function.__name__), "<lambda>")):
        PythonLoss(lambda x, labels: anp.sum(function(x))).check_labels((3,), np.ones(2))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: SQUARE[:2] * x,
        lambda x: np.float32(2) - x,
        lambda x: np.ones((2, 2)) @ x,
        lambda x: np.ones((2, 3)) / (x + 3) - SQUARE[0] ** x,
        lambda x: x * (2.5 * SQUARE[:2] < x),
        lambda x: x * np.shape(x)[0] + np.zeros_like(x) + np.ndim(x) + np.size(x),
        lambda x: max(x[0, 0], x[1, 1]) * x if x.sum() > 0 else -x,
        lambda x: x * np.tanh(SQUARE[:2]) * math.sqrt(2),
        lambda x: anp.array([list(row) for row in copy.deepcopy(x)]),
        lambda x: x * anp.argmax(x),
    ],
)
def test_operators_forms_and_constants_may_be_plain(function):
    """With the gradient that finite differences say."""
    layer, x, weights = PythonLayer(function), X.copy(), np.random.default_rng(0).normal(size=X.shape)
    found, _ = layer.backward({}, layer.forward({}, x)[1], weights)
    assert_gradient(found, lambda: np.sum(weights * layer.forward({}, x)[0]), x)


def test_plain_numpy_on_labels_is_fine_and_a_gradient_of_zero_can_be_meant():
    @primitive
    def stopped(x):
        return x

    defvjp(stopped, lambda ans, x: lambda g: 0 * g)
    loss = PythonLoss(lambda x, labels: anp.sum(stopped(x) * np.eye(3)[labels]), label_dtype="int32")
    value, saved = loss.forward({}, X, np.array([0, 2]))
    assert value == X[0, 0] + X[1, 2]
    assert not loss.backward({}, saved, 1.0)[0].any()


def test_a_branch_taken_later_is_refused_as_well():
    layer = PythonLayer(lambda x: np.tanh(x) if anp.max(x) > 5 else anp.tanh(x))
    layer.forward({}, X - 3)
    with pytest.raises(ModelError, match=r"^python function '<lambda>': numpy\.tanh "):
        layer.forward({}, X)


def test_the_line_in_a_function_that_calls_another_is_named():
    for function, named in (
        (lambda x: scipy.special.erf(x) + np.vectorize(math.erf)(x), r"erf \(.*\)"),
        (lambda x: 2 * scipy.interpolate.interp1d([0, 100], [0, 1])(x), r".*interp1?d? \(.*\)"),
    ):
        with pytest.raises(ModelError, match=rf"^python function '<lambda>': {named} takes an array"):
            PythonLayer(function).output_shape((3,))


def test_what_else_uses_autograd_keeps_its_own_arrays():
    PythonLayer(anp.tanh).forward({}, X)
    assert grad(lambda x: np.tanh(getval(x)) * x)(1.0) == pytest.approx(math.tanh(1))
