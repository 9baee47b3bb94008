"""A Keras model over two pipelined IPUs that is saved after each epoch, loaded, and trained on to the same bits."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from tensorflow import keras
from tensorflow.python import ipu

BATCH_SIZE = 16


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4, help="before and after the model is loaded")
    return parser.parse_args()


class Scaled(keras.layers.Layer):
    def __init__(self, factor, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, inputs):
        return inputs * self.factor

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


def load_data():
    x = np.random.default_rng(0).uniform(-1, 1, (512, 4)).astype(np.float32)
    return x, x[:, :1] * x[:, 1:2] + x[:, 2:3]


def create_model():
    inputs = keras.Input((4,))
    with keras.ipu.PipelineStage(0):
        x = keras.layers.Dense(32, activation="relu")(inputs)
        x = keras.layers.Dropout(0.1)(x)
    with keras.ipu.PipelineStage(1):
        x = Scaled(0.5)(x)
        outputs = keras.layers.Dense(1)(x)
    model = keras.Model(inputs, outputs, name="saved")
    model.set_pipelining_options(
        gradient_accumulation_steps_per_replica=8, gradient_accumulation_reduction_method="mean"
    )
    rate = keras.optimizers.schedules.ExponentialDecay(0.02, decay_steps=10, decay_rate=0.9)
    model.compile(keras.optimizers.Adam(rate), "mse", metrics=["mae"], steps_per_execution=32)
    return model


def main():
    args = parse_args()
    x, y = load_data()
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 2
    cfg.configure_ipu_system()

    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope(), tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "saved.keras")
        model = create_model()
        model.fit(x, y, BATCH_SIZE, epochs=args.epochs, callbacks=[keras.callbacks.ModelCheckpoint(path)], verbose=2)

        loaded = keras.models.load_model(path, custom_objects={"Scaled": Scaled})
        print(f"Loaded {loaded.name} after {int(loaded.optimizer.iterations)} weight updates")
        for each in (model, loaded):
            each.fit(x, y, BATCH_SIZE, initial_epoch=args.epochs, epochs=2 * args.epochs, verbose=0)
        same = all(np.array_equal(*pair) for pair in zip(model.get_weights(), loaded.get_weights()))
        print(f"Trained on to the {'same' if same else 'other'} bits")
        loss, error = loaded.evaluate(x, y, BATCH_SIZE, verbose=0)
        print(f"Loss {loss:.4f}, mean absolute error {error:.4f}")


if __name__ == "__main__":
    main()
