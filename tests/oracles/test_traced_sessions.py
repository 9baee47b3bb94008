"""Compiled computations and pipelines in TensorFlow's sessions, against the same training by TensorFlow alone."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ipusim.api import execute
from ipusim.app.scenario import load_job
from tests.programs import needs_tensorflow

COUNT, REPEATS, BATCH = 4, 2, 8


@pytest.fixture
def tf():
    needs_tensorflow()
    from ipusim.ipu.graph.tensorflow_import import load  # noqa: PLC0415

    return load()


@pytest.fixture
def graph(tf):
    with tf.Graph().as_default() as graph:
        tf.keras.utils.set_random_seed(1)
        tf.compat.v1.set_random_seed(1)
        yield graph


def _options():
    pipeline = {"gradient_accumulation_count": COUNT, "repeat_count": REPEATS, "device_mapping": [0, 1]}
    return {"system": {"name": "m2000", "auto_select_ipus": 2}, "pipeline": pipeline}


def _data(tf, count=400):
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((count, 12)).astype(np.float32), rng.integers(0, 10, count).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices(samples).batch(BATCH, drop_remainder=True)


def program_of(graph):
    """The program that a graph has a node of."""
    from ipusim.ipu.graph.reading import read_graph  # noqa: PLC0415
    from ipusim.ipu.graph.registry import entry_of  # noqa: PLC0415
    from ipusim.ipu.traced.device_program import DeviceProgram  # noqa: PLC0415

    entries = filter(None, map(entry_of, read_graph(graph).nodes.values()))
    return next(entry.value for entry in entries if isinstance(entry.value, DeviceProgram))


def _stages(tf):
    dense = tf.keras.layers.Dense

    def first(factor, x, labels):
        return dense(16, "relu")(x) * factor, labels

    def last(x, labels):
        logits = dense(10)(x)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    return [first, last]


def _pipeline(tf, dataset, optimizer):
    """The operation of a compiled pipeline, its factor, and its queues."""
    from ipusim.ipu.traced.computation import compile_computation  # noqa: PLC0415
    from ipusim.ipu.traced.pipelines import Training, add_pipeline  # noqa: PLC0415
    from ipusim.ipu.traced.queues import Infeed, Outfeed  # noqa: PLC0415

    infeed, outfeed = Infeed(dataset), Outfeed()
    factor = tf.compat.v1.placeholder(tf.float32, [])

    def network(factor):
        return add_pipeline(
            [[stage] for stage in _stages(tf)],
            _options,
            inputs=[factor],
            infeed=infeed,
            outfeed=outfeed,
            optimizer_function=lambda loss: Training(optimizer(tf.compat.v1), loss),
        )

    operation = compile_computation(network, [factor])
    return operation, factor, infeed, outfeed


def _adam(v1):
    return v1.train.AdamOptimizer(0.01)


def _losses_of_tensorflow(tf, factors):
    """The losses of as many runs, with a factor for each, and the variables behind them."""
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        tf.keras.utils.set_random_seed(1)
        v1.set_random_seed(1)
        x, labels = v1.data.make_one_shot_iterator(_data(tf).repeat()).get_next()
        factor = v1.placeholder(tf.float32, [])
        first, last = _stages(tf)
        loss = last(*first(factor, x, labels))
        optimizer = _adam(v1)
        pairs = optimizer.compute_gradients(loss)
        sums = [v1.placeholder(gradient.dtype, gradient.shape) for gradient, _ in pairs]
        update = optimizer.apply_gradients(
            [(total, variable) for total, (_, variable) in zip(sums, pairs, strict=True)]
        )
        losses = []
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for value in factors:
                for _ in range(REPEATS):
                    fetched = [
                        session.run([loss, *(gradient for gradient, _ in pairs)], {factor: value}) for _ in range(COUNT)
                    ]
                    losses += [one[0] for one in fetched]
                    totals = [sum(parts) for parts in list(zip(*fetched, strict=True))[1:]]
                    session.run(update, dict(zip(sums, totals, strict=True)))
            return losses, session.run(v1.global_variables())


def test_a_pipeline_trains_as_tensorflow_does_with_values_fed_anew(tf, graph):
    factors = [1.0, 0.5, 2.0]
    operation, factor, infeed, outfeed = _pipeline(tf, _data(tf).repeat(), _adam)
    dequeued, v1 = outfeed.dequeue(), tf.compat.v1
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), infeed.initializer])
        for value in factors:
            session.run(operation, {factor: value})
        (losses,) = session.run(dequeued)
        weights = session.run(v1.global_variables())
        assert session.run(dequeued)[0].shape == (0,)
    expected, variables = _losses_of_tensorflow(tf, factors)
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=3e-7)
    for ours, theirs in zip(weights, variables, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_two_sessions_share_nothing(tf, graph):
    operation, factor, infeed, outfeed = _pipeline(tf, _data(tf).repeat(), _adam)
    dequeued, v1 = outfeed.dequeue(), tf.compat.v1
    with v1.Session() as one, v1.Session() as other:
        for session in (one, other):
            session.run([v1.global_variables_initializer(), infeed.initializer])
        one.run(operation, {factor: 1.0})
        one.run(operation, {factor: 1.0})
        other.run(operation, {factor: 1.0})
        (first,), (second,) = one.run(dequeued), other.run(dequeued)
    assert len(first) == 2 * len(second) == 2 * COUNT * REPEATS
    np.testing.assert_array_equal(first[: len(second)], second)


def test_a_saver_restores_what_training_goes_on_from(tf, graph, tmp_path):
    operation, factor, infeed, outfeed = _pipeline(tf, _data(tf).repeat(), _adam)
    dequeued, v1 = outfeed.dequeue(), tf.compat.v1
    saver = v1.train.Saver()
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), infeed.initializer])
        session.run(operation, {factor: 1.0})
        path = saver.save(session, str(tmp_path / "model"))
        session.run([dequeued, infeed.initializer])
        session.run(operation, {factor: 1.0})
        (expected,) = session.run(dequeued)
    with v1.Session() as session:
        saver.restore(session, path)
        session.run(infeed.initializer)
        session.run(operation, {factor: 1.0})
        np.testing.assert_array_equal(session.run(dequeued)[0], expected)


def test_tensorflow_executes_no_node_of_a_pipeline(tf, graph):
    from ipusim.ipu.traced.pipelines import CLAIMED  # noqa: PLC0415

    operation, factor, infeed, _ = _pipeline(tf, _data(tf).repeat(), _adam)
    v1 = tf.compat.v1
    options, metadata = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), v1.RunMetadata()
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), infeed.initializer])
        session.run(operation, {factor: 1.0}, options, metadata)
    ran = {node.node_name.split(":")[0] for device in metadata.step_stats.dev_stats for node in device.node_stats}
    assert operation.name in ran
    assert not ran & CLAIMED[graph]


def test_the_end_of_the_data_is_tensorflows_error(tf, graph):
    operation, factor, infeed, _ = _pipeline(tf, _data(tf, COUNT * BATCH), _adam)
    v1 = tf.compat.v1
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), infeed.initializer])
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(operation, {factor: 1.0})


def test_a_computation_of_nodes_alone_gives_tensorflows_results(tf, graph):
    from ipusim.ipu.traced.computation import compile_computation  # noqa: PLC0415

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 3])

    def computation(x):
        weight = v1.get_variable("weight", [3, 2])
        return tf.tanh(tf.matmul(x, weight)), tf.reduce_sum(x)

    results = compile_computation(computation, [x])
    expected = [tf.tanh(tf.matmul(x, v1.global_variables()[0])), tf.reduce_sum(x)]
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for count in (1, 4):
            fed = {x: np.random.default_rng(count).standard_normal((count, 3))}
            for ours, theirs in zip(*session.run([results, expected], fed), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_concurrent_runs_lose_no_change(tf, graph):
    from ipusim.ipu.traced.computation import compile_computation  # noqa: PLC0415

    v1 = tf.compat.v1
    runs, threads = 200, 4

    def computation():
        total = v1.get_variable("total", [], initializer=v1.zeros_initializer())
        return total.assign_add(1.0, read_value=False)

    operation = compile_computation(computation)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())

        def work():
            for _ in range(runs):
                session.run(operation)

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert session.run(v1.global_variables()) == [runs * threads]


def test_a_session_with_one_thread_does_not_wait_for_itself(tf, graph):
    operation, factor, infeed, _ = _pipeline(tf, _data(tf).repeat(), _adam)
    v1 = tf.compat.v1
    one = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    with v1.Session(config=one) as session:
        session.run([v1.global_variables_initializer(), infeed.initializer])
        session.run(operation, {factor: 1.0})


def test_the_tutorials_program_takes_the_time_of_its_scenario(tf, graph):
    """Step 3 of Graphcore's tutorial, whose learning rate goes through all stages to the optimizer."""
    from ipusim.ipu.traced.computation import compile_computation  # noqa: PLC0415
    from ipusim.ipu.traced.pipelines import Training, add_pipeline  # noqa: PLC0415
    from ipusim.ipu.traced.queues import Infeed, Outfeed  # noqa: PLC0415

    v1, layers = tf.compat.v1, tf.keras.layers
    job = load_job("scenarios/tutorial_step3_pipelining.yaml", ["steps=1", "pipeline.repeat_count=2"])
    chosen = job.request.options
    pipeline = {
        "schedule": chosen.pipeline.schedule,
        "gradient_accumulation_count": chosen.pipeline.gradient_accumulation_count,
        "repeat_count": chosen.pipeline.repeat_count,
        "device_mapping": [0, 1],
    }
    options = {"system": chosen.system.model_dump(exclude_unset=True), "pipeline": pipeline, "use_synthetic_data": True}
    images = np.random.default_rng(0).random((64, 28, 28), np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((images, np.arange(64, dtype=np.int32) % 10))
    infeed, outfeed = Infeed(dataset.repeat().batch(32, drop_remainder=True)), Outfeed()
    rate = v1.placeholder(tf.float32, [])

    def stage1(rate, images, labels):
        x = layers.Flatten()(images)
        for units in (256, 128, 64):
            x = layers.Dense(units, activation=tf.nn.relu)(x)
        return rate, x, labels

    def stage2(rate, x, labels):
        logits = layers.Dense(10)(layers.Dense(32, activation=tf.nn.relu)(x))
        return rate, tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    def network(rate):
        return add_pipeline(
            [[stage1], [stage2]],
            lambda: options,
            inputs=[rate],
            infeed=infeed,
            outfeed=outfeed,
            optimizer_function=lambda rate, loss: Training(v1.train.GradientDescentOptimizer(rate), loss),
        )

    operation = compile_computation(network, [rate])
    rates, losses = outfeed.dequeue()
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), infeed.initializer])
        session.run(operation, {rate: 0.01})
        program = program_of(graph)
        timeline, scenario = program.timelines[session], execute(job).timeline
        sent, trained = session.run([rates, losses])
    for column in ("start", "end", "kind", "ipu", "stage", "micro_batch", "execution", "time_step"):
        np.testing.assert_array_equal(getattr(timeline, column), getattr(scenario, column))
    assert set(sent.tolist()) == {np.float32(0.01)}
    assert trained[-1] < trained[0]
