"""A custom training loop on the device, and a thread that prints each step's loss while it goes on."""

from threading import Thread

import tensorflow as tf
from tensorflow.python import ipu

NUM_ITERATIONS = 100

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()


def create_dataset():
    (images, labels), _ = tf.keras.datasets.synthetic.load_data()
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(10000)
    dataset = dataset.map(lambda image, label: (tf.cast(image, tf.float32), tf.cast(label, tf.int32)))
    return dataset.batch(32, drop_remainder=True).repeat()


outfeed_queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()


@tf.function(jit_compile=True)
def training_step(num_iterations, iterator, in_model, optimizer):
    for _ in tf.range(num_iterations):
        features, labels = next(iterator)
        with tf.GradientTape() as tape:
            predictions = in_model(features, training=True)
            prediction_loss = tf.keras.losses.sparse_categorical_crossentropy(labels, predictions)
            loss = tf.reduce_mean(prediction_loss)
            grads = tape.gradient(loss, in_model.trainable_variables)
            optimizer.apply_gradients(zip(grads, in_model.trainable_variables))
        outfeed_queue.enqueue(loss)


strategy = ipu.ipu_strategy.IPUStrategyV1()
with strategy.scope():
    model = tf.keras.models.Sequential(
        [
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )
    opt = tf.keras.optimizers.SGD(0.01)
    train_iterator = iter(create_dataset())

    def dequeue_thread_fn():
        counter = 0
        while counter != NUM_ITERATIONS:
            for loss in outfeed_queue:
                print("Step", counter, "loss = ", loss.numpy())
                counter += 1

    dequeue_thread = Thread(target=dequeue_thread_fn, args=[])
    dequeue_thread.start()
    strategy.run(training_step, args=[NUM_ITERATIONS, train_iterator, model, opt])
    dequeue_thread.join()
