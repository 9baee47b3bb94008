"""A network for 28 x 28 images over two IPUs of four: probabilities and classes of 500 mini-batches."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow import keras
from tensorflow.python.ipu import config, ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue, scopes
from tensorflow.python.ipu.ops import pipelining_ops

BATCH_SIZE = 8

(_, _), (images, _) = keras.datasets.synthetic.load_data()
dataset = tf.data.Dataset.from_tensor_slices(images).batch(BATCH_SIZE, drop_remainder=True).repeat()
infeed_queue = ipu_infeed_queue.IPUInfeedQueue(dataset, "infeed")
outfeed_queue = ipu_outfeed_queue.IPUOutfeedQueue("outfeed")


def stage1(image):
    partial = keras.layers.Flatten()(image)
    partial = keras.layers.Dense(256, activation=tf.nn.relu)(partial)
    partial = keras.layers.Dense(128, activation=tf.nn.relu)(partial)
    return partial


def stage2(partial):
    logits = keras.layers.Dense(10)(partial)
    probabilities = tf.nn.softmax(logits)
    classes = tf.argmax(input=logits, axis=1)
    return probabilities, classes


def model():
    with tf.variable_scope("vs", use_resource=True):
        return pipelining_ops.pipeline(
            computational_stages=[stage1, stage2],
            gradient_accumulation_count=250,
            repeat_count=2,
            inputs=[],
            infeed_queue=infeed_queue,
            outfeed_queue=outfeed_queue,
            device_mapping=[3, 1],
            name="Pipeline",
        )


cfg = config.IPUConfig()
cfg.auto_select_ipus = 4
config.configure_ipu_system(cfg)

with scopes.ipu_scope("/device:IPU:0"):
    compiled_model = ipu_compiler.compile(model, inputs=[])

outfeed_op = outfeed_queue.dequeue()
with tf.Session() as session:
    session.run([tf.global_variables_initializer(), infeed_queue.initializer])
    session.run(compiled_model)
    probabilities, classes = session.run(outfeed_op)

print(f"Probabilities {probabilities.shape}, classes {classes.shape}")
print(f"Most likely classes of the first mini-batch: {classes[0].tolist()}")
print(f"Sum of each row of probabilities: {np.mean(probabilities.sum(axis=-1)):.3f}")
