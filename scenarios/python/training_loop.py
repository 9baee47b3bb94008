"""A loop without a model: what its body sends to the host, and the counter that it carries on."""

import tensorflow as tf
from tensorflow.python.ipu import ipu_infeed_queue, ipu_outfeed_queue, ipu_strategy, loops
from tensorflow.python.ipu.config import IPUConfig

dataset = tf.data.Dataset.from_tensors(tf.constant(1.0, shape=[800]))
dataset = dataset.map(lambda x: [x, x]).repeat()

infeed_queue = ipu_infeed_queue.IPUInfeedQueue(dataset)
outfeed_queue = ipu_outfeed_queue.IPUOutfeedQueue()


def body(counter, x1, x2):
    d1 = x1 + x2
    d2 = x1 - x2
    counter += 1
    outfeed_queue.enqueue({"d1": d1, "d2": d2})
    return counter


@tf.function(jit_compile=True)
def my_net():
    count = 0
    count = loops.repeat(10, body, [count], infeed_queue)
    return count


config = IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()

strategy = ipu_strategy.IPUStrategyV1()
with strategy.scope():
    infeed_queue.initializer
    print("counter", int(strategy.run(my_net)))
    result = outfeed_queue.dequeue()
    for name, tensor in result.items():
        print(name, tensor.shape, "from", tensor.numpy().min(), "to", tensor.numpy().max())
