"""How fast the host makes the elements of a dataset, and those of its queue: the rate of a scenario's host."""

import json

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

BATCH_SIZE, EPOCHS, ELEMENTS = 32, 2, 100


def preprocess(image, label):
    image = image / 255.0
    return (image - tf.reduce_mean(image)) / tf.math.reduce_std(image), label


images = np.random.default_rng(0).integers(0, 256, (1024, 28, 28)).astype(np.float32)
labels = np.zeros(1024, np.int32)
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).map(preprocess)
dataset = dataset.batch(BATCH_SIZE, drop_remainder=True).repeat()
infeed_queue = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)

benchmark_op = ipu.dataset_benchmark.dataset_benchmark(dataset, EPOCHS, ELEMENTS)
infeed_op = ipu.dataset_benchmark.infeed_benchmark(infeed_queue, EPOCHS, ELEMENTS, print_stats=False)

with tf.Session() as sess:
    json_string = sess.run(benchmark_op)
    json_object = json.loads(json_string[0])
    infeed = json.loads(sess.run(infeed_op)[0])["epochs"]

epochs = json_object["epochs"]
print(f"{len(epochs)} epochs of {epochs[0]['elements_processed']:.0f} elements")
print(f"{epochs[0]['total_bytes_processed'] / ELEMENTS:.0f} bytes in each")
seconds = sum(epoch["time_elapsed"] for epoch in infeed)
bandwidth = sum(epoch["total_bytes_processed"] for epoch in infeed) / seconds / 1e9
print(f"--set 'system.host.data_rate={bandwidth:.9f} GB/s'")
