"""Step 2 of the pipelining tutorial: the model sharded over two IPUs, of which one always waits."""

import argparse
import time

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.keras import datasets, layers
from tensorflow.python import ipu


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32, help="samples of a mini-batch")
    parser.add_argument("--repeat-count", type=int, default=160, help="mini-batches of a step")
    parser.add_argument("--batches-to-accumulate", type=int, default=16, help="mini-batches of a weight update")
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--epochs", type=float, default=10)
    return parser.parse_args()


def create_dataset(args):
    (images, labels), _ = datasets.synthetic.load_data()
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.map(lambda image, label: (tf.cast(image, tf.float32), tf.cast(label, tf.int32)))
    return len(images), dataset.batch(args.batch_size, drop_remainder=True).repeat().prefetch(16)


def build_model(args, infeed_queue, outfeed_queue):
    def model(learning_rate, images, labels):
        with ipu.scopes.ipu_shard(0):
            with tf.variable_scope("flatten"):
                activations = layers.Flatten()(images)
            with tf.variable_scope("dense256"):
                activations = layers.Dense(256, activation=tf.nn.relu)(activations)
            with tf.variable_scope("dense128"):
                activations = layers.Dense(128, activation=tf.nn.relu)(activations)
            with tf.variable_scope("dense64"):
                activations = layers.Dense(64, activation=tf.nn.relu)(activations)
        with ipu.scopes.ipu_shard(1):
            with tf.variable_scope("dense32"):
                activations = layers.Dense(32, activation=tf.nn.relu)(activations)
            with tf.variable_scope("logits"):
                logits = layers.Dense(10)(activations)
            with tf.variable_scope("softmax_ce"):
                cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            with tf.variable_scope("mean"):
                loss = tf.reduce_mean(cross_entropy)
            with tf.variable_scope("optimizer"):
                optimizer = tf.train.GradientDescentOptimizer(learning_rate=learning_rate)
                if args.batches_to_accumulate > 1:
                    optimizer = ipu.optimizers.GradientAccumulationOptimizerV2(
                        optimizer, num_mini_batches=args.batches_to_accumulate
                    )
                train_op = optimizer.minimize(loss=loss)
            with tf.control_dependencies([train_op]):
                return learning_rate, outfeed_queue.enqueue(loss)

    def loop_repeat_model(learning_rate):
        return ipu.loops.repeat(args.repeat_count, model, [learning_rate], infeed_queue)

    return loop_repeat_model


def train(args, samples, examples_per_step, compiled_model, learning_rate, infeed_queue, outfeed_queue):
    steps = max(1, round(args.epochs * samples / examples_per_step))
    total = steps * examples_per_step
    print(
        f"Steps {steps} x examples per step {examples_per_step} "
        f"(== {total} training examples, {total / samples} epochs of {samples} examples)"
    )
    outfeed_op = outfeed_queue.dequeue()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(infeed_queue.initializer)
        begin = time.time()
        for step in range(steps):
            session.run(compiled_model, {learning_rate: args.learning_rate})
            losses = session.run(outfeed_op)
            epoch = step * examples_per_step / samples
            print(f"Step {step}, Epoch {epoch:.1f}, Mean loss: {np.mean(losses):.3f}")
        print(f"Elapsed {time.time() - begin:.1f} s")


def main():
    args = parse_args()
    remainder = args.repeat_count % args.batches_to_accumulate
    if remainder > 0:
        args.repeat_count += args.batches_to_accumulate - remainder
    samples, dataset = create_dataset(args)
    infeed_queue = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
    outfeed_queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    model = build_model(args, infeed_queue, outfeed_queue)

    ipu_configuration = ipu.config.IPUConfig()
    ipu_configuration.auto_select_ipus = 2
    ipu_configuration.configure_ipu_system()

    with tf.device("cpu"):
        learning_rate = tf.placeholder(np.float32, [])
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        compiled_model = ipu.ipu_compiler.compile(model, inputs=[learning_rate])
    examples_per_step = args.batch_size * args.repeat_count
    train(args, samples, examples_per_step, compiled_model, learning_rate, infeed_queue, outfeed_queue)


if __name__ == "__main__":
    main()
