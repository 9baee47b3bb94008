"""Four replicas that normalise their activations over the samples of all of them, and watch their mean loss."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.keras import datasets, layers
from tensorflow.python.ipu import config, ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue, optimizers
from tensorflow.python.ipu.ops import cross_replica_ops, pipelining_ops, replication_ops

REPLICAS = 4

(images, labels), _ = datasets.synthetic.load_data()
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(8, drop_remainder=True).repeat()
infeed_queue = ipu_infeed_queue.IPUInfeedQueue(dataset)
outfeed_queue = ipu_outfeed_queue.IPUOutfeedQueue()


def mean_over_replicas(x):
    return cross_replica_ops.cross_replica_sum(x) / REPLICAS


def stage1(images, labels):
    x = layers.Dense(64)(layers.Flatten()(images))
    moments = tf.stack([tf.reduce_mean(x, axis=0), tf.reduce_mean(x * x, axis=0)])
    mean, square = tf.unstack(mean_over_replicas(moments))
    return tf.nn.relu((x - mean) / tf.sqrt(square - mean * mean + 1e-3)), labels


def stage2(x, labels):
    logits = layers.Dense(10)(x)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    return loss, mean_over_replicas(loss), replication_ops.replication_index()


def optimizer_function(loss, mean_loss, replica):
    optimizer = optimizers.CrossReplicaOptimizer(tf.train.MomentumOptimizer(0.002, 0.9))
    return pipelining_ops.OptimizerFunctionOutput(optimizer, loss)


def model():
    return pipelining_ops.pipeline(
        computational_stages=[stage1, stage2],
        gradient_accumulation_count=8,
        repeat_count=20,
        infeed_queue=infeed_queue,
        outfeed_queue=outfeed_queue,
        optimizer_function=optimizer_function,
    )


cfg = config.IPUConfig()
cfg.auto_select_ipus = 2 * REPLICAS
cfg.configure_ipu_system()
compiled_model = ipu_compiler.compile(model)
outfeed_op = outfeed_queue.dequeue()
with tf.Session() as session:
    session.run([tf.global_variables_initializer(), infeed_queue.initializer])
    session.run(compiled_model)
    losses, means, replicas = session.run(outfeed_op)
print(f"Replicas {replicas[0]}")
print(f"Each knows the mean loss of all: {np.allclose(means, losses.mean(axis=1, keepdims=True))}")
print(f"Mean loss of the first execution {means[:8].mean():.3f}, of the last {means[-8:].mean():.3f}")
