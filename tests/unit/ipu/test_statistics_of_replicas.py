"""Batch normalisation by the statistics of several replicas: that of one replica on the samples of all."""

import numpy as np
import pytest

from ipusim.base.errors import ProgramError
from ipusim.timeline.kinds import SpanKind
from tests.programs import tensorflow
from tests.traced_training import ipus, train

COUNT, BATCH, CHANNELS = 4, 3, 5
X = np.random.default_rng(1).normal(2.0, 3.0, (COUNT * 4 * BATCH, 2, 1, CHANNELS)).astype(np.float32)


def trained(replicas, group, batch):
    """The mean loss of each micro-batch over the replicas, and the pipeline."""
    device = ipus(2 * replicas, norms__experimental__distributed_batch_norm_replica_group_size=group)

    def stages(_):
        tf = tensorflow()

        def variable(name, value, **options):
            start = np.full(CHANNELS, value, np.float32)
            return tf.compat.v1.get_variable(name, initializer=start, use_resource=True, **options)

        def normalise(x):
            scale, offset = variable("scale", 1.0), variable("offset", 0.0)
            moving = [variable(name, value, trainable=False) for name, value in (("mean", 0.0), ("variance", 1.0))]
            y, *new = tf.compat.v1.nn.fused_batch_norm(x, scale, offset, *moving, exponential_avg_factor=0.5)
            with tf.control_dependencies([each.assign(value) for each, value in zip(moving, new, strict=True)]):
                return tf.identity(y)

        return [normalise, lambda y: tf.reduce_mean(tf.square(y * variable("w", 1.0) - [1.0, 2.0, 3.0, 4.0, 5.0]))]

    def learning(v1):
        from ipusim.ipu.optimizers import CrossReplicaOptimizer  # noqa: PLC0415

        return CrossReplicaOptimizer(v1.train.GradientDescentOptimizer(0.1))

    done = train(stages, [X], batch=batch, device=device, optimizer=learning, gradient_accumulation_count=COUNT)
    losses = np.asarray(done.losses)
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
    with pytest.raises(ProgramError, match=r"^replica_group_size: expected a divisor of .* replicas, 4, got 3"):
        trained(4, 3, BATCH)
