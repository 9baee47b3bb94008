"""Functional Keras models over two pipelined IPUs: stages where layers are called, or assigned afterwards."""

import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu


class PrintLoss(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch % 40 == 39:
            print(f"After {batch + 1} steps: mean loss {logs['loss']:.3f}")


def create_train_dataset():
    (images, labels), _ = keras.datasets.synthetic.load_data()
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32, drop_remainder=True)
    return dataset.map(lambda image, label: (tf.cast(image, tf.float32), tf.cast(label, tf.int32)))


def create_model_in_stages():
    images = keras.layers.Input((28, 28))
    with keras.ipu.PipelineStage(0):
        x = keras.layers.Flatten()(images)
        x = keras.layers.Dense(256, activation="relu")(x)
    with keras.ipu.PipelineStage(1):
        y = keras.layers.Dense(256, activation="relu")(x)
        x = keras.layers.Add()([x, y])
        x = keras.layers.Dense(10)(x)
    return keras.Model(inputs=images, outputs=x, name="in_stages")


def create_existing_model():
    images = keras.layers.Input((28, 28))
    x = keras.layers.Flatten()(images)
    shared = keras.layers.Dense(256, activation="relu", name="hidden")(x)
    x = keras.layers.Dense(256, activation="relu")(shared)
    x = keras.layers.Concatenate(name="both")([x, shared])
    return keras.Model(inputs=images, outputs=keras.layers.Dense(10)(x), name="existing")


def assign_stages(model):
    stage_id = 0
    assignments = model.get_pipeline_stage_assignment()
    for assignment in assignments:
        assignment.pipeline_stage = stage_id
        if assignment.layer.name == "hidden":
            stage_id = 1
    model.set_pipeline_stage_assignment(assignments)


def train(model):
    model.print_pipeline_stage_assignment_summary()
    model.set_pipelining_options(
        gradient_accumulation_steps_per_replica=20,
        gradient_accumulation_reduction_method=ipu.gradient_accumulation.GradientAccumulationReductionMethod.MEAN,
        pipeline_schedule=ipu.ops.pipelining_ops.PipelineSchedule.Interleaved,
    )
    model.set_infeed_queue_options(prefetch_depth=4)
    model.set_outfeed_queue_options(buffer_depth=4)
    model.set_asynchronous_callbacks(True)
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.Adam(0.01),
        steps_per_execution=160,
    )
    model.fit(create_train_dataset(), epochs=2, callbacks=[PrintLoss()])


def main():
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 2
    cfg.configure_ipu_system()

    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        train(create_model_in_stages())
        model = create_existing_model()
        assign_stages(model)
        train(model)


if __name__ == "__main__":
    main()
