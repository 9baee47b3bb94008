"""An estimator whose variables are on the host: gradients go there, and the host call updates them.

The optimizer's slots take no memory of the IPU. Several hosts (`mpirun -np 2`) average their gradients there.
"""

import argparse

import tensorflow.compat.v1 as tf
from tensorflow.keras import datasets, layers
from tensorflow.python import ipu
from tensorflow.python.ipu.ipu_multi_worker_strategy import IPUMultiWorkerStrategy

GLOBAL_BATCH_SIZE = 64


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60, help="batches to train on")
    return parser.parse_args()


def input_fn(params):
    (images, labels), _ = datasets.synthetic.load_data()
    dataset = tf.data.Dataset.from_tensor_slices((images.astype("float32"), labels.astype("int32")))
    return dataset.batch(params["batch_size"], drop_remainder=True).repeat()


def model_fn(features, labels, mode, params):
    partial = layers.Flatten()(features)
    partial = layers.Dense(64, activation=tf.nn.relu)(partial)
    logits = layers.Dense(10)(partial)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    # The gradients are computed on the IPU, and applied on the host.
    optimizer = tf.train.AdamOptimizer(params["learning_rate"])
    variables = tf.trainable_variables()
    gradients = [gradient for gradient, _ in optimizer.compute_gradients(loss, var_list=variables)]

    def host_fn(*host_gradients):
        return optimizer.apply_gradients(zip(host_gradients, variables, strict=True))

    return ipu.ipu_estimator.IPUEstimatorSpec(
        mode, loss=loss, train_op=tf.identity(loss), host_call=(host_fn, gradients)
    )


def main():
    args = parse_args()
    strategy = IPUMultiWorkerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver(), variables_on_host=True)
    config = ipu.ipu_run_config.RunConfig(
        ipu_run_config=ipu.ipu_run_config.IPURunConfig(iterations_per_loop=1),  # the host has its turn after each
        log_step_count_steps=20,
        train_distribute=strategy,
    )
    estimator = ipu.ipu_estimator.IPUEstimator(
        model_fn, config=config, params={"learning_rate": 0.01}, train_batch_size=GLOBAL_BATCH_SIZE
    )
    tf.logging.set_verbosity(tf.logging.INFO)
    estimator.train(input_fn, max_steps=args.steps)
    moments = [name for name in estimator.get_variable_names() if name.startswith("optimizer/")]
    print(f"The host keeps {len(moments)} arrays of the optimizer")


if __name__ == "__main__":
    main()
