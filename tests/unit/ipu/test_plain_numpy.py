"""Plain NumPy inside a stage: refused at the first trace, where its gradient would be lost."""

from __future__ import annotations

import copy
import math
import re

import autograd.numpy as anp
import numpy as np
import pytest
import scipy.interpolate
import scipy.special
from autograd.extend import defvjp, primitive
from autograd.tracer import getval

from ipusim.base.errors import ModelError, UntraceableError
from ipusim.ipu import get_variable
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat
from ipusim.ipu.optimizers import GradientDescentOptimizer
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput
from ipusim.ipu.runtime import layers
from ipusim.model.functions.python_layer import PythonLayer, PythonLoss
from ipusim.model.layers.losses import MeanSquaredError

X = np.arange(1.0, 7.0).reshape(2, 3)
SQUARE = np.ones((3, 3))


def learn(*outputs):
    return OptimizerFunctionOutput(GradientDescentOptimizer(0.01), outputs[-1])


def times_w(x):
    return x * get_variable("w", np.ones(3))


def square(x):
    return anp.mean((x - 3) ** 2)


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


#: What a stage does with its input, and what the message calls it.
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


def train(run, stages):
    return run(
        computational_stages=stages,
        gradient_accumulation_count=2 * len(stages),
        infeed_queue=IPUInfeedQueue(repeat([X])),
        optimizer_function=learn,
    )


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_plain_numpy_is_refused_with_stage_function_line_and_remedy(name, place, run):
    function, called = REFUSED[name]
    stages = [times_w, lambda x: x, square]
    inner = stages[place]
    stages[place] = (lambda x: inner(function(x))) if place else (lambda x: function(inner(x)))
    here = function.__code__.co_filename
    text = rf"^stage 'pipeline_stage_{place}': {re.escape(called)} \({re.escape(here)}:\d+\) takes an array out of the "
    with pytest.raises(ModelError, match=text) as caught:
        train(run, stages)
    assert re.search("autograd|to a new name$", str(caught.value).partition("takes")[2])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: SQUARE[:2] * x,
        lambda x: np.float32(2) - x,
        lambda x: np.ones((3, 2)) @ x,
        lambda x: np.ones((2, 3)) / (x + 3) - SQUARE[0] ** x,
        lambda x: x * (2.5 * SQUARE[:2] < x),
        lambda x: x * np.shape(x)[0] + np.zeros_like(x) + np.ndim(x) + np.size(x),
        lambda x: max(x[0, 0], x[1, 1]) * x if x.sum() > 0 else -x,
        lambda x: x * np.tanh(SQUARE[:2]) * math.sqrt(2),
        lambda x: anp.array([list(row) for row in copy.deepcopy(x)]),
        lambda x: x * anp.argmax(x),
    ],
)
def test_operators_forms_and_constants_may_be_plain(function, run):
    """With the gradient that finite differences say."""
    found = train(run, [times_w, function, square])

    def loss(w):
        return float(square(function(X * w)))

    step, expected = 1e-6, np.ones(3)
    for place in range(3):
        shift = step * np.eye(3)[place]
        expected[place] -= 0.01 * 6 * (loss(np.ones(3) + shift) - loss(np.ones(3) - shift)) / (2 * step)
    assert found.variables["w"] == pytest.approx(expected, rel=1e-6)


def test_plain_numpy_on_labels_is_fine_and_a_gradient_of_zero_can_be_meant(run):
    @primitive
    def stopped(x):
        return x

    defvjp(stopped, lambda ans, x: lambda g: 0 * g)

    def loss(x, labels):
        return anp.sum(stopped(x) * np.eye(3)[labels])

    found = run(
        computational_stages=[lambda x, labels: (times_w(x), labels), loss],
        infeed_queue=IPUInfeedQueue(repeat([(X, np.array([0, 2]))])),
        optimizer_function=learn,
    )
    assert found.variables["w"].tolist() == [1, 1, 1]


def test_a_branch_taken_later_is_refused_as_well(run):
    calls = []

    def later(x):
        calls.append(x)
        return np.tanh(x) if len(calls) > 8 else anp.tanh(x)

    with pytest.raises(UntraceableError, match=r"^stage 'pipeline_stage_1': numpy\.tanh "):
        train(run, [times_w, later, square])


def test_inference_refuses_it_too(run):
    with pytest.raises(ModelError, match=r"^stage 'pipeline_stage_0': numpy\.tanh "):
        run(computational_stages=[lambda x: np.tanh(x) * 2, lambda x: x])


def double_in_place(x):
    x *= 2
    return x


@pytest.mark.parametrize(
    "stages",
    [
        [double_in_place, lambda x: x],
        [lambda x: x, lambda x: x.sort() or x],
        [lambda x: double_in_place(get_variable("w", np.ones(2))) * x, lambda x: x],
    ],
)
def test_what_a_stage_is_given_cannot_be_changed(stages, run):
    data = np.ones(2, np.float32)
    with pytest.raises(ModelError, match="read-only: others use the array too, so assign the result to a new name"):
        run(computational_stages=stages, infeed_queue=IPUInfeedQueue(repeat([data])))
    assert data.tolist() == [1, 1]


def test_arrays_in_a_list_among_the_results_are_refused(run):
    with pytest.raises(ModelError, match="expected an array or a tuple of arrays, got a list in it"):
        run(computational_stages=[lambda x: (x, [x, x]), lambda x, y: x])


def of_mean_squared_error(labels):
    return lambda x, y: layers.loss("mse", MeanSquaredError(), x, labels(y))


def test_a_loss_takes_real_labels_that_depend_on_no_variable(run):
    def train_on(labels):
        return run(
            computational_stages=[lambda x, y: (times_w(x), y), of_mean_squared_error(labels)],
            infeed_queue=IPUInfeedQueue(repeat([(X, X)])),
            optimizer_function=learn,
        )

    # The mean over six elements of (w x - 2 x)^2 at w = 1, of eight micro-batches.
    gradient = 8 * np.sum(2 * (X - 2 * X) * X, axis=0) / X.size
    assert train_on(lambda y: 2 * y).variables["w"] == pytest.approx(1 - 0.01 * gradient)
    with pytest.raises(ModelError, match="loss 'mse': expected labels that depend on no variable"):
        train_on(lambda y: y * get_variable("scale", np.ones(3)))


def test_the_line_in_a_function_that_calls_another_is_named(run):
    def helper(x):
        return scipy.special.erf(x) + np.vectorize(math.erf)(x)

    with pytest.raises(ModelError, match=r"^stage 'pipeline_stage_1': erf \(.*\) takes an array"):
        train(run, [times_w, helper, square])
    with pytest.raises(ModelError, match=r"^stage 'pipeline_stage_1': .*interp1?d? \(.*\) takes an array"):
        train(run, [times_w, lambda x: 2 * scipy.interpolate.interp1d([0, 100], [0, 1])(x), square])


def test_what_else_uses_autograd_keeps_its_own_arrays(run):
    from autograd import grad  # noqa: PLC0415 - beside a stage, as a user might

    train(run, [times_w, square])
    assert grad(lambda x: np.tanh(getval(x)) * x)(1.0) == pytest.approx(math.tanh(1))


def test_a_layer_of_a_scenario_is_refused_with_its_function():
    layer, loss = PythonLayer(lambda x: np.maximum(x, 0)), PythonLoss(lambda x, y: np.mean(x - y), label_dtype="f8")
    for action in (lambda: layer.output_shape((3,)), lambda: layer.forward({}, X), lambda: layer.cost((3,), 2, 4)):
        with pytest.raises(ModelError, match=r"^python function '<lambda>': numpy\.maximum \(.*:\d+\) takes an array"):
            action()
    with pytest.raises(ModelError, match=r"^python function '<lambda>': numpy\.mean \("):
        loss.check_labels((), np.ones(2))
