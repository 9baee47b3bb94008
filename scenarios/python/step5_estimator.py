"""Step 5 of the pipelining tutorial: the two halves of the model in an IPUPipelineEstimator, with checkpoints."""

import argparse
import time

import tensorflow.compat.v1 as tf
from tensorflow.keras import datasets, layers
from tensorflow.python import ipu


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32, help="samples of a mini-batch")
    parser.add_argument("--repeat-count", type=int, default=10, help="executions of the pipeline in a run")
    parser.add_argument("--batches-to-accumulate", type=int, default=16, help="mini-batches of a weight update")
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--steps", type=int, help="mini-batches to train on, in the place of epochs")
    parser.add_argument("--model-dir", help="folder of the checkpoints, from the latest of which training goes on")
    return parser.parse_args()


def layer1_flatten(images, labels):
    with tf.variable_scope("flatten"):
        activations = layers.Flatten()(images)
        return activations, labels


def layer2_dense256(activations, labels):
    with tf.variable_scope("dense256"):
        activations = layers.Dense(256, activation=tf.nn.relu)(activations)
        return activations, labels


def layer3_dense128(activations, labels):
    with tf.variable_scope("dense128"):
        activations = layers.Dense(128, activation=tf.nn.relu)(activations)
        return activations, labels


def layer4_dense64(activations, labels):
    with tf.variable_scope("dense64"):
        activations = layers.Dense(64, activation=tf.nn.relu)(activations)
        return activations, labels


def layer5_dense32(activations, labels):
    with tf.variable_scope("dense32"):
        activations = layers.Dense(32, activation=tf.nn.relu)(activations)
        return activations, labels


def layer6_logits(activations, labels):
    with tf.variable_scope("logits"):
        logits = layers.Dense(10)(activations)
        return logits, labels


def layer7_cel(logits, labels):
    with tf.variable_scope("softmax_ce"):
        cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    with tf.variable_scope("mean"):
        loss = tf.reduce_mean(cross_entropy)
        return loss


def model_fn(mode, params):
    if not mode == tf.estimator.ModeKeys.TRAIN:
        raise NotImplementedError(mode)

    def stage1(images, labels):
        r = layer1_flatten(images, labels)
        r = layer2_dense256(*r)
        r = layer3_dense128(*r)
        r = layer4_dense64(*r)
        return r

    def stage2(*r):
        r = layer5_dense32(*r)
        r = layer6_logits(*r)
        loss = layer7_cel(*r)
        return loss

    def optimizer_function(loss):
        optimizer = tf.train.GradientDescentOptimizer(learning_rate=params["learning_rate"])
        return ipu.pipelining_ops.OptimizerFunctionOutput(optimizer, loss)

    return ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec(
        mode,
        computational_stages=[stage1, stage2],
        optimizer_function=optimizer_function,
        gradient_accumulation_count=params["gradient_accumulation_count"],
    )


def main():
    args = parse_args()
    tf.logging.set_verbosity(tf.logging.INFO)
    (images, labels), _ = datasets.synthetic.load_data()
    images, labels = images.astype("float32"), labels.astype("int32")

    iterations_per_loop = args.batches_to_accumulate * args.repeat_count
    batches = int(args.epochs * len(images)) // args.batch_size
    steps = args.steps if args.steps is not None else iterations_per_loop * (batches // iterations_per_loop)
    training_samples = steps * args.batch_size
    print(
        f"Steps {steps} x batch size {args.batch_size} "
        f"(== {training_samples} training examples, {training_samples / len(images)} epochs of {len(images)} examples)"
    )

    ipu_config = ipu.config.IPUConfig()
    ipu_config.auto_select_ipus = 2
    ipu_config.selection_order = ipu.utils.SelectionOrder.SNAKE
    ipu_run_config = ipu.ipu_run_config.IPURunConfig(
        num_shards=2, iterations_per_loop=iterations_per_loop, ipu_options=ipu_config
    )
    config = ipu.ipu_run_config.RunConfig(
        ipu_run_config=ipu_run_config, log_step_count_steps=1, model_dir=args.model_dir
    )
    ipu_estimator = ipu.ipu_pipeline_estimator.IPUPipelineEstimator(
        config=config,
        model_fn=model_fn,
        params={
            "learning_rate": args.learning_rate,
            "gradient_accumulation_count": args.batches_to_accumulate,
        },
    )

    def input_fn():
        types, shapes = (images.dtype, labels.dtype), (images.shape[1:], labels.shape[1:])

        def generator():
            return zip(images, labels)

        dataset = tf.data.Dataset.from_generator(generator, types, shapes)
        dataset = dataset.batch(args.batch_size, drop_remainder=True)
        dataset = dataset.shuffle(len(images))
        dataset = dataset.cache()
        dataset = dataset.repeat()
        return dataset.prefetch(tf.data.experimental.AUTOTUNE)

    begin = time.time()
    ipu_estimator.train(input_fn=input_fn, steps=steps)
    elapsed = time.time() - begin
    print(f"Elapsed {elapsed:.1f} s, {training_samples / elapsed:.0f} samples/sec")


if __name__ == "__main__":
    main()
