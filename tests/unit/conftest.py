"""A fixture for the tests of Graphcore's names: a small pipeline on TensorFlow."""

import numpy as np
import pytest

from tests.programs import hosted_names
from tests.programs import run as run_program

ONES = np.ones((1, 2), np.float32)


@pytest.fixture
def run():
    """Return a function that runs a small pipeline, but for its arguments; a value of ... leaves one out.

    Its attribute ``names`` has TensorFlow and Graphcore's package.
    """
    with hosted_names() as names:
        tf, ipu = names.tf, names.ipu

        def times_w(x):
            with tf.variable_scope("", reuse=tf.AUTO_REUSE):
                return x * tf.get_variable("w", [], initializer=tf.ones_initializer())

        def small(*positional, elements=ONES, outfeed_mode="ALL", **arguments):
            tf.reset_default_graph()
            infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(elements).repeat())
            outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(ipu.ipu_outfeed_queue.IPUOutfeedMode[outfeed_mode])
            given = {"infeed_queue": infeed, "outfeed_queue": outfeed}
            if not positional:
                given |= {"computational_stages": [times_w, lambda x: x], "gradient_accumulation_count": 8}
            given = {name: value for name, value in (given | arguments).items() if value is not ...}
            return run_program(names, lambda: ipu.pipelining_ops.pipeline(*positional, **given), outfeed, [infeed])

        small.names, small.times_w = names, times_w
        yield small
