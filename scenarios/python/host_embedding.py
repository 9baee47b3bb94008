"""A table of items lies on the host: stages look rows up, and what they learn goes back there."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu
from tensorflow.python.ipu import embedding_ops, ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue, scopes
from tensorflow.python.ipu.ops import pipelining_ops

ITEMS, WIDTH, BATCH, COUNT = 50_000, 32, 16, 8

rng = np.random.default_rng(1)
taste = rng.normal(size=ITEMS).astype(np.float32)
baskets = (rng.integers(0, 40, (2048, 4)) * 1250).astype(np.int32)
scores = taste[baskets].mean(axis=1, keepdims=True)

dataset = tf.data.Dataset.from_tensor_slices((baskets, scores)).batch(BATCH, drop_remainder=True).repeat()
infeed_queue = ipu_infeed_queue.IPUInfeedQueue(dataset)
outfeed_queue = ipu_outfeed_queue.IPUOutfeedQueue()
items = embedding_ops.create_host_embedding(
    "items",
    shape=[ITEMS, WIDTH],
    dtype=tf.float32,
    optimizer_spec=embedding_ops.HostEmbeddingSGDGAOptimizerSpec(0.05, COUNT),
    initializer=tf.random_uniform_initializer(-0.1, 0.1),
)


def look_up(basket, score):
    return tf.reduce_mean(items.lookup(basket), axis=1), score


def judge(x, score):
    hidden = tf.keras.layers.Dense(16, activation="relu")(x)
    return tf.reduce_mean(tf.square(tf.keras.layers.Dense(1)(hidden) - score))


def learn(loss):
    return pipelining_ops.OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(0.05), loss)


def model():
    return pipelining_ops.pipeline(
        [look_up, judge],
        gradient_accumulation_count=COUNT,
        repeat_count=16,
        infeed_queue=infeed_queue,
        outfeed_queue=outfeed_queue,
        optimizer_function=learn,
    )


with scopes.ipu_scope("/device:IPU:0"):
    run = ipu_compiler.compile(model)
losses = outfeed_queue.dequeue()

config = ipu.config.IPUConfig()
config.auto_select_ipus = 2
config.configure_ipu_system()

with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(infeed_queue.initializer)
    before = session.run(items.get_embedding_tensor())
    with items.register(session):
        for step in range(10):
            session.run(run)
            print(f"Step {step}, mean loss: {np.mean(session.run(losses)[0]):.4f}")
    after = session.run(items.get_embedding_tensor())
    print(f"{np.count_nonzero((after != before).any(axis=1))} of {ITEMS} rows have changed")
