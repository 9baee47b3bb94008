"""Checkpoints of programs by TensorFlow's Saver and hooks: the same bits from each, however a model is cut."""

import numpy as np
import pytest

from tests.effort import sampled
from tests.programs import configure, hosted_names

RNG = np.random.default_rng(3)
X = RNG.normal(size=(16, 4, 6)).astype(np.float32)
Y = RNG.normal(size=(16, 4, 2)).astype(np.float32)
#: TensorFlow's optimizers, by a name of Graphcore's where it wraps one.
OPTIMIZERS = {
    "sgd": lambda tf: tf.train.GradientDescentOptimizer(0.01),
    "momentum": lambda tf: tf.train.MomentumOptimizer(0.01, 0.9),
    "adam": lambda tf: tf.train.AdamOptimizer(0.01),
    "rmsprop": lambda tf: tf.train.RMSPropOptimizer(0.01, momentum=0.5, centered=True),
    "nesterov": lambda tf: tf.train.MomentumOptimizer(0.01, 0.9, use_nesterov=True),
    "adagrad": lambda tf: tf.train.AdagradOptimizer(0.01),
    "adadelta": lambda tf: tf.train.AdadeltaOptimizer(1.0),
    "ftrl": lambda tf: tf.train.FtrlOptimizer(0.01, l1_regularization_strength=0.01),
}


@pytest.fixture
def names():
    with hosted_names(1) as found:
        configure(found, 2)
        yield found


class Training:
    """A program in a graph of its own: two stages with a moving mean, which takes 16 mini-batches in a run."""

    def __init__(self, names, optimizer="adam", *, late=False, loop=False):
        tf, ipu = names.tf, names.ipu
        tf.reset_default_graph()
        self.outfeed, step = ipu.ipu_outfeed_queue.IPUOutfeedQueue(), tf.train.get_or_create_global_step()
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices((X, Y)).repeat())
        tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, infeed.initializer)

        def dense(x):
            return tf.layers.dense(x, 5, tf.nn.relu, name="a")

        def normal(h):
            mean = tf.get_variable("mean", [], initializer=tf.zeros_initializer(), trainable=False)
            with tf.control_dependencies([tf.assign_add(mean, tf.reduce_mean(h))]):
                return tf.identity(h)

        def first(x, labels):
            return (dense(x) if late else normal(dense(x))), labels

        def last(h, labels):
            h = normal(h) if late else h
            return tf.reduce_mean(tf.square(tf.layers.dense(h, 2, name="b") - labels))

        def learn(loss):
            return ipu.pipelining_ops.OptimizerFunctionOutput(OPTIMIZERS[optimizer](tf), loss)

        def body(x, labels):
            loss = last(*first(x, labels))
            train = ipu.optimizers.GradientAccumulationOptimizerV2(OPTIMIZERS[optimizer](tf), 4).minimize(loss)
            with tf.control_dependencies([train]):
                return self.outfeed.enqueue(loss)

        def model():
            if loop:
                return ipu.loops.repeat(16, body, [], infeed)
            options = {"outfeed_loss": True, "repeat_count": 4, "optimizer_function": learn}
            return ipu.pipelining_ops.pipeline(
                [first, last], 4, infeed_queue=infeed, outfeed_queue=self.outfeed, **options
            )

        operation = ipu.ipu_compiler.compile(model)
        with tf.control_dependencies([operation]):
            self.losses = self.outfeed.dequeue()
        with tf.control_dependencies([self.losses]):
            self.run = step.assign_add(1)
        self.saver, self.tf = tf.train.Saver(max_to_keep=None), tf

    def session(self, restored=None):
        """Return a session with initial values, or those of a checkpoint."""
        session = self.tf.Session()
        session.run([self.tf.global_variables_initializer(), self.tf.tables_initializer()])
        if restored is not None:
            self.saver.restore(session, str(restored))
        return session

    def train(self, session):
        return session.run([self.losses, self.run])[0]

    def values(self, session):
        return {variable.op.name: session.run(variable) for variable in self.tf.global_variables()}


@sampled(2)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_checkpoint_goes_on_to_the_same_bits(optimizer, tmp_path, names):
    training = Training(names, optimizer)
    session = training.session()
    expected = []
    for step in range(3):
        training.saver.save(session, str(tmp_path / "model"), global_step=step)
        expected.append(training.train(session))
    last = training.values(session)
    assert not np.array_equal(expected[0], expected[1])
    training.saver.restore(session, str(tmp_path / "model-1"))  # where the program has run before
    np.testing.assert_array_equal(training.train(session), expected[1])
    for step in range(3) if optimizer == "adam" else [1]:
        again = Training(names, optimizer)
        session = again.session(tmp_path / f"model-{step}")
        np.testing.assert_array_equal([again.train(session) for _ in range(step, 3)], expected[step:])
        for name, value in again.values(session).items():
            assert value.tobytes() == last[name].tobytes(), name


@pytest.mark.parametrize("other", [{"late": True}, {"loop": True}])
def test_a_checkpoint_of_another_cut_goes_on_as_it(other, tmp_path, names):
    training = Training(names)
    session = training.session()
    training.train(session)
    training.saver.save(session, str(tmp_path / "model"))
    expected = training.train(session)
    configure(names, 1 if other.get("loop") else 2)
    again = Training(names, **other)
    np.testing.assert_allclose(again.train(again.session(tmp_path / "model")), expected, rtol=1e-5)


def test_a_monitored_session_saves_and_goes_on(tmp_path, names):
    tf = names.tf

    def trained(last_step):
        training, seen = Training(names), []
        hooks = [tf.train.StopAtStepHook(last_step=last_step)]
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), hooks=hooks, save_checkpoint_steps=1, log_step_count_steps=None
        ) as session:
            while not session.should_stop():
                seen.append(training.train(session))
        return seen

    first, second = trained(1), trained(3)
    assert (len(first), len(second)) == (1, 2)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-3")
    assert np.mean(second[-1]) < np.mean(first[0])


def test_a_program_of_tensorflow_2_goes_on_from_a_checkpoint(tmp_path):
    """TensorFlow's Checkpoint saves its variables."""
    with hosted_names(2) as names:
        configure(names, 1)
        tf, strategy = names.tf, names.ipu.ipu_strategy.IPUStrategyV1()
        weight, velocity = tf.Variable(tf.ones([6, 2])), tf.Variable(tf.zeros([6, 2]))

        @tf.function
        def train(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(x @ weight))
            velocity.assign(0.9 * velocity + tape.gradient(loss, weight))
            weight.assign_sub(0.01 * velocity)
            return loss

        def losses():
            with strategy.scope():
                return [float(strategy.run(train, [tf.constant(X[0])])) for _ in range(3)]

        checkpoint = tf.train.Checkpoint(weight=weight, velocity=velocity)
        first = losses()
        prefix = checkpoint.save(str(tmp_path / "saved"))
        second = losses()
        checkpoint.restore(prefix)
        assert second == losses()
        assert second[0] < first[-1]
