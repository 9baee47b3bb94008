"""An estimator on all hosts that run this program, as of `mpirun -np 2`: each trains on its part of every batch.

On one host it trains on whole batches, to the same losses.
"""

import argparse

import tensorflow.compat.v1 as tf
from tensorflow.keras.datasets import mnist
from tensorflow.keras.layers import Dense, Flatten
from tensorflow.python import ipu
from tensorflow.python.ipu.ipu_multi_worker_strategy import IPUMultiWorkerStrategy

GLOBAL_BATCH_SIZE = 64
BATCHES_OF_A_RUN = 20


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=80, help="batches to train on, in all calls together")
    parser.add_argument("--model-dir", help="folder of the checkpoints, from the latest of which training goes on")
    return parser.parse_args()


def input_fn(mode, params, input_context=None):
    train, test = mnist.load_data()
    images, labels = train if mode == tf.estimator.ModeKeys.TRAIN else test
    dataset = tf.data.Dataset.from_tensor_slices((images[:6400].astype("float32") / 255, labels[:6400].astype("int32")))
    if input_context:
        print(f"Reads batches of {params['batch_size']} samples")
        dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.batch(params["batch_size"], drop_remainder=True).repeat()


def model_fn(features, labels, mode, params):
    partial = Flatten()(features)
    partial = Dense(64, activation=tf.nn.relu)(partial)
    logits = Dense(10)(partial)
    # The mean over this worker's samples: the workers average their gradients.
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    if mode == tf.estimator.ModeKeys.EVAL:
        accuracy = tf.metrics.accuracy(labels, tf.argmax(logits, axis=1))
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    optimizer = tf.train.MomentumOptimizer(params["learning_rate"], 0.9)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss))


def main():
    args = parse_args()
    strategy = IPUMultiWorkerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    config = ipu.ipu_run_config.RunConfig(
        ipu_run_config=ipu.ipu_run_config.IPURunConfig(iterations_per_loop=BATCHES_OF_A_RUN),
        model_dir=args.model_dir,
        save_checkpoints_steps=2 * BATCHES_OF_A_RUN,
        train_distribute=strategy,
    )
    print(f"Worker {config.task_id} of {config.num_worker_replicas}")
    estimator = ipu.ipu_estimator.IPUEstimator(
        model_fn,
        config=config,
        params={"learning_rate": 0.01},
        train_batch_size=GLOBAL_BATCH_SIZE,
        eval_batch_size=GLOBAL_BATCH_SIZE,
    )
    metrics, _ = tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(input_fn, max_steps=args.steps),
        tf.estimator.EvalSpec(input_fn, steps=BATCHES_OF_A_RUN, throttle_secs=0),
    )
    if metrics:  # which the chief alone has
        print(f"Step {metrics['global_step']}: loss {metrics['loss']:.3f}, accuracy {metrics['accuracy']:.3f}")


if __name__ == "__main__":
    main()
