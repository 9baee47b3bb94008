"""Graphs of TensorFlow 1: what is made in one is its own, and layers are computed in it outside of programs too."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim import ipu
from ipusim.base.errors import ModelError, ProgramError
from ipusim.ipu import ipu_compiler, loops, rnn_ops
from ipusim.ipu import tensorflow as tf

X = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def forget():
    tf.reset_default_graph()
    yield
    ipu.config.reset_ipu_configuration()


def two_lstms(x):
    for _ in range(2):
        x, state = rnn_ops.PopnnLSTM(4)(x)
    return tf.layers.dense(state.h, 2)


def two_without_names(x):
    for _ in range(2):
        x, _ = rnn_ops.PopnnLSTM(4, name="")(x)
    return x


def own_variables(x):
    weights = tf.get_variable("weights", [3.0, 2], initializer=tf.ones_initializer())
    return tf.matmul(x, weights)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (lambda x: tf.layers.dense(tf.layers.dense(x, 4), 2), 4),
        (lambda x: rnn_ops.PopnnGRU(2)(x)[0], 2),
        (two_lstms, 6),
        (two_without_names, 4),
        (own_variables, 1),
    ],
    ids=["tf.layers", "PopnnGRU", "PopnnLSTM twice", "PopnnLSTM with empty names", "get_variable"],
)
def test_a_model_computes_in_a_graph_what_it_computes_on_an_ipu(model, names):
    with tf.Graph().as_default():
        alone = model(X)
        assert len({variable.name for variable in tf.global_variables()}) == names
    assert tf.global_variables() == []
    compiled = ipu_compiler.compile(model, [X])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        np.testing.assert_allclose(alone, session.run(compiled)[0], rtol=1e-5)


def test_layers_outside_of_graphs_and_programs_stay_refused():
    with tf.Graph().as_default():
        tf.layers.dense(X, 2)
    with pytest.raises(ModelError, match=r"^get_variable\('dense'\) was called outside of a pipeline stage"):
        tf.layers.dense(X, 2)


def test_a_graph_goes_on_where_it_is_the_default_again():
    graph, ones = tf.Graph(), tf.ones_initializer()
    with graph.as_default() as entered:
        tf.get_variable("w", [2], initializer=ones)
        with tf.Graph().as_default():
            assert tf.global_variables() == []
        assert entered is graph is tf.get_default_graph()
    tf.get_variable("w", [3], initializer=ones)
    with tf.Session(graph=graph), pytest.raises(ProgramError, match=r"^Variable w already exists"):
        tf.get_variable("w", [2])
    assert [variable.shape for variable in tf.global_variables()] == [(3,)]


def test_an_initializer_sets_variables_and_programs_of_its_graph_alone():
    def counted():
        def body(step):
            count = tf.get_variable("count", [], tf.int32, tf.zeros_initializer(), trainable=False)
            count.assign_add(1)
            return step + count

        return loops.repeat(3, body, [0])

    here, graph = ipu_compiler.compile(counted), tf.Graph()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first = session.run(here)
    with graph.as_default():
        there = ipu_compiler.compile(counted)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            assert session.run(there) == first
    with tf.Session() as session:
        assert session.run(here) != first


@pytest.mark.parametrize("shape", [[1.5, 2], [float("inf")], ["3"]])
def test_sizes_that_are_not_whole_are_refused(shape):
    with pytest.raises(Exception, match=r"^shape: expected a whole number"):
        tf.get_variable("w", shape)
