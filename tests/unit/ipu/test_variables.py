"""Variables of TensorFlow in stages, in loops and on the host, shared by the programs of a session."""

import numpy as np
import pytest

from tests.programs import configure, hosted_names

X = np.ones((2, 3), np.float32)


@pytest.fixture(autouse=True)
def _two_ipus(names):
    configure(names, 2)


def built(names, stages, *, training=True, **arguments):
    """Compile a pipeline of four ones at a time; return its operation and the tensor of its results."""
    tf, ipu = names.tf, names.ipu
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(X).repeat())
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, infeed.initializer)

    def learn(loss):
        return ipu.pipelining_ops.OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(0.05), loss)

    given = {"infeed_queue": infeed, "outfeed_queue": outfeed, "optimizer_function": learn if training else None}
    given |= {"outfeed_loss": True} if training else {}
    operation = ipu.ipu_compiler.compile(lambda: ipu.pipelining_ops.pipeline(stages, 4, **given | arguments))
    return operation, outfeed.dequeue()


def begun(names):
    session = names.tf.Session()
    session.run([names.tf.global_variables_initializer(), names.tf.tables_initializer()])
    return session


def ran(session, program):
    session.run(program[0])
    return session.run(program[1])


def test_a_pipeline_trains_a_variable_of_the_host(names):
    tf = names.tf
    w, b = tf.Variable(np.ones((3, 1), np.float32)), tf.Variable(0.0)
    program = built(names, [lambda x: tf.matmul(x, w) + b, tf.reduce_sum], repeat_count=2)
    session = begun(names)
    # four gradients of 2 for each weight and for b, twice
    assert ran(session, program)[:5].tolist() == pytest.approx([6, 6, 6, 6, 6 - 4 * 0.05 * 2 * (3 + 1) * 2])
    assert session.run(w).ravel().tolist() == pytest.approx([1 - 0.8] * 3)
    session.run(b.assign(1.0))
    assert ran(session, program)[0] == pytest.approx(2 * (3 * 0.2 + 1))


def test_sessions_share_no_values(names):
    tf = names.tf
    w = tf.Variable(1.0)
    program = built(names, [lambda x: x * w, tf.reduce_sum])
    one, other = begun(names), begun(names)
    ran(one, program)
    assert one.run(w) < other.run(w) == 1
    assert ran(other, program)[0] == 6


def test_a_variable_has_an_initialized_value(names):
    variable = names.tf.get_variable("v", [], initializer=names.tf.constant_initializer(2.0), use_resource=True)
    value = variable.initialized_value()
    with names.tf.Session() as session:
        assert session.run(value) == 2
        session.run(variable.initializer)
        session.run(variable.assign(5.0))
        assert session.run(value) == 5


def test_a_layer_computes_in_the_dtype_of_its_input(names):
    assert names.tf.keras.layers.Dense(2)(names.tf.placeholder(names.tf.float16, [1, 2])).dtype == names.tf.float16


@pytest.mark.parametrize("program", ["first", "second"])
def test_a_variable_of_tensorflow_2_has_its_own_name_in_nodes_or_this_name_with_a_number(program):
    """Whatever program ran before in the process."""
    with hosted_names(2) as found:
        from ipusim.ipu.graph.tracing import variable_name  # noqa: PLC0415

        variables = [found.tf.Variable(0.0, name="twice_named") for _ in range(3)]
        names = ["twice_named", "twice_named:1", "twice_named:2"]
        assert [*map(variable_name, variables), *map(variable_name, variables)] == 2 * names
