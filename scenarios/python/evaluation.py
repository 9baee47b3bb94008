"""Training and evaluation in one session: both programs share the variables of a scope, moving statistics included."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.keras import datasets
from tensorflow.python import ipu

tf.disable_v2_behavior()
BATCH_SIZE, COUNT = 32, 16

train_set, test_set = datasets.synthetic.load_data()


def queues(images, labels):
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.batch(BATCH_SIZE, drop_remainder=True).repeat()
    return ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), ipu.ipu_outfeed_queue.IPUOutfeedQueue()


def program(training, infeed_queue, outfeed_queue):
    """Return the pipeline; batch normalisation is by moving statistics where it does not train."""

    def stage1(images, labels):
        with tf.variable_scope("net", reuse=tf.AUTO_REUSE):
            partial = tf.layers.dense(tf.layers.flatten(images), 128)
            partial = tf.layers.batch_normalization(partial, momentum=0.9, training=training)
            return tf.nn.relu(partial), labels

    def stage2(partial, labels):
        with tf.variable_scope("net", reuse=tf.AUTO_REUSE):
            logits = tf.layers.dense(partial, 10, name="logits")
        right = tf.cast(tf.equal(tf.argmax(logits, 1), tf.cast(labels, tf.int64)), tf.float32)
        cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        return tf.reduce_mean(cross_entropy), tf.reduce_mean(right)

    def optimizer_function(loss, _):
        step = tf.train.get_or_create_global_step()
        optimizer = tf.train.MomentumOptimizer(0.002, 0.9)
        return ipu.pipelining_ops.OptimizerFunctionOutput(optimizer, loss, apply_gradients_kwargs={"global_step": step})

    return ipu.pipelining_ops.pipeline(
        [stage1, stage2],
        gradient_accumulation_count=COUNT,
        repeat_count=10 if training else 1,
        infeed_queue=infeed_queue,
        outfeed_queue=outfeed_queue,
        optimizer_function=optimizer_function if training else None,
    )


cfg = ipu.config.IPUConfig()
cfg.auto_select_ipus = 2
cfg.configure_ipu_system()

train_queues, test_queues = queues(*train_set), queues(*test_set)
with ipu.scopes.ipu_scope("/device:IPU:0"):
    train = ipu.ipu_compiler.compile(lambda: program(True, *train_queues))
    evaluate = ipu.ipu_compiler.compile(lambda: program(False, *test_queues))
results = test_queues[1].dequeue()

with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run([train_queues[0].initializer, test_queues[0].initializer])
    for _ in range(4):
        session.run(evaluate)
        losses, right = session.run(results)
        step = session.run(tf.train.get_global_step())
        print(f"Step {step}: held out loss {np.mean(losses):.3f}, accuracy {np.mean(right):.3f}")
        session.run(train)
