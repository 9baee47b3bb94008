"""Programs in Graphcore's names on TensorFlow: their losses are those of the same training by TensorFlow alone."""

import contextlib
import contextvars
import json
import re
from functools import partial

import numpy as np
import pytest

from ipusim.base.errors import ProgramError
from ipusim.ipu.programs.program_file import ProgramFile
from tests.programs import needs_tensorflow

COUNT, REPEATS = 4, 5

DATA = """
import json
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
tf.set_random_seed(1)
draw = np.random.default_rng(0)
x = draw.standard_normal((400, 12)).astype(np.float32)
y = draw.integers(0, 10, 400).astype(np.int32)
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(8, drop_remainder=True).repeat()
optimizer = tf.train.MomentumOptimizer(0.1, 0.9)

def first(x, labels):
    with tf.variable_scope("first", use_resource=True):
        return tf.nn.relu(tf.layers.dense(x, 16, kernel_initializer=tf.initializers.random_normal(seed=2))), labels

def last(x, labels):
    with tf.variable_scope("last", use_resource=True):
        logits = tf.layers.dense(x, 10, kernel_initializer=tf.initializers.random_normal(seed=3))
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
"""
IPUS = """
from tensorflow.python import ipu
config = ipu.config.IPUConfig()
config.auto_select_ipus = {ipus}
config.configure_ipu_system()
infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
"""
PIPELINE = """
def network():
    return ipu.pipelining_ops.pipeline(
        [first, last], 4, repeat_count=5, infeed_queue=infeed, outfeed_queue=outfeed, outfeed_loss=True,
        optimizer_function=lambda loss: ipu.pipelining_ops.OptimizerFunctionOutput(optimizer, loss),
    )
"""
LOOP = """
def body(x, labels):
    loss = last(*first(x, labels))
    accumulating = ipu.optimizers.{optimizer}
    with tf.control_dependencies([accumulating.minimize(loss)]):
        return outfeed.enqueue(loss)

def network():
    return ipu.loops.repeat({iterations}, body, [], infeed)
"""
RUN = """
with ipu.scopes.ipu_scope("/device:IPU:0"):
    compiled = ipu.ipu_compiler.compile(network)
dequeued = outfeed.dequeue()
with tf.Session() as session:
    session.run([tf.global_variables_initializer(), infeed.initializer])
    session.run(compiled)
    losses = session.run(dequeued)
with open("losses.json", "w") as file:
    json.dump(np.ravel(losses).tolist(), file)
"""
#: The same training by TensorFlow alone: gradients of four batches are added up by hand.
ALONE = """
inputs = tf.data.make_one_shot_iterator(dataset).get_next()
loss = last(*first(*inputs))
pairs = optimizer.compute_gradients(loss)
sums = [(tf.placeholder(tf.float32, variable.shape), variable) for _, variable in pairs]
update = optimizer.apply_gradients(sums)
losses = []
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(5):
        runs = [session.run([loss, *(gradient for gradient, _ in pairs)]) for _ in range(4)]
        losses += [float(run[0]) for run in runs]
        totals = [sum(parts) for parts in list(zip(*runs))[1:]]
        session.run(update, {place: total for (place, _), total in zip(sums, totals)})
with open("losses.json", "w") as file:
    json.dump(losses, file)
"""


def _losses(folder, *parts):
    needs_tensorflow()
    (folder / "losses.json").unlink(missing_ok=True)
    file = folder / "program.py"
    file.write_text("".join(parts))
    with contextlib.chdir(folder):
        contextvars.Context().run(lambda: ProgramFile(file).run())
    return np.array(json.loads((folder / "losses.json").read_text()))


@pytest.fixture
def losses(tmp_path):
    """Runs a program on TensorFlow, and returns the losses that it has written."""
    return partial(_losses, tmp_path)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The losses of TensorFlow alone."""
    return _losses(tmp_path_factory.mktemp("alone"), DATA, ALONE)


def test_a_pipeline_has_the_losses_of_tensorflow(losses, expected):
    found = losses(DATA, IPUS.format(ipus=2), PIPELINE, RUN)
    assert found.shape == (COUNT * REPEATS,)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=3e-7)
    assert found[-COUNT:].mean() < found[:COUNT].mean()


@pytest.mark.parametrize(
    "optimizer",
    [
        "GradientAccumulationOptimizerV2(optimizer, 4)",
        "GradientAccumulationOptimizer(optimizer, 4)",
        "sharded_optimizer.ShardedOptimizer(ipu.optimizers.GradientAccumulationOptimizerV2(optimizer, 4))",
    ],
)
def test_a_loop_that_accumulates_gradients_has_the_losses_of_tensorflow(losses, expected, optimizer):
    found = losses(DATA, IPUS.format(ipus=1), LOOP.format(iterations=20, optimizer=optimizer), RUN)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=3e-7)


OWN = """
from tensorflow.compiler.plugin.poplar.ops import gen_poputil_ops

def total(gradient):
    return gen_poputil_ops.ipu_stateful_gradient_accumulate(gradient, num_mini_batches=4)

def body(x, labels):
    loss = last(*first(x, labels))
    pairs = [(total(gradient), variable) for gradient, variable in optimizer.compute_gradients(loss)]
    with tf.control_dependencies([optimizer.apply_gradients(pairs)]):
        return outfeed.enqueue(loss)

def network():
    return ipu.loops.repeat(20, body, [], infeed)
"""


def test_a_loop_that_accumulates_by_an_operation_of_poplar_has_the_losses_of_tensorflow(losses, expected):
    found = losses(DATA, IPUS.format(ipus=1), OWN, RUN)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=3e-7)


SHARDED = """
def body(x, labels):
    with ipu.scopes.ipu_shard(0):
        values = first(x, labels)
    with ipu.scopes.ipu_shard([{last}]):
        loss = last(*values)
    accumulating = ipu.optimizers.GradientAccumulationOptimizerV2(optimizer, 4)
    with tf.control_dependencies([accumulating.minimize(loss)]):
        return outfeed.enqueue(loss)

def network():
    return ipu.loops.repeat(20, body, [], infeed)
"""


@pytest.mark.parametrize(("last", "mapping", "schedule"), [(1, (0, 1), "sharded"), (0, (0,), "single")])
def test_a_sharded_loop_runs_on_the_ipus_that_it_names(losses, expected, last, mapping, schedule, monkeypatch):
    from ipusim.ipu.traced.device_program import DeviceProgram  # noqa: PLC0415

    jobs, place = [], DeviceProgram._place

    def placed(*arguments):
        result = place(*arguments)
        jobs.append(result.session.job)
        return result

    monkeypatch.setattr(DeviceProgram, "_place", placed)
    found = losses(DATA, IPUS.format(ipus=last + 1), SHARDED.format(last=last), RUN)
    (job,) = jobs
    assert job.schedule.name == schedule
    assert tuple(job.plan.shape.mapping) == mapping
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=3e-7)


def test_a_mean_of_gradients_is_their_sum_with_a_quarter_of_the_rate(losses):
    mean = "GradientAccumulationOptimizerV2(optimizer, 4, reduction_method='MEAN')"
    quarter = DATA.replace("MomentumOptimizer(0.1", "MomentumOptimizer(0.025")
    found = losses(DATA, IPUS.format(ipus=1), LOOP.format(iterations=20, optimizer=mean), RUN)
    np.testing.assert_allclose(found, losses(quarter, ALONE), rtol=1e-5, atol=3e-7)


def test_what_a_device_does_not_take_is_one_line_of_ours_where_the_session_runs(losses, tmp_path):
    with pytest.raises(ProgramError, match=r"program\.py:\d+: Unsupported number of IPUs requested") as raised:
        losses(DATA, IPUS.format(ipus=3), PIPELINE, RUN)
    assert "\n" not in str(raised.value)
    (line,) = re.findall(r"program\.py:(\d+)", str(raised.value))
    assert (tmp_path / "program.py").read_text().splitlines()[int(line) - 1].strip() == "session.run(compiled)"
