"""Two stages beside each other on IPUs of their own, which take the same and whose outputs the next stage gets."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.keras import datasets, layers
from tensorflow.python.ipu import config, ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue, pipelining_ops

(images, labels), _ = datasets.synthetic.load_data()
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32, drop_remainder=True).repeat()
infeed_queue = ipu_infeed_queue.IPUInfeedQueue(dataset)
outfeed_queue = ipu_outfeed_queue.IPUOutfeedQueue()


def stage0(images, labels):
    return layers.Dense(128, activation=tf.nn.relu)(layers.Flatten()(images)), labels


def stage1a(x, labels):
    return layers.Dense(64, activation=tf.nn.relu)(x)


def stage1b(x, labels):
    return layers.Dense(64, activation=tf.nn.tanh)(x), labels


def stage2(a, b, labels):
    logits = layers.Dense(10)(tf.concat([a, b], axis=1))
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def optimizer_function(loss):
    return pipelining_ops.OptimizerFunctionOutput(tf.train.MomentumOptimizer(0.002, 0.9), loss)


def model():
    return pipelining_ops.pipeline(
        computational_stages=[stage0, [stage1a, stage1b], stage2],
        gradient_accumulation_count=12,
        repeat_count=40,
        infeed_queue=infeed_queue,
        outfeed_queue=outfeed_queue,
        optimizer_function=optimizer_function,
        device_mapping=[0, [1, 2], 3],
        outfeed_loss=True,
    )


cfg = config.IPUConfig()
cfg.auto_select_ipus = 4
cfg.configure_ipu_system()
compiled_model = ipu_compiler.compile(model)
outfeed_op = outfeed_queue.dequeue()
with tf.Session() as session:
    session.run([tf.global_variables_initializer(), infeed_queue.initializer])
    session.run(compiled_model)
    losses = session.run(outfeed_op)
print(f"Mean loss of the first execution {np.mean(losses[:12]):.3f}, of the last {np.mean(losses[-12:]):.3f}")
