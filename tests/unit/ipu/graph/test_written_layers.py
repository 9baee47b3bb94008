"""Layers that programs write out in arithmetic, and arithmetic that is close to one and none."""

import math
import operator

import numpy as np
import pytest

from tests.effort import sampled
from tests.traced_steps import Model, build, initial_values, micro_batches, traced_work

BATCH, TOKENS, ELEMENTS = 4, 6, 8


def _layers(tf, function, dtype=np.float32):
    """Kind of each layer of a stage on tokens, its activation if it has one, and the types of all other nodes."""

    def stage(x):
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits([0] * BATCH, function(x)))

    shape = ((BATCH, ELEMENTS), dtype) if dtype is np.float32 else ((BATCH, TOKENS), dtype)
    model = Model([stage], [shape], lambda v1: v1.train.GradientDescentOptimizer(0.1))
    built = build(model)
    (work,) = traced_work(built, initial_values(built), micro_batches(model, 1)[0])
    found = [(layer.layer.kind, getattr(layer.layer, "activation", None)) for layer in work.layers]
    return found[:-1], set(work.outside_types)


FORMS = {
    "tanh": lambda tf, x: tf.nn.gelu(x, approximate=True),
    "erf": lambda tf, x: tf.nn.gelu(x, approximate=False),
    "power": lambda tf, x: x * (0.5 * (1 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * tf.pow(x, 3))))),
    "products": lambda tf, x: 0.5 * x * (1 + tf.tanh(0.7978845608 * x * (1 + 0.044715 * x * x))),
    "written erf": lambda tf, x: x * 0.5 * (1 + tf.math.erf(x / math.sqrt(2))),
    "swish": lambda tf, x: x * tf.sigmoid(x),
}
FOUND = {"erf": "gelu_erf", "written erf": "gelu_erf", "swish": "swish"}


@sampled(2)
@pytest.mark.parametrize("form", FORMS)
def test_an_activation_in_any_form_is_that_of_its_layer(tf, form):
    activation = FOUND.get(form, "gelu")
    dense = tf.keras.layers.Dense
    assert _layers(tf, lambda x: dense(10)(dense(7, lambda z: FORMS[form](tf, z))(x))) == (
        [("dense", activation), ("dense", "identity")],
        set(),
    )
    alone, others = _layers(tf, lambda x: dense(10)(FORMS[form](tf, dense(7, "relu")(x))))
    assert alone == [("dense", "relu"), ("activation", activation), ("dense", "identity")]
    assert not others


@pytest.mark.parametrize(
    "function",
    [
        lambda tf, x: 0.5 * x * (1 + tf.tanh(0.8 * (x + 0.044715 * tf.pow(x, 3)))),
        lambda tf, x: 0.5 * x * (2 + tf.math.erf(x / math.sqrt(2))),
        lambda tf, x: x * tf.sigmoid(1.702 * x),
        lambda tf, x: tf.sigmoid(x * 2) * np.arange(7, dtype=np.float32),
    ],
    ids=["another factor", "another sum", "an approximation by a sigmoid", "a constant of several numbers"],
)
def test_arithmetic_with_other_values_is_no_activation_of_that_name(tf, function):
    dense = tf.keras.layers.Dense
    found, others = _layers(tf, lambda x: dense(10)(function(tf, dense(7)(x))))
    assert not {"gelu", "gelu_erf", "swish"} & {activation for _, activation in found}
    assert "Mul" in others


@pytest.mark.parametrize("look_up", ["gather", "nn.embedding_lookup"])
def test_rows_that_ids_choose_are_an_embedding_with_its_gradient(tf, look_up):
    def function(ids):
        table = tf.compat.v1.get_variable("table", [50, ELEMENTS])
        places = tf.compat.v1.get_variable("places", [1, TOKENS, ELEMENTS])
        x = operator.attrgetter(look_up)(tf)(table, ids) + places
        y = tf.keras.layers.Dense(ELEMENTS)(x)
        return tf.keras.layers.Dense(10)(tf.reshape(x + y, [BATCH, -1]))

    kinds = ["embedding", "position_embedding", "dense", "add", "dense"]
    found, others = _layers(tf, function, np.int32)
    assert ([kind for kind, _ in found], others) == (kinds, set())
