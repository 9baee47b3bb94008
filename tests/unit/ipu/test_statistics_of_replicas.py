"""Batch normalisation by the statistics of several replicas: that of one replica on the samples of all."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.base.errors import IpusimError
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.optimizers import CrossReplicaOptimizer, GradientDescentOptimizer
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, pipeline
from ipusim.timeline.kinds import SpanKind

COUNT, BATCH, CHANNELS = 4, 3, 5
X = np.random.default_rng(1).normal(2.0, 3.0, (COUNT * 4 * BATCH, CHANNELS)).astype(np.float32)


def trained(replicas, group, batch):
    """Return the mean loss of each micro-batch over the replicas, and the pipeline."""
    config, outfeed = IPUConfig(), IPUOutfeedQueue()
    config.auto_select_ipus = 2 * replicas
    config.norms.experimental.distributed_batch_norm_replica_group_size = group
    data = tf.data.Dataset.from_tensor_slices(X).batch(batch, drop_remainder=True).repeat()

    def normalise(x):
        return tf.keras.layers.BatchNormalization(momentum=0.5, name="norm")(x)

    def judge(y):
        return tf.reduce_mean(tf.square(y * tf.get_variable("w", initializer=np.ones(CHANNELS, np.float32)) - 1.0))

    def learn(loss):
        return OptimizerFunctionOutput(CrossReplicaOptimizer(GradientDescentOptimizer(0.1)), loss)

    done = pipeline(
        [normalise, judge],
        gradient_accumulation_count=COUNT,
        repeat_count=2,
        infeed_queue=IPUInfeedQueue(data),
        outfeed_queue=outfeed,
        optimizer_function=learn,
        config=config,
    )
    losses = np.asarray(outfeed.dequeue()[0])
    return losses.reshape(len(losses), -1).mean(axis=1), done


def test_all_replicas_together_are_one_on_the_samples_of_all():
    several, mine = trained(4, 4, BATCH)
    one, other = trained(1, 1, 4 * BATCH)
    np.testing.assert_allclose(several, one, rtol=1e-4)
    for name, array in other.variables.items():
        np.testing.assert_allclose(mine.variables[name], array, rtol=1e-4, atol=1e-6, err_msg=name)
    assert len(mine.timeline.rows(SpanKind.COLLECTIVE))
    assert not len(other.timeline.rows(SpanKind.COLLECTIVE))


def test_each_replica_by_itself_is_another_matter():
    several, _ = trained(4, 2, BATCH)
    alone, done = trained(4, 1, BATCH)
    one, _ = trained(1, 1, 4 * BATCH)
    assert not np.allclose(several, one, rtol=1e-6)
    assert not np.allclose(several, alone, rtol=1e-6)
    assert not len(done.timeline.rows(SpanKind.COLLECTIVE))


def test_a_group_that_does_not_divide_the_replicas_is_refused():
    with pytest.raises(IpusimError, match="3"):
        trained(4, 3, BATCH)
