"""The same network trained: the step size comes as an input of the pipeline, 1,280 mini-batches in a run."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow import keras
from tensorflow.python.ipu import config, ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue, scopes
from tensorflow.python.ipu.ops import pipelining_ops

BATCH_SIZE = 8

(images, labels), _ = keras.datasets.synthetic.load_data()
dataset = tf.data.Dataset.from_tensor_slices((images, labels))
dataset = dataset.shuffle(len(images)).batch(BATCH_SIZE, drop_remainder=True).repeat()
infeed_queue = ipu_infeed_queue.IPUInfeedQueue(dataset, "infeed")
outfeed_queue = ipu_outfeed_queue.IPUOutfeedQueue("outfeed")


def stage1(lr, images, labels):
    partial = keras.layers.Flatten()(images)
    partial = keras.layers.Dense(256, activation=tf.nn.relu)(partial)
    partial = keras.layers.Dense(128, activation=tf.nn.relu)(partial)
    return lr, partial, labels


def stage2(lr, partial, labels):
    logits = keras.layers.Dense(10)(partial)
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    loss = tf.reduce_mean(cross_entropy)
    return lr, loss


def optimizer_function(lr, loss):
    optimizer = tf.train.GradientDescentOptimizer(lr)
    return pipelining_ops.OptimizerFunctionOutput(optimizer, loss)


def model(lr):
    with tf.variable_scope("vs", use_resource=True):
        return pipelining_ops.pipeline(
            computational_stages=[stage1, stage2],
            gradient_accumulation_count=128,
            repeat_count=10,
            inputs=[lr],
            infeed_queue=infeed_queue,
            outfeed_queue=outfeed_queue,
            optimizer_function=optimizer_function,
            name="Pipeline",
        )


cfg = config.IPUConfig()
cfg.auto_select_ipus = 2
config.configure_ipu_system(cfg)

with tf.device("cpu"):
    lr = tf.placeholder(np.float16, [])

with scopes.ipu_scope("/device:IPU:0"):
    compiled_model = ipu_compiler.compile(model, inputs=[lr])

outfeed_op = outfeed_queue.dequeue()
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(infeed_queue.initializer)
    for rate in (0.002, 0.001):
        session.run(compiled_model, {lr: rate})
        rates, losses = session.run(outfeed_op)
        print(f"Learning rate {rates[0]:.3f}: loss from {np.mean(losses[:128]):.3f} to {np.mean(losses[-128:]):.3f}")
