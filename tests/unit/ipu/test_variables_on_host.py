"""Variables on the host: gradients that a loop's body sends there, and apply_gradients behind the run."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim import ipu
from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu import horovod, ipu_compiler, loops, pipelining_ops
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.horovod.ipu_horovod_strategy import IPUHorovodStrategy
from ipusim.ipu.ipu_estimator import IPUEstimator, IPUEstimatorSpec
from ipusim.ipu.ipu_run_config import IPURunConfig, RunConfig
from ipusim.ipu.programs.as_scenario import as_scenario
from ipusim.timeline.kinds import SpanKind

RNG = np.random.default_rng(3)
X = RNG.normal(size=(48, 4)).astype(np.float32)
Y = (X @ np.arange(4, dtype=np.float32)[:, None]).astype(np.float32)
RUNS, BATCH, RATE, DECAY = 6, 8, 0.02, 0.9


def infeed():
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH, drop_remainder=True).repeat()
    return ipu.ipu_infeed_queue.IPUInfeedQueue(data)


def error(x, y, w):
    return tf.reduce_mean((tf.matmul(x, w) - y) ** 2)


class Training:
    """A least-squares fit whose variable is on the host, or on the IPU."""

    def __init__(self, on_host, *, optimizer=None, change=lambda gradient: gradient, tape=False):
        self.losses, self.weight = [], tf.Variable(np.zeros((4, 1), np.float32), name=f"w_{on_host}")
        self.optimizer = optimizer or tf.train.MomentumOptimizer(RATE, DECAY)
        self._on_host, self._change, self._tape = on_host, change, tape
        self._infeed, self._outfeed = infeed(), ipu.ipu_outfeed_queue.IPUOutfeedQueue(outfeed_mode=LAST)

    def body(self, x, y):
        if self._tape:
            with tf.GradientTape() as tape:
                loss = error(x, y, self.weight)
            gradient = tape.gradient(loss, self.weight)
        else:
            loss = error(x, y, self.weight)
            if not self._on_host:
                self._outfeed.enqueue([loss])
                return self.optimizer.minimize(loss)
            ((gradient, _),) = self.optimizer.compute_gradients(loss)
        self._outfeed.enqueue([self._change(gradient), loss])
        return None

    def run(self):
        operation = ipu_compiler.compile(lambda: loops.repeat(1, self.body, [], self._infeed))
        sent = self._outfeed.dequeue()
        update = self.optimizer.apply_gradients([(sent[0], self.weight)]) if self._on_host else tf.no_op()
        with tf.Session() as session:
            session.run(self._infeed.initializer)
            session.run(tf.global_variables_initializer())
            for _ in range(RUNS):
                session.run(operation)
                self.losses.append(float(session.run([sent[-1], update])[0]))
            self.program = ipu_compiler.compiled()[-1]
            return session.run(self.weight)


LAST = ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST


def trained(on_host, hosts=1, **asked):
    def program():
        with IPUHorovodStrategy(variables_on_host=on_host).scope():
            training = Training(on_host, **asked)
            return training.run(), training

    return horovod.run(program, np=hosts)


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
@pytest.mark.parametrize("tape", [False, True])
def test_the_host_updates_as_the_ipu_does(hosts, tape):
    ours = trained(True, hosts, tape=tape)
    losses, weight = reference(hosts)
    for array, training in ours:
        np.testing.assert_allclose(training.losses, losses, rtol=1e-4)
        np.testing.assert_allclose(array, weight, rtol=1e-4)
    if not tape:
        plain = trained(False, hosts)
        assert [each.losses for _, each in ours] == [each.losses for _, each in plain]
        np.testing.assert_array_equal(ours[0][0], plain[0][0])


def test_the_ipu_has_no_update_and_the_host_has_its_way_to_go():
    program = trained(True)[0][1].program
    timeline, cost = program.timeline, program.session.job.costs.host_update
    assert not len(timeline.rows(SpanKind.WEIGHT_UPDATE))
    assert timeline.bytes[timeline.rows(SpanKind.HOST_UPDATE)].tolist() == [16, 16]
    assert (cost.gradients, cost.weights) == (16, 16)
    assert (
        program.memory.footprint.ipus[0].resident_bytes
        < trained(False)[0][1].program.memory.footprint.ipus[0].resident_bytes
    )
    with pytest.raises(UnsupportedProgramError, match="the host applies gradients, which a scenario does not say"):
        as_scenario(program.session.job)


def test_hosts_sum_up_gradients_when_they_apply_them():
    """Between the runs, over the network; not a second time inside of them."""
    (_, alone), (_, first) = trained(True)[0], trained(True, 2)[0]
    assert not len(first.program.timeline.rows(SpanKind.HOST_SUM))
    assert first.program.timeline.end.max() > alone.program.timeline.end.max()


def test_gradients_may_be_computed_with_on_their_way():
    def change(gradient):
        return np.clip(2 * gradient, -0.5, 0.5)

    array, training = trained(True, change=lambda gradient: tf.clip_by_value(2 * gradient, -0.5, 0.5))[0]
    losses, weight = reference(change=change)
    np.testing.assert_allclose(training.losses, losses, rtol=1e-4)
    np.testing.assert_allclose(array, weight, rtol=1e-4)


def test_slots_are_the_hosts():
    _, training = trained(True)[0]
    (slot,) = [training.optimizer.get_slot(training.weight, name) for name in training.optimizer.get_slot_names()]
    assert np.any(slot.numpy())


def model(features, labels, mode):
    """Graphcore's example: compute_gradients in the model function, apply_gradients in the host call."""
    w = tf.get_variable("w", initializer=np.zeros((4, 1), np.float32))
    loss, optimizer = error(features, labels, w), tf.train.MomentumOptimizer(RATE, DECAY)
    variables = tf.trainable_variables()
    gradients = [gradient for gradient, _ in optimizer.compute_gradients(loss, var_list=variables)]

    def host(*found):
        return optimizer.apply_gradients(zip(found, variables, strict=True))

    return IPUEstimatorSpec(mode, loss=loss, train_op=tf.identity(loss), host_call=(host, gradients))


def data():
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH, drop_remainder=True).repeat()


def estimator(folder):
    config = RunConfig(
        ipu_run_config=IPURunConfig(iterations_per_loop=1),
        model_dir=str(folder),
        train_distribute=IPUHorovodStrategy(variables_on_host=True),
    )
    return IPUEstimator(model, config=config)


@pytest.mark.parametrize("hosts", [1, 2])
def test_an_estimators_host_call_applies_gradients(tmp_path, hosts):
    """Workers have the same data here and average their gradients, so two of them learn what one does."""

    def program():
        found = estimator(tmp_path)
        found.train(data, steps=RUNS)
        return found.get_variable_value("w")

    np.testing.assert_allclose(horovod.run(program, np=hosts)[0], reference()[1], rtol=1e-4)


def test_slots_of_the_host_are_in_checkpoints(tmp_path):
    estimator(tmp_path / "whole").train(data, steps=RUNS)
    for steps in (2, RUNS - 2):
        estimator(tmp_path / "resumed").train(data, steps=steps)
    whole, resumed = (estimator(tmp_path / name) for name in ("whole", "resumed"))
    names = whole.get_variable_names()
    assert "w" in names
    assert any(name.startswith("optimizer/w") for name in names)
    for name in names:
        np.testing.assert_array_equal(whole.get_variable_value(name), resumed.get_variable_value(name), err_msg=name)


def test_without_a_session_it_is_done_at_once():
    weight, optimizer = tf.Variable(np.ones(3, np.float32), name="at_once"), tf.train.AdamOptimizer(0.1)
    for _ in range(2):
        optimizer.apply_gradients([(np.array([1, -1, 0], np.float32), weight)])
    np.testing.assert_allclose(weight.numpy(), [0.8, 1.2, 1], rtol=1e-6)
    optimizer.apply_gradients([(None, weight), (np.ones(2, np.float32), tf.Variable(np.ones(2, np.float32)))])
    with pytest.raises(ProgramError, match="No gradients provided for any variable"):
        optimizer.apply_gradients([(None, weight)])


def wrong_body(send, train=False, optimizer=None):
    weight = tf.Variable(np.zeros((4, 1), np.float32), name="wrong")
    opt, queue, feed = optimizer or tf.train.AdamOptimizer(0.1), ipu.ipu_outfeed_queue.IPUOutfeedQueue(), infeed()

    def body(x, y):
        loss = error(x, y, weight)
        ((gradient, _),) = opt.compute_gradients(loss)
        queue.enqueue([gradient, loss] if send else loss)
        return opt.minimize(loss) if train else None

    return loops.repeat(1, body, [], feed)


def test_what_may_not_be_sent():
    with pytest.raises(UnsupportedProgramError, match=r"^enqueue: expected gradients in the scope of a strategy with"):
        wrong_body(send=True)
    with IPUHorovodStrategy(variables_on_host=True).scope():
        with pytest.raises(UnsupportedProgramError, match=r"^variables_on_host: expected apply_gradients on the host"):
            wrong_body(send=False, train=True)
        with pytest.raises(UnsupportedProgramError, match="gradients of a body that does not update weights as well"):
            wrong_body(send=True, train=True)
        accumulating = ipu.optimizers.GradientAccumulationOptimizerV2(tf.train.AdamOptimizer(0.1), 2)
        with pytest.raises(UnsupportedProgramError, match="of an optimizer that does not accumulate them, got <grad"):
            wrong_body(send=True, optimizer=accumulating)


def test_pipelines_update_on_their_ipus():
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def stage(x, y):
        return error(x, y, tf.get_variable("w", initializer=np.zeros((4, 1), np.float32)))

    def optimizer(loss):
        return pipelining_ops.OptimizerFunctionOutput(tf.train.AdamOptimizer(0.1), loss)

    with (
        IPUHorovodStrategy(variables_on_host=True).scope(),
        pytest.raises(UnsupportedProgramError, match="Placing variables on the host is not currently supported in a p"),
    ):
        pipelining_ops.pipeline(
            [lambda x, y: (x, y), stage], 4, infeed_queue=infeed(), outfeed_queue=queue, optimizer_function=optimizer
        )
