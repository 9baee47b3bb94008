"""A loop on the device that takes a dataset's iterator, and a loop on the host over what has come from it."""

import tensorflow as tf
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()


def create_dataset():
    (images, labels), _ = tf.keras.datasets.synthetic.load_data()
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(10000)
    return dataset.batch(32, drop_remainder=True).repeat()


def create_model():
    return tf.keras.models.Sequential(
        [
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )


@tf.function(jit_compile=True)
def training_loop(iterator, steps_per_execution, outfeed, model, optimizer):
    for _ in tf.range(steps_per_execution):
        features, labels = next(iterator)
        with tf.GradientTape() as tape:
            logits = model(features, training=True)
            losses = tf.keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
            loss = tf.reduce_mean(losses)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables))
        outfeed.enqueue(loss)


strategy = ipu.ipu_strategy.IPUStrategy()
with strategy.scope():
    train_model = create_model()
    opt = tf.keras.optimizers.SGD(0.01)
    train_iterator = iter(create_dataset())
    outfeed_queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    total_steps = 1000
    steps_per_execution = 10

    for begin_step in range(0, total_steps, steps_per_execution):
        strategy.run(training_loop, args=(train_iterator, steps_per_execution, outfeed_queue, train_model, opt))
        total = 0.0
        for training_loss in outfeed_queue:
            total += training_loss
        print(f"Loss: {total / steps_per_execution}")
