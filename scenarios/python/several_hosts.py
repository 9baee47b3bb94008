"""A custom training loop with pipelining on all hosts that run this program, as of `mpirun -np 2`.

Each host has two IPUs and its part of each batch; one host alone has the whole batch, and the same losses.
"""

import argparse
import json
import os

import horovod.tensorflow as hvd
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.keras.datasets import mnist
from tensorflow.keras.layers import Dense, Flatten
from tensorflow.python import ipu
from tensorflow.python.ipu.horovod.ipu_horovod_strategy import IPUHorovodStrategy
from tensorflow.python.ipu.horovod.popdist_strategy import PopDistStrategy
from tensorflow.python.ipu.ipu_multi_worker_strategy import IPUMultiWorkerStrategy

GLOBAL_BATCH_SIZE = 24

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--strategy", choices=["horovod", "multi-worker", "popdist"], default="horovod")
arguments = parser.parse_args()


def make_strategy():
    if arguments.strategy == "horovod":
        return IPUHorovodStrategy()
    if arguments.strategy == "popdist":
        return PopDistStrategy()
    workers = [f"host{number}:2222" for number in range(hvd.size())]
    task = {"type": "worker", "index": hvd.rank()}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = IPUMultiWorkerStrategy(cluster)
    config = strategy.update_config_proto(tf.ConfigProto())
    tf.distribute.Server(cluster.cluster_spec(), job_name=cluster.task_type, task_index=cluster.task_id, config=config)
    return strategy


def stage1(lr, images, labels):
    return lr, Dense(128, activation="relu")(Dense(256, activation="relu")(Flatten()(images))), labels


def stage2(lr, partial, labels):
    logits = Dense(10)(partial)
    # The hosts sum up their gradients, so that the loss is divided by the batch of all of them.
    return lr, tf.nn.compute_average_loss(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def optimizer_function(lr, loss):
    return ipu.pipelining_ops.OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(lr), loss)


hvd.init()
strategy = make_strategy()
config = ipu.config.IPUConfig()
config.auto_select_ipus = 2
config.configure_ipu_system()

(images, labels), _ = mnist.load_data()
mine = slice(hvd.rank(), 24 * GLOBAL_BATCH_SIZE, hvd.size())
dataset = tf.data.Dataset.from_tensor_slices((images[mine].astype(np.float32) / 255, labels[mine].astype(np.int32)))
dataset = dataset.batch(GLOBAL_BATCH_SIZE // hvd.size(), drop_remainder=True).repeat()

with strategy.scope():
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def model(lr):
        return ipu.pipelining_ops.pipeline(
            [stage1, stage2],
            gradient_accumulation_count=8,
            inputs=[lr],
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=optimizer_function,
            name="Pipeline",
        )

    def compiled_model(lr):
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            return ipu.ipu_compiler.compile(model, inputs=[lr])

    with tf.device("cpu"):
        lr = tf.placeholder(np.float32, [])
    train = strategy.experimental_run_v2(compiled_model, args=[lr])
    _, losses = outfeed.dequeue()
    # The mean over the host's mini-batches; a sum over hosts, as each loss is divided by the batch of all.
    mean_loss = strategy.reduce(tf.distribute.ReduceOp.SUM, tf.reduce_mean(losses))

    with tf.Session() as session:
        session.run(infeed.initializer)
        session.run(tf.global_variables_initializer())
        for step in range(10):
            session.run(train, {lr: 0.05})
            loss = session.run(mean_loss)
            if hvd.rank() == 0:
                print(f"Step {step}: loss {loss:.3f}")
