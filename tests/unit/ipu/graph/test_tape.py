"""Gradients of a ``tf.GradientTape``: each node notes its origin, so that the body of a training is told apart."""

import pytest

from tests.programs import needs_tensorflow, tensorflow


@pytest.fixture(scope="module")
def graph():
    """A training step of Keras' layers as TensorFlow 2 traces it."""
    needs_tensorflow()
    from ipusim.ipu.graph.reading import read_graph  # noqa: PLC0415
    from ipusim.ipu.graph.tape import note_origins  # noqa: PLC0415

    tf = tensorflow()
    note_origins()
    tf.keras.backend.clear_session()  # names of layers begin anew
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Conv2D(4, 3, activation="relu", input_shape=(8, 8, 3)),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dense(8, "tanh"),
            layers.Reshape((2, 4)),
            layers.LSTM(5),
            layers.Dense(3),
        ]
    )
    optimizer = tf.keras.optimizers.legacy.Adam(0.1)

    @tf.function(autograph=False)
    def step(x, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=model(x, training=True))
            )
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    traced = step.get_concrete_function(tf.TensorSpec((4, 8, 8, 3)), tf.TensorSpec((4,), tf.int32))
    return read_graph(traced.graph)


def test_every_node_of_the_gradient_has_an_origin(graph):
    written = [node for node in graph.nodes.values() if node.name.startswith("gradient_tape/")]
    assert len(written) > 20
    assert [node.name for node in written if node.origin not in graph.nodes] == []


def test_a_product_and_its_bias_are_the_origins_of_their_own_gradients(graph):
    origins = {
        node.type: node.origin for node in graph.nodes.values() if "sequential/dense_1" in node.name and node.origin
    }
    assert origins["MatMul"] == "sequential/dense_1/MatMul"
    assert origins["BiasAddGrad"] == "sequential/dense_1/BiasAdd"


def test_updates_lie_behind_gradients(graph):
    from ipusim.ipu.graph.split import split_body  # noqa: PLC0415

    parts = split_body(graph, graph.nodes.keys())
    updates = {name for name, node in graph.nodes.items() if node.type == "ResourceApplyAdam"}
    assert len(updates) == 11
    assert updates <= set(parts.update)
    assert not any(graph.nodes[name].name.startswith("gradient_tape/") for name in parts.forward)
