"""A custom training loop with pipelining on two hosts, each of which has two IPUs and half of each batch."""

import argparse
import json
import os

import numpy as np

from ipusim.ipu import ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue
from ipusim.ipu import tensorflow as tf
from ipusim.ipu import utils as ipu_utils
from ipusim.ipu.horovod import rank, run, size
from ipusim.ipu.horovod.ipu_horovod_strategy import IPUHorovodStrategy
from ipusim.ipu.horovod.ipu_multi_replica_strategy import IPUMultiReplicaStrategy
from ipusim.ipu.ipu_multi_worker_strategy import IPUMultiWorkerStrategy
from ipusim.ipu.ops import pipelining_ops
from ipusim.ipu.scopes import ipu_scope
from ipusim.ipu.tensorflow import keras

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", choices=["horovod", "multi-worker", "multi-replica"], default="horovod")
parser.add_argument("--hosts", type=int, default=2)
arguments = parser.parse_args()

GLOBAL_BATCH_SIZE = 24
gradient_accumulation_count = 8


def make_strategy():
    if arguments.strategy == "horovod":
        return IPUHorovodStrategy()
    if arguments.strategy == "multi-replica":
        return IPUMultiReplicaStrategy()
    workers = [f"host{number}:2222" for number in range(size())]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank()}})
    cluster_resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = IPUMultiWorkerStrategy(cluster_resolver)
    sess_config = strategy.update_config_proto(tf.ConfigProto())
    tf.distribute.Server(
        cluster_resolver.cluster_spec(),
        job_name=cluster_resolver.task_type,
        task_index=cluster_resolver.task_id,
        config=sess_config,
    )
    return strategy


def main():
    strategy = make_strategy()
    (images, labels), _ = keras.datasets.synthetic.load_data()
    mine = slice(rank(), None, size())
    dataset = tf.data.Dataset.from_tensor_slices((images[mine], labels[mine]))
    dataset = dataset.batch(GLOBAL_BATCH_SIZE // size(), drop_remainder=True).repeat()

    with strategy.scope():
        infeed_queue = ipu_infeed_queue.IPUInfeedQueue(dataset)
        outfeed_queue = ipu_outfeed_queue.IPUOutfeedQueue()

        def stage1(lr, images, labels):
            partial = keras.layers.Flatten()(images)
            partial = keras.layers.Dense(256, activation="relu")(partial)
            partial = keras.layers.Dense(128, activation="relu")(partial)
            return lr, partial, labels

        def stage2(lr, partial, labels):
            logits = keras.layers.Dense(10)(partial)
            per_example_loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            # The hosts sum up their gradients, so that the loss is divided by the batch of all of them.
            loss = tf.nn.compute_average_loss(per_example_loss)
            return lr, loss

        def optimizer_function(lr, loss):
            optimizer = tf.train.GradientDescentOptimizer(lr)
            return pipelining_ops.OptimizerFunctionOutput(optimizer, loss)

        def model(lr):
            return pipelining_ops.pipeline(
                computational_stages=[stage1, stage2],
                gradient_accumulation_count=gradient_accumulation_count,
                inputs=[lr],
                infeed_queue=infeed_queue,
                outfeed_queue=outfeed_queue,
                optimizer_function=optimizer_function,
                name="Pipeline",
            )

        def compiled_model(lr):
            with ipu_scope("/device:IPU:0"):
                return ipu_compiler.compile(model, inputs=[lr])

        config = ipu_utils.auto_select_ipus(ipu_utils.create_ipu_config(), num_ipus=2)
        ipu_utils.configure_ipu_system(config)
        ipu_utils.move_variable_initialization_to_cpu()

        with tf.device("cpu"):
            lr = tf.placeholder(np.float32, [])

        train_op = strategy.experimental_run_v2(compiled_model, args=[lr])
        _, per_worker_losses = outfeed_queue.dequeue()
        # Mean across the host's mini-batches; a sum across hosts, as each is divided by the batch of all.
        per_worker_loss = tf.reduce_mean(per_worker_losses)
        global_loss = strategy.reduce(tf.distribute.ReduceOp.SUM, per_worker_loss)

        with tf.Session() as sess:
            sess.run(infeed_queue.initializer)
            sess.run(tf.global_variables_initializer())
            for step in range(10):
                sess.run(train_op, {lr: 0.01})
                global_loss_val = sess.run(global_loss)
                if rank() == 0:
                    print(f"Step {step}: loss {global_loss_val:.3f}")


run(main, np=arguments.hosts)
