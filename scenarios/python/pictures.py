"""Images of bytes: normalised on the IPU, the first rows of each cut out, and the logits counted in a histogram."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow import keras
from tensorflow.python.ipu import config, ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue, scopes
from tensorflow.python.ipu.ops import image_ops, pipelining_ops, slicing_ops, statistics_ops

BATCH_SIZE, COUNT, KEPT = 8, 16, 20

(images, labels), _ = keras.datasets.synthetic.load_data()
low, high = images.min(), images.max()
colours = np.repeat(((images - low) / (high - low) * 255).astype(np.uint8)[..., None], 3, axis=-1)
offsets, scales = np.full(3, 0.5, np.float32), np.full(3, 2.0, np.float32)
dataset = tf.data.Dataset.from_tensor_slices((colours, labels)).batch(BATCH_SIZE, drop_remainder=True).repeat()
infeed_queue = ipu_infeed_queue.IPUInfeedQueue(dataset, "infeed")
outfeed_queue = ipu_outfeed_queue.IPUOutfeedQueue("outfeed")


def prepare(images, labels):
    normal = image_ops.normalise_image(images, offsets, scales, 1 / 255)
    rows = tf.reshape(normal, [BATCH_SIZE * 28, 28 * 4])
    starts = [28 * image for image in range(BATCH_SIZE)]
    cut = slicing_ops.sequence_slice_unpack(rows, [KEPT] * BATCH_SIZE, starts, KEPT * BATCH_SIZE)
    return tf.cast(tf.reshape(cut, [BATCH_SIZE, KEPT * 28 * 4]), tf.float32), labels


def classify(pixels, labels):
    hidden = keras.layers.Dense(32, activation=tf.nn.relu)(pixels)
    logits = keras.layers.Dense(10)(hidden)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    flat = tf.reshape(logits, [BATCH_SIZE * 10])
    levels = np.array([-2, -1, 0, 1, 2], np.float32)
    return loss, statistics_ops.histogram(flat, levels), statistics_ops.fixed_width_bins(flat, 3)


def optimizer_function(loss, *_):
    return pipelining_ops.OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(0.01), loss)


def model():
    return pipelining_ops.pipeline(
        computational_stages=[prepare, classify],
        gradient_accumulation_count=COUNT,
        repeat_count=10,
        infeed_queue=infeed_queue,
        outfeed_queue=outfeed_queue,
        optimizer_function=optimizer_function,
        name="Pictures",
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
    losses, histograms, levels = session.run(outfeed_op)
    print(f"Loss from {np.mean(losses[:COUNT]):.3f} to {np.mean(losses[-COUNT:]):.3f}")
    for name, part in (("first", histograms[:COUNT]), ("last", histograms[-COUNT:])):
        print(
            f"Logits of the {name} step, below -2 and from -2, -1, 0, 1 and 2:", part.sum(axis=0).astype(int).tolist()
        )
    print("Least, middle and largest of the last:", *(f"{level:.2f}" for level in levels[-1]))
