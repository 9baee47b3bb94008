"""Sessions and functions of TensorFlow's on simulated IPUs: what they execute themselves, threads, and ends of data.

What functions learn is in tests/unit/ipu/test_function_loops.py.
"""

import threading

import numpy as np
import pytest

from tests.programs import configure, hosted_names


def _pipeline(names):
    """The operation of a compiled pipeline that trains, and what initializes it."""
    tf, ipu = names.tf, names.ipu
    configure(names, 2)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(np.ones((8, 12), np.float32)).repeat())
    outfeed, dense = ipu.ipu_outfeed_queue.IPUOutfeedQueue(), names.keras.layers.Dense

    def learn(loss):
        return ipu.pipelining_ops.OptimizerFunctionOutput(tf.train.AdamOptimizer(0.01), loss)

    def network():
        stages = [dense(16, "relu"), lambda x: tf.reduce_mean(dense(10)(x) ** 2)]
        queues = {"infeed_queue": infeed, "outfeed_queue": outfeed}
        return ipu.pipelining_ops.pipeline(stages, 4, optimizer_function=learn, **queues)

    operation = ipu.ipu_compiler.compile(network)
    return operation, [tf.global_variables_initializer(), infeed.initializer]


def test_tensorflow_executes_no_node_of_a_pipeline(names):
    from ipusim.ipu.traced.pipelines import CLAIMED  # noqa: PLC0415

    tf = names.tf
    operation, first = _pipeline(names)
    options, metadata = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
    with tf.Session() as session:
        session.run(first)
        session.run(operation, {}, options, metadata)
    ran = {node.node_name.split(":")[0] for device in metadata.step_stats.dev_stats for node in device.node_stats}
    claimed = CLAIMED[tf.get_default_graph()]
    assert operation.name in ran
    assert claimed
    assert not ran & claimed


def test_a_session_with_one_thread_does_not_wait_for_itself(names):
    operation, first = _pipeline(names)
    one = names.tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    with names.tf.Session(config=one) as session:
        session.run(first)
        session.run(operation)


def test_concurrent_runs_lose_no_change(names):
    tf, runs, threads = names.tf, 100, 4
    configure(names, 1)

    def computation():
        total = tf.get_variable("total", [], initializer=tf.zeros_initializer())
        return total.assign_add(1.0, read_value=False)

    operation = names.ipu.ipu_compiler.compile(computation)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())

        def work():
            for _ in range(runs):
                session.run(operation)

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert session.run(tf.global_variables()) == [runs * threads]


@pytest.fixture
def strategy_names():
    with hosted_names(2) as found:
        configure(found, 1)
        yield found


def test_the_end_of_the_data_is_tensorflows_error(strategy_names):
    tf = strategy_names.tf

    @tf.function
    def summed(iterator, steps):
        total = 0.0
        for _ in tf.range(steps):
            total += next(iterator)
        return {"total": total, "steps": (steps,)}

    run, iterator = (
        strategy_names.ipu.ipu_strategy.IPUStrategy().run,
        iter(tf.data.Dataset.from_tensor_slices([1.0, 2, 4, 8])),
    )
    found = run(summed, [iterator, tf.constant(3)])
    assert (float(found["total"]), int(found["steps"][0])) == (7, 3)
    with pytest.raises(tf.errors.OutOfRangeError):
        run(summed, [iterator, tf.constant(3)])
