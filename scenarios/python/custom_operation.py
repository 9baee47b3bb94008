"""A pipeline whose activation is an operation of one's own, from the file of Python beside this one."""

from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.compat.v1 import keras
from tensorflow.python.ipu import config, ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue, scopes
from tensorflow.python.ipu.ops import custom_ops, pipelining_ops

BATCH_SIZE, COUNT = 8, 16
LIBRARY = str(Path(__file__).with_name("soft_plus.py"))

(images, labels), _ = keras.datasets.synthetic.load_data()
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH_SIZE, drop_remainder=True).repeat()
infeed_queue = ipu_infeed_queue.IPUInfeedQueue(dataset, "infeed")
outfeed_queue = ipu_outfeed_queue.IPUOutfeedQueue("outfeed")


def soft_plus(x):
    outs = {"output_types": [x.dtype], "output_shapes": [x.shape]}
    return custom_ops.precompiled_user_op([x], LIBRARY, outs=outs, op_name="soft_plus")[0]


def stage1(images, labels):
    hidden = keras.layers.Dense(64)(keras.layers.Flatten()(images))
    return soft_plus(hidden), labels


def stage2(hidden, labels):
    logits = keras.layers.Dense(10)(hidden)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def optimizer_function(loss):
    return pipelining_ops.OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(0.1), loss)


def model():
    return pipelining_ops.pipeline(
        computational_stages=[stage1, stage2],
        gradient_accumulation_count=COUNT,
        repeat_count=20,
        infeed_queue=infeed_queue,
        outfeed_queue=outfeed_queue,
        optimizer_function=optimizer_function,
        name="Custom",
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
