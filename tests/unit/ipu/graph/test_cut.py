"""The cut of traced steps into stages: what each pass has, and what crosses."""

from __future__ import annotations

import numpy as np
import pytest


def _cut(tf, stages, shapes, *, outside=(), trains=True):
    """The stages of functions of TensorFlow 1, with the names of what crosses; ``outside`` come before the inputs."""
    from ipusim.ipu.graph.cut import cut_stages  # noqa: PLC0415
    from ipusim.ipu.graph.tracing import StepTracer  # noqa: PLC0415

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.variable_scope("", use_resource=True):
        values = [v1.placeholder(tf.float32, shape) for shape in outside]
        tracer = StepTracer()
        with tracer.feed():
            values += [tf.identity(v1.placeholder(tf.float32, shape)) for shape in shapes]
        for function in stages:
            values = tracer.stage(function, values)
            values = values if isinstance(values, tuple) else (values,)
        if trains:
            optimizer = v1.train.GradientDescentOptimizer(0.1)
            tracer.gradients(lambda: optimizer.compute_gradients(values[0]))
        return cut_stages(tracer.step(list(values)).trace)


def _weight(tf, name, *shape):
    return tf.compat.v1.get_variable(name, shape)


def test_activations_go_on_and_their_gradients_come_back(tf):
    first, last = _cut(
        tf,
        [
            lambda x: tf.tanh(tf.matmul(x, _weight(tf, "a", 4, 3))),
            lambda x: tf.reduce_sum(tf.matmul(x, _weight(tf, "b", 3, 2))),
        ],
        [(5, 4)],
    )
    assert [tensor.node for tensor in first.gives] == ["Tanh"]
    assert first.gives == last.takes
    assert last.returns == first.arrives
    assert len(first.arrives) == 1
    assert (list(first.gradients), list(last.gradients)) == (["a"], ["b"])
    assert {tensor.node for tensor in first.keeps} == {"stage0_input", "Tanh"}


def test_weights_are_no_stash(tf):
    _, last = _cut(
        tf,
        [lambda x: x * _weight(tf, "a", 4), lambda x: tf.reduce_sum(tf.matmul(x, _weight(tf, "b", 4, 2)))],
        [(5, 4)],
    )
    assert [tensor.node for tensor in last.keeps] == ["stage1_input"]
    assert any(name.endswith("ReadVariableOp") for name in last.backward)


def test_a_variable_that_a_stage_changes_is_kept_as_it_was_read(tf):
    def last(x):
        moving = tf.compat.v1.get_variable("moving", [4], trainable=False)
        read = moving.read_value()
        with tf.control_dependencies([read]):
            moving.assign_add(tf.ones([4]))
        return tf.reduce_sum(x * read)

    _, last = _cut(tf, [lambda x: x * _weight(tf, "a", 4), last], [(5, 4)])
    assert not any("ReadVariableOp" in name for name in last.backward)
    assert len(last.keeps) == 1
    assert any("AssignAddVariableOp" in name for name in last.forward)


def test_the_first_layers_input_needs_no_gradient(tf):
    (only,) = _cut(tf, [lambda x: tf.reduce_sum(tf.matmul(x, _weight(tf, "a", 4, 3)))], [(5, 4)])
    products = [name for name in only.backward if name.endswith(("MatMul", "MatMul_1"))]
    assert len(products) == 1
    assert only.returns == ()


def test_a_stage_before_all_variables_has_no_backward_pass(tf):
    first, last = _cut(tf, [tf.tanh, lambda x: tf.reduce_sum(x * _weight(tf, "a", 4))], [(5, 4)])
    assert first.backward == ()
    assert (first.arrives, last.returns) == ((), ())


def test_a_value_of_outside_that_stages_hand_on_travels_over_no_link(tf):
    stages = [
        lambda rate, x: (rate, x * _weight(tf, "a", 4)),
        lambda rate, x: (rate, tf.tanh(x)),
        lambda rate, x: tf.reduce_sum(x * _weight(tf, "b", 4)) * rate,
    ]
    cuts = _cut(tf, stages, [(5, 4)], outside=[()])
    assert [len(one.takes) for one in cuts] == [1, 1, 1]


def test_a_value_that_a_later_stage_needs_goes_through_those_between(tf):
    kept = []

    def first(x):
        kept.append(tf.tanh(x * _weight(tf, "a", 4)))
        return kept[0] * 2.0

    cuts = _cut(
        tf,
        [first, lambda x: x + 1.0, lambda x: tf.reduce_sum(x * kept[0] * _weight(tf, "b", 4))],
        [(5, 4)],
    )
    assert "Tanh" in [tensor.node for tensor in cuts[1].takes]
    assert "Tanh" in [tensor.node for tensor in cuts[1].gives]
    assert "Tanh" in [tensor.node for tensor in cuts[2].takes]
    assert len(cuts[1].returns) == len(cuts[0].arrives) == 2


def test_lists_that_a_loops_gradient_fills_belong_to_the_loops_stage(tf):
    def first(x):
        weight = _weight(tf, "a", 4, 4)
        return tf.while_loop(lambda step, _: step < 3, lambda step, state: (step + 1, tf.tanh(state @ weight)), [0, x])[
            1
        ]

    one, _ = _cut(tf, [first, lambda x: tf.reduce_sum(x * _weight(tf, "b", 4))], [(5, 4)])
    assert any("accumulator" in name for name in one.forward)
    assert not any("accumulator" in name for name in one.backward if "EmptyTensorList" in name)


def test_inference_has_forward_passes_alone(tf):
    cuts = _cut(tf, [tf.tanh, lambda x: x * 2.0], [(5, 4)], trains=False)
    assert all(one.backward == one.keeps == one.arrives == () for one in cuts)
    assert [tensor.node for tensor in cuts[-1].gives] == ["mul"]


@pytest.mark.parametrize("order", ["as traced", "reversed"])
def test_nodes_run_behind_what_they_depend_on(tf, order):
    """The order in which nodes were created does not matter."""
    from ipusim.ipu.graph.executable import Executable, Invocation  # noqa: PLC0415
    from ipusim.ipu.graph.node import Graph, Node, Output  # noqa: PLC0415

    kind = np.dtype(np.float32)
    nodes = [
        Node("x", "Placeholder", {}, (), (), (kind,)),
        Node("y", "Neg", {}, (Output("x", 0),), (), (kind,)),
        Node("z", "Mul", {}, (Output("x", 0), Output("y", 0)), (), (kind,)),
    ]
    ordered = nodes if order == "as traced" else nodes[::-1]
    graph = Graph({node.name: node for node in ordered})
    program = Executable(graph, [Output("x", 0)], [Output("z", 0)])
    assert program.run(Invocation({}), [np.float32(3)]) == [-9]
