"""Errors of Graphcore's queues, loops and optimizers: each raised with its type and text.

The texts are those of Graphcore's Python and of its compiler passes; ``{}`` stands for what a message fills in. Texts
on the type of an argument are in test_misuse, on arguments of pipelines in test_rules, on the configuration in
test_config.
"""

import re

import numpy as np
import pytest

from ipusim.base.errors import IpusimError
from tests.programs import configured, needs_tensorflow

needs_tensorflow(at_import=True)

from ipusim.ipu import ipu_compiler, loops  # noqa: E402 - which needs TensorFlow
from ipusim.ipu.graph.tensorflow_import import load  # noqa: E402 - as above
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue  # noqa: E402 - as above
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue  # noqa: E402 - as above
from ipusim.ipu.optimizers import GradientAccumulationOptimizerV2  # noqa: E402 - as above
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, pipeline  # noqa: E402 - as above
from tests.unit.ipu.test_misuse import (  # noqa: E402 - as above
    feed,
    fetched,
    identity,
    pipeline_with,
    sgd,
    times_w,
    train,
)

tf = load().compat.v1
ONES = np.ones(2, np.float32)


@pytest.fixture(autouse=True)
def _graph():
    with tf.Graph().as_default():
        yield


def adam():
    return load().keras.optimizers.legacy.Adam()


def capturing():
    rate = tf.placeholder(tf.float32, [], name="rate")
    train(computational_stages=[times_w, lambda x: x * rate])


def replicated():
    """Feed two programs on the same device, and a third one in replicas."""
    queue = feed()
    first = [queue.initializer]
    for ipus in (2, 2, 4):
        given = {"infeed_queue": queue, "outfeed_queue": IPUOutfeedQueue(), "config": configured(auto_select_ipus=ipus)}
        fetched(ipu_compiler.compile(lambda: pipeline([identity, identity], 4, **given)), *first)  # noqa: B023


def two_pipelines():
    first, second = pipeline_with(), pipeline_with()
    ipu_compiler.compile(lambda: (pipeline(**first), pipeline(**second))[0])


def enqueued_twice():
    queue = IPUOutfeedQueue()
    loops.repeat(1, lambda x: (queue.enqueue(x), queue.enqueue(x)), [], feed())


def not_initialized():
    given = pipeline_with()
    fetched(ipu_compiler.compile(lambda: pipeline(**given)), tf.global_variables_initializer())


def last_before_it_ran():
    given = pipeline_with(outfeed_queue=IPUOutfeedQueue(IPUOutfeedMode.LAST))
    ipu_compiler.compile(lambda: pipeline(**given))
    fetched(given["outfeed_queue"].dequeue())


def accumulating(n):
    optimizer = GradientAccumulationOptimizerV2(sgd(), 3)
    program = lambda: loops.repeat(n, lambda x: optimizer.minimize(tf.reduce_sum(times_w(x))), [], queue)  # noqa: E731
    queue = feed()
    fetched(ipu_compiler.compile(program), tf.global_variables_initializer(), queue.initializer)


def without_pairs():
    class ForgetsPairs(tf.train.GradientDescentOptimizer):
        def compute_gradients(self, *args, **kwargs):
            return None

    train(optimizer_function=lambda loss: OptimizerFunctionOutput(ForgetsPairs(0.1), loss))


def initialized_twice():
    queue = feed()
    return queue.initializer, queue.initializer


@pytest.mark.parametrize(
    ("mapping", "kind", "text"),
    [
        ((0,), ValueError, "Each stage must be mapped to an IPU"),
        (range(3), TypeError, "device_mapping argument needs to be a list or a tuple"),
    ],
)
def test_wrong_arguments_come_before_where_a_pipeline_is_built(mapping, kind, text):
    """Graphcore's own test of its mapping calls pipeline outside of any compilation, with a placeholder."""
    rate, stages = tf.placeholder(np.float32, []), [identity] * 3
    with pytest.raises(kind, match=text):
        pipeline(stages, 3, inputs=[rate], outfeed_queue=IPUOutfeedQueue(), device_mapping=mapping)


def test_nothing_to_optimize_comes_before_the_count():
    """Graphcore's own test trains no variables with a count that is no multiple of what its schedule needs."""

    def nothing(loss):
        return OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(0.01), loss, ([],))

    stages = [lambda x: x + 1, lambda x: tf.reduce_sum(times_w(x))]
    images = tf.placeholder(np.float32, [1, 4, 4, 3])
    for function, count in ((nothing, 10), (nothing, 9), (nothing, 3)):
        with pytest.raises(ValueError, match=r"^No variables to optimize\.$"):
            ipu_compiler.compile(
                lambda x, function=function, count=count: pipeline(
                    stages, count, inputs=[x], outfeed_queue=IPUOutfeedQueue(), optimizer_function=function
                ),
                [images],
            )


#: Text, builtin type, and what raises it.
RAISED = [
    ("No variables to optimize.", ValueError, lambda: train(computational_stages=[identity, identity])),
    (
        "Trying to capture the tensor {} which is not a resource. This tensor needs to be passed as either part of the "
        "`input` or `infeed_queue` of the pipeline.",
        ValueError,
        capturing,
    ),
    (
        "Nested list/tuple input shapes are not supported",
        ValueError,
        lambda: IPUInfeedQueue(tf.data.Dataset.from_tensors(((ONES, ONES), ONES))),
    ),
    (
        "Output shape {} is not fully defined. If using tf.Dataset.batch, set `drop_remainder=True`.",
        ValueError,
        lambda: IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(ONES).batch(2)),
    ),
    (
        "Could not find an available device for TensorFlow virtual device /device:IPU:{}. This device was expected to "
        "have {} IPU(s). Common causes of this error include: incorrect configuration of your V-IPU partition, "
        "requesting more IPUs than are available on your system, or IPUs being used by another program. Use "
        "`gc-info -l` and `gc-monitor` to check your configuration. {}",
        ValueError,
        lambda: configured(auto_select_ipus=[4, 1], machine="m2000").device((0,)),
    ),
    ("Device ordinal must be >= 0", ValueError, lambda: feed(device_ordinal=-1)),
    ("The IPUInfeedQueue `initializer` function can only be accessed once.", ValueError, initialized_twice),
    (
        "Trying to access an infeed dataset iterator which has not been created. Did you initialize the "
        "infeed_queue '{}' "
        "?",
        RuntimeError,
        not_initialized,
    ),
    (
        "Iterator for feed {} has already been setup with a replication factor of 1 when it should have 2.Infeeds can "
        "not be shared across graphs with different replication factors. Please create a new InfeedQueue.",
        ValueError,
        replicated,
    ),
    ("An outfeed can only be enqueued once.", ValueError, enqueued_twice),
    ("Trying to dequeue an outfeed which has not been enqueued.", ValueError, lambda: IPUOutfeedQueue().dequeue()),
    (
        "IPUOutfeedQueue can only be iterated over if the `outfeed_mode` is set to 'IPUOutfeedMode.ALL'.",
        RuntimeError,
        lambda: iter(IPUOutfeedQueue(IPUOutfeedMode.LAST)),
    ),
    ("IPUOutfeedQueue can only be iterated over in eager mode.", RuntimeError, lambda: iter(IPUOutfeedQueue())),
    (
        "Trying to get the last value from an outfeed queue before it was executed. Make sure the outfeed dequeue "
        "TensorFlow operation is executed after the enqueue to the outfeed has completed.",
        RuntimeError,
        last_before_it_ran,
    ),
    (
        "Only a single ipu.pipeline() is allowed in a compiled program - if multiple pipelines are required the "
        "program "
        "needs to be split into multiple compilations.",
        ValueError,
        two_pipelines,
    ),
    (
        "Detected a gradient accumulation operation with {} number of mini batches inside a loop with {} "
        "iterations. It "
        "is required that the number of mini batches to accumulate evenly divides the number of loop iterations.",
        ValueError,
        lambda: accumulating(4),
    ),
    *(
        (
            f"OptimizerFunctionOutput.{text}",
            ValueError,
            lambda given=given, kind=kind: OptimizerFunctionOutput(kind(), tf.constant(1.0), **given()),
        )
        for text, kind, given in (
            (
                "compute_gradients_args may not be used with OptimizerV2 instances.",
                adam,
                lambda: {"compute_gradients_args": (1,)},
            ),
            (
                "compute_gradients_kwargs may not be used with OptimizerV2 instances.",
                adam,
                lambda: {"compute_gradients_kwargs": {"var_list": []}},
            ),
            ("tape may only be used with OptimizerV2.", sgd, lambda: {"tape": load().GradientTape()}),
        )
    ),
    ("compute_gradients: expected pairs", TypeError, without_pairs),
    (
        "OptimizerFunctionOutput.captured_gradient_outfeed may not be used when neither an "
        "ipu.eager.backprop.GradientCollectionContext, nor an ipu.eager.backprop.GradientCollectionTape is also used.",
        ValueError,
        lambda: OptimizerFunctionOutput(sgd(), tf.constant(1.0), captured_gradient_outfeed=IPUOutfeedQueue()),
    ),
    (
        "optimizer_function: expected a function of 1 arguments, got too many",
        TypeError,
        lambda: train(optimizer_function=lambda: None),
    ),
    (
        "dtype: expected a floating-point dtype {}, got 'int32'",
        ValueError,
        lambda: GradientAccumulationOptimizerV2(sgd(), 4, dtype="int32"),
    ),
]


def pattern(text):
    return "^" + ".+".join(map(re.escape, text.split("{}")))


@pytest.mark.parametrize(("text", "kind", "action"), RAISED, ids=[text[:40] for text, *_ in RAISED])
def test_each_error_has_its_type_and_text(text, kind, action):
    with pytest.raises(kind) as caught:
        action()
    assert isinstance(caught.value, IpusimError)
    assert re.search(pattern(text), str(caught.value)), str(caught.value)
