"""A Sequential Keras model over four pipelined IPUs: scikit-learn's digits, evaluated on those that it has not seen."""

import argparse

import numpy as np
from sklearn.datasets import load_digits
from tensorflow import keras
from tensorflow.python import ipu

BATCH_SIZE = 16


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    return parser.parse_args()


def load_data():
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, labels = (digits.images / 16)[order], digits.target[order]
    return (images[:1408], labels[:1408]), (images[1408:1792], labels[1408:1792])


def create_model():
    model = keras.Sequential(
        [
            keras.layers.Flatten(),
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.set_pipeline_stage_assignment([0, 0, 1, 2, 3])
    model.set_pipelining_options(
        gradient_accumulation_steps_per_replica=8,
        gradient_accumulation_reduction_method="mean",
        pipeline_schedule=ipu.ops.pipelining_ops.PipelineSchedule.Grouped,
    )
    return model


def main():
    args = parse_args()
    (x_train, y_train), (x_test, y_test) = load_data()
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 4
    cfg.configure_ipu_system()

    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        model = create_model()
        model.print_pipeline_stage_assignment_summary()
        model.compile(
            loss=keras.losses.SparseCategoricalCrossentropy(),
            optimizer=keras.optimizers.SGD(0.1, momentum=0.9),
            metrics=["accuracy"],
            steps_per_execution=88,
        )
        model.fit(
            x_train,
            y_train,
            batch_size=BATCH_SIZE,
            epochs=args.epochs,
            validation_data=(x_test, y_test),
            callbacks=[keras.callbacks.EarlyStopping("val_accuracy", patience=5, restore_best_weights=True)],
        )
        loss, accuracy = model.evaluate(x_test, y_test, batch_size=BATCH_SIZE)
        print(f"Held out: loss {loss:.3f}, accuracy {accuracy:.3f}")
        probabilities = model.predict(x_test, batch_size=BATCH_SIZE)
        print(f"Predicted {probabilities.shape}: {np.mean(probabilities.argmax(axis=1) == y_test):.3f} are right")


if __name__ == "__main__":
    main()
