"""Variables on the host: gradients that a loop's body sends there, and apply_gradients behind the run."""

import numpy as np
import pytest

from ipusim.base.errors import UnsupportedProgramError
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind
from tests.programs import configure, hosted_names, on_hosts

RNG = np.random.default_rng(3)
X = RNG.normal(size=(48, 4)).astype(np.float32)
Y = (X @ np.arange(4, dtype=np.float32)[:, None]).astype(np.float32)
RUNS, BATCH, RATE, DECAY = 6, 8, 0.02, 0.9

TRAINED = """
RNG = np.random.default_rng(3)
X = RNG.normal(size=(48, 4)).astype(np.float32)
Y = (X @ np.arange(4, dtype=np.float32)[:, None]).astype(np.float32)

def data():
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(8, drop_remainder=True).repeat()

def error(x, y):
    weight = tf.get_variable("w", initializer=np.zeros((4, 1), np.float32))
    return weight, tf.reduce_mean((tf.matmul(x, weight) - y) ** 2)

def trained(on_host, clipped=False):
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data())
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST)
    optimizer = tf.train.MomentumOptimizer(0.02, 0.9)

    def body(x, y):
        weight, loss = error(x, y)
        if not on_host:
            with tf.control_dependencies([optimizer.minimize(loss)]):
                return outfeed.enqueue([loss])
        ((gradient, _),) = optimizer.compute_gradients(loss, var_list=[weight])
        return outfeed.enqueue([tf.clip_by_value(2 * gradient, -0.5, 0.5) if clipped else gradient, loss])

    with tf.variable_scope("", use_resource=True), ipu.scopes.ipu_scope("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(1, body, [], infeed))
    (weight,), sent, losses = tf.trainable_variables(), outfeed.dequeue(), []
    update = optimizer.apply_gradients([(sent[0], weight)]) if on_host else tf.no_op()
    with tf.Session() as session:
        session.run([infeed.initializer, tf.global_variables_initializer()])
        for _ in range(6):
            session.run(operation)
            losses.append(float(session.run([sent[-1], update])[0]))
        slots = [np.any(session.run(optimizer.get_slot(weight, name))) for name in optimizer.get_slot_names()]
        return losses, session.run(weight), slots

def model(features, labels, mode):
    weight, loss = error(features, labels)
    optimizer = tf.train.MomentumOptimizer(0.02, 0.9)
    gradients = [gradient for gradient, _ in optimizer.compute_gradients(loss, var_list=[weight])]

    def host(*found):
        return optimizer.apply_gradients(zip(found, [weight], strict=True))

    return ipu.ipu_estimator.IPUEstimatorSpec(
        mode, loss=loss, train_op=tf.identity(loss), host_call=(host, gradients)
    )

def by_estimator():
    config = ipu.ipu_run_config.RunConfig(
        ipu_run_config=ipu.ipu_run_config.IPURunConfig(iterations_per_loop=1),
        model_dir={folder!r},
        train_distribute=IPUHorovodStrategy(variables_on_host=True),
    )
    estimator = ipu.ipu_estimator.IPUEstimator(model, config=config)
    estimator.train(data, steps=6)
    return {{name: estimator.get_variable_value(name) for name in estimator.get_variable_names()}}

def program():
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    found = []
    for ways in ({{"on_host": True}}, {{"on_host": False}}, {{"on_host": True, "clipped": True}}):
        with tf.Graph().as_default(), IPUHorovodStrategy(variables_on_host=ways["on_host"]).scope():
            found.append(trained(**ways))
    return found, by_estimator()
"""


def reference(hosts=1, change=lambda gradient: gradient):
    """Momentum in NumPy, on the sum of the gradients of hosts that all take the same data."""
    w, slot, losses = np.zeros((4, 1)), 0, []
    for run in range(RUNS):
        x, y = X[run * BATCH :][:BATCH], Y[run * BATCH :][:BATCH]
        losses.append(np.mean((x @ w - y) ** 2))
        slot = DECAY * slot + hosts * change(2 * x.T @ (x @ w - y) / BATCH)
        w = w - RATE * slot
    return losses, w


@pytest.mark.parametrize("hosts", [1, 2])
def test_the_host_updates_as_the_ipu_does(hosts, tmp_path):
    """Hosts sum their gradients up; an estimator's workers average them, and so learn what one of them does."""
    for (on_host, on_ipu, clipped), kept in on_hosts(TRAINED.format(folder=str(tmp_path)), hosts):
        for (losses, weight, slots), (want, array) in (
            (on_host, reference(hosts)),
            (clipped, reference(hosts, lambda gradient: np.clip(2 * gradient, -0.5, 0.5))),
        ):
            np.testing.assert_allclose(losses, want, rtol=1e-4)
            np.testing.assert_allclose(weight, array, rtol=1e-4)
            assert slots == [True]
        np.testing.assert_allclose(on_ipu[0], on_host[0], rtol=1e-6)
        np.testing.assert_allclose(on_ipu[1], on_host[1], rtol=1e-6)
        np.testing.assert_allclose(kept["w"], reference()[1], rtol=1e-4)
        assert "w/Momentum" in kept  # the slot that the host keeps is in checkpoints


def runs_around_an_update(names, strategy):
    """Return Timelines of two runs of a loop that reads weights, a third behind an update of these, and the job."""
    from ipusim.ipu.graph.reading import read_graph  # noqa: PLC0415
    from ipusim.ipu.graph.registry import entry_of  # noqa: PLC0415
    from ipusim.ipu.traced.device_program import DeviceProgram  # noqa: PLC0415

    tf, ipu = names.tf, names.ipu
    configure(names, 1)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(X[:8]).repeat())
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body(x):
        weight = tf.get_variable("w", initializer=np.zeros((4, 250), np.float32), use_resource=True)
        return outfeed.enqueue(tf.reduce_mean(tf.matmul(x, weight)))

    with strategy.scope():
        operation = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(2, body, [], infeed))
    update = tf.trainable_variables()[0].assign_add(np.ones((4, 250), np.float32))
    entries = map(entry_of, read_graph(tf.get_default_graph()).nodes.values())
    (program,) = [each.value for each in entries if each is not None and isinstance(each.value, DeviceProgram)]
    timelines = []
    with tf.Session() as session:
        session.run([infeed.initializer, tf.global_variables_initializer()])
        for ahead in ([], [], [update]):
            session.run(ahead)
            session.run(operation)
            timelines.append(program.timelines[session])
        return timelines, program._placements[session].session.job


@pytest.mark.parametrize("on_host", [True, False])
def test_weights_that_the_host_has_updated_travel_before_the_next_run(on_host):
    with hosted_names() as names:
        strategy = names.ipu.horovod.ipu_horovod_strategy.IPUHorovodStrategy(variables_on_host=on_host)
        timelines, job = runs_around_an_update(names, strategy)
    found = []
    for timeline in timelines:
        rows = [row for row in timeline.rows(SpanKind.HOST) if timeline.link[row] == HostTrack.VARIABLES]
        found.append([(int(timeline.bytes[row]), int(timeline.end[row] - timeline.start[row])) for row in rows])
    ways = [(4000, job.system.host_fill_cycles(4000)), (4000, job.system.infeed_cycles(4000))]
    assert found == [[], [], ways if on_host else []]
    first, again, updated = (timeline.makespan_cycles for timeline in timelines)
    assert first == again
    # What the host makes of its data meanwhile, the IPU need not wait for.
    taken = sum(cycles for _, cycles in ways) * on_host
    assert taken - 50 * on_host <= updated - again <= taken


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda names, feed, loss, adam: names.ipu.loops.repeat(1, lambda x: adam.minimize(loss(x)), [], feed),
            "variables_on_host: expected apply_gradients on the host, with the gradients that the body of a loop",
        ),
        (
            lambda names, feed, loss, adam: names.ipu.pipelining_ops.pipeline(
                [names.tf.identity, loss],
                4,
                infeed_queue=feed,
                optimizer_function=lambda x: names.ipu.pipelining_ops.OptimizerFunctionOutput(adam, x),
            ),
            "variables_on_host: Placing variables on the host is not currently supported in a pipeline",
        ),
        (
            lambda names, *_: names.ipu.ipu_pipeline_estimator.IPUPipelineEstimator(
                lambda mode: None,
                config=names.ipu.ipu_run_config.RunConfig(
                    train_distribute=names.ipu.horovod.ipu_horovod_strategy.IPUHorovodStrategy(variables_on_host=True)
                ),
            ),
            "Placing variables on the host is not currently supported by IPUPipelineEstimator",
        ),
    ],
)
def test_ipus_do_not_update_what_is_on_the_host(build, text):
    with hosted_names() as names:
        tf, ipu = names.tf, names.ipu
        configure(names, 2)
        feed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(np.float32(1)).repeat())

        def model():
            return build(names, feed, lambda x: x * tf.get_variable("w", []), tf.train.AdamOptimizer(0.1))

        strategy = ipu.horovod.ipu_horovod_strategy.IPUHorovodStrategy(variables_on_host=True)
        with strategy.scope(), pytest.raises(UnsupportedProgramError, match=f"^{text}"):
            ipu.ipu_compiler.compile(model)
