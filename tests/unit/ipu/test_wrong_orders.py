"""Calls in a wrong order, of what has been used already, and in threads: an error of ours, or none."""

import pytest

from ipusim.base.errors import IpusimError
from tests.programs import needs_tensorflow

needs_tensorflow(at_import=True)

from ipusim.ipu import ipu_compiler, loops  # noqa: E402 - which needs TensorFlow
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue  # noqa: E402 - as above
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue  # noqa: E402 - as above
from ipusim.ipu.pipelining_ops import pipeline  # noqa: E402 - as above
from tests.unit.ipu.test_graphcore_texts import ONES, feed, fetched, identity, tf  # noqa: E402 - as above


def run(infeed=None, outfeed=None, **given):
    """Compile and run a pipeline of two stages that return what they take."""
    infeed = infeed or feed()
    queues = {"infeed_queue": infeed, "outfeed_queue": outfeed or IPUOutfeedQueue()}
    stages = given.pop("computational_stages", [identity, identity])
    program = ipu_compiler.compile(lambda: pipeline(stages, 4, **queues, **given))
    fetched(program, infeed.feed.initializer)


def trained(optimizer_function):
    stages = [lambda x: x * tf.get_variable("w", [2], initializer=tf.ones_initializer()), tf.reduce_sum]
    run(computational_stages=stages, optimizer_function=optimizer_function)


def infeed_in_both():
    queue = feed()
    run(queue)
    run(queue, IPUOutfeedQueue(IPUOutfeedMode.LAST))


def ended_while_running():
    run(IPUInfeedQueue(tf.data.Dataset.from_tensors(ONES)))


def nested():
    fetched(ipu_compiler.compile(lambda: loops.repeat(1, lambda x: loops.repeat(1, identity, [x]), [ONES])))


#: Orders of calls and things that are used twice, each with the text that it is refused by; empty where it is fine.
ORDERS = {
    infeed_in_both: "",
    nested: "",
    lambda: trained(lambda: None): "optimizer_function: expected a function of 1 arguments, got too many",
}


@pytest.mark.parametrize("action", ORDERS, ids=lambda value: value.__name__)
def test_orders_and_what_is_used_twice(action):
    with tf.Graph().as_default():
        if ORDERS[action]:
            with pytest.raises(IpusimError, match=ORDERS[action]):
                action()
        else:
            action()


def test_a_data_set_that_ends_while_a_program_runs_ends_it_as_tensorflow_does():
    with tf.Graph().as_default(), pytest.raises(tf.errors.OutOfRangeError):
        ended_while_running()
