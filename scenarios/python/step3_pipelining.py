"""Step 3 of the pipelining tutorial: the two halves of the model as a pipeline, both IPUs busy at once."""

import argparse
import time

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.keras import datasets, layers
from tensorflow.python import ipu


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32, help="samples of a mini-batch")
    parser.add_argument("--repeat-count", type=int, default=10, help="executions of the pipeline in a step")
    parser.add_argument("--batches-to-accumulate", type=int, default=16, help="mini-batches of a weight update")
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--schedule", default="Grouped", choices=["Grouped", "Interleaved", "Sequential"])
    return parser.parse_args()


def create_dataset(args):
    (images, labels), _ = datasets.synthetic.load_data()
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.map(lambda image, label: (tf.cast(image, tf.float32), tf.cast(label, tf.int32)))
    return len(images), dataset.batch(args.batch_size, drop_remainder=True).repeat().prefetch(16)


def layer1_flatten(learning_rate, images, labels):
    with tf.variable_scope("flatten"):
        activations = layers.Flatten()(images)
        return learning_rate, activations, labels


def layer2_dense256(learning_rate, activations, labels):
    with tf.variable_scope("dense256"):
        activations = layers.Dense(256, activation=tf.nn.relu)(activations)
        return learning_rate, activations, labels


def layer3_dense128(learning_rate, activations, labels):
    with tf.variable_scope("dense128"):
        activations = layers.Dense(128, activation=tf.nn.relu)(activations)
        return learning_rate, activations, labels


def layer4_dense64(learning_rate, activations, labels):
    with tf.variable_scope("dense64"):
        activations = layers.Dense(64, activation=tf.nn.relu)(activations)
        return learning_rate, activations, labels


def layer5_dense32(learning_rate, activations, labels):
    with tf.variable_scope("dense32"):
        activations = layers.Dense(32, activation=tf.nn.relu)(activations)
        return learning_rate, activations, labels


def layer6_logits(learning_rate, activations, labels):
    with tf.variable_scope("logits"):
        logits = layers.Dense(10)(activations)
        return learning_rate, logits, labels


def layer7_cel(learning_rate, logits, labels):
    with tf.variable_scope("softmax_ce"):
        cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    with tf.variable_scope("mean"):
        loss = tf.reduce_mean(cross_entropy)
        return learning_rate, loss


def optimizer_function(learning_rate, loss):
    optimizer = tf.train.GradientDescentOptimizer(learning_rate=learning_rate)
    return ipu.pipelining_ops.OptimizerFunctionOutput(optimizer, loss)


def build_model(args, infeed_queue, outfeed_queue):
    def pipelined_model(learning_rate):
        def stage1(learning_rate, images, labels):
            r = layer1_flatten(learning_rate, images, labels)
            r = layer2_dense256(*r)
            r = layer3_dense128(*r)
            r = layer4_dense64(*r)
            return r

        def stage2(*r):
            r = layer5_dense32(*r)
            r = layer6_logits(*r)
            r = layer7_cel(*r)
            return r

        with tf.variable_scope("FCModel", use_resource=True):
            return ipu.pipelining_ops.pipeline(
                computational_stages=[stage1, stage2],
                gradient_accumulation_count=args.batches_to_accumulate,
                repeat_count=args.repeat_count,
                inputs=[learning_rate],
                infeed_queue=infeed_queue,
                outfeed_queue=outfeed_queue,
                optimizer_function=optimizer_function,
                pipeline_schedule=ipu.pipelining_ops.PipelineSchedule[args.schedule],
                name="Pipeline",
            )

    return pipelined_model


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
            losses = session.run(outfeed_op)[1]
            epoch = step * examples_per_step / samples
            print(f"Step {step}, Epoch {epoch:.1f}, Mean loss: {np.mean(losses):.3f}")
        print(f"Elapsed {time.time() - begin:.1f} s")


def main():
    args = parse_args()
    samples, dataset = create_dataset(args)
    infeed_queue = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
    outfeed_queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    model = build_model(args, infeed_queue, outfeed_queue)

    ipu_configuration = ipu.config.IPUConfig()
    ipu_configuration.auto_select_ipus = 2
    ipu_configuration.selection_order = ipu.utils.SelectionOrder.SNAKE
    ipu_configuration.configure_ipu_system()

    with tf.device("cpu"):
        learning_rate = tf.placeholder(np.float32, [])
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        compiled_model = ipu.ipu_compiler.compile(model, inputs=[learning_rate])
    examples_per_step = args.batch_size * args.batches_to_accumulate * args.repeat_count
    train(args, samples, examples_per_step, compiled_model, learning_rate, infeed_queue, outfeed_queue)


if __name__ == "__main__":
    main()
