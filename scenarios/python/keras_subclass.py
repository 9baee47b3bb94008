"""A subclass of Keras' Model over two pipelined IPUs, whose call says which stage its layers are in."""

import numpy as np
from tensorflow import keras
from tensorflow.python import ipu


class MyModel(keras.Model):
    def __init__(self):
        super().__init__(name="my_model")
        self.dense_layer_1 = keras.layers.Dense(16, activation="relu")
        self.dense_layer_2 = keras.layers.Dense(16, activation="relu")
        self.concat_layer = keras.layers.Concatenate()
        self.dense_layer_3 = keras.layers.Dense(1)

    def call(self, inputs):
        with keras.ipu.PipelineStage(0):
            x = self.dense_layer_1(inputs)
        with keras.ipu.PipelineStage(1):
            y = self.dense_layer_2(x)
            return self.dense_layer_3(self.concat_layer([x, y]))


def main():
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 2
    cfg.configure_ipu_system()
    x = np.random.default_rng(0).uniform(-1, 1, (512, 2))

    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        model = MyModel()
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4, accumulate_outfeed=True)
        model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse", metrics=["mae"], steps_per_execution=32)
        history = model.fit(x, x[:, :1] * x[:, 1:], batch_size=16, epochs=20, verbose=0)
        model.print_pipeline_stage_assignment_summary()
        print(f"Loss from {history.history['loss'][0]:.4f} to {history.history['loss'][-1]:.4f}")


if __name__ == "__main__":
    main()
