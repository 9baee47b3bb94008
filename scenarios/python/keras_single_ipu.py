"""Keras on one IPU: several steps in one execution, and the gradients of several batches in one weight update."""

import argparse

import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps-per-execution", type=int, default=20, help="batches in one execution")
    parser.add_argument("--batches-to-accumulate", type=int, default=4, help="batches of a weight update")
    return parser.parse_args()


def create_train_dataset():
    (images, labels), _ = keras.datasets.synthetic.load_data()
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32, drop_remainder=True)
    return dataset.map(lambda image, label: (tf.cast(image, tf.float32), tf.cast(label, tf.int32))).repeat()


def create_model():
    return keras.Sequential(
        [
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def main():
    args = parse_args()
    ipu_config = ipu.config.IPUConfig()
    ipu_config.auto_select_ipus = 1
    ipu_config.configure_ipu_system()

    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        model = create_model()
        model.set_gradient_accumulation_options(
            gradient_accumulation_steps_per_replica=args.batches_to_accumulate,
            gradient_accumulation_reduction_method="mean",
        )
        model.compile(
            loss=keras.losses.SparseCategoricalCrossentropy(),
            optimizer=keras.optimizers.Adam(0.01),
            metrics=["accuracy"],
            steps_per_execution=args.steps_per_execution,
        )
        model.fit(create_train_dataset(), epochs=args.epochs, steps_per_epoch=160)
        model.summary()


if __name__ == "__main__":
    main()
