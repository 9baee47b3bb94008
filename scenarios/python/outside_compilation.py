"""A pipeline whose first stage has the host squash what it gives, in the middle of its passes."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.compat.v1 import keras
from tensorflow.python.ipu import config, ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue, scopes
from tensorflow.python.ipu.ops import pipelining_ops

BATCH_SIZE, COUNT = 8, 16

(images, labels), _ = keras.datasets.synthetic.load_data()
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH_SIZE, drop_remainder=True).repeat()
infeed_queue = ipu_infeed_queue.IPUInfeedQueue(dataset, "infeed")
outfeed_queue = ipu_outfeed_queue.IPUOutfeedQueue("outfeed")


def stage1(images, labels):
    hidden = keras.layers.Dense(64)(keras.layers.Flatten()(images))
    with scopes.outside_compilation_scope("squash"):
        squashed = hidden / (1.0 + tf.abs(hidden))
    return squashed, labels


def stage2(hidden, labels):
    logits = keras.layers.Dense(10)(hidden)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def optimizer_function(loss):
    return pipelining_ops.OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(0.2), loss)


def model():
    return pipelining_ops.pipeline(
        computational_stages=[stage1, stage2],
        gradient_accumulation_count=COUNT,
        repeat_count=20,
        infeed_queue=infeed_queue,
        outfeed_queue=outfeed_queue,
        optimizer_function=optimizer_function,
        name="Outside",
    )


cfg = config.IPUConfig()
cfg.auto_select_ipus = 2
config.configure_ipu_system(cfg)

with scopes.ipu_scope("/device:IPU:0"):
    compiled_model = ipu_compiler.compile(model)

outfeed_op = outfeed_queue.dequeue()
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(infeed_queue.initializer)
    session.run(compiled_model)
    (losses,) = session.run(outfeed_op)
    print(f"Loss from {np.mean(losses[:COUNT]):.3f} to {np.mean(losses[-COUNT:]):.3f}")
