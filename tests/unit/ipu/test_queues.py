"""Infeed and outfeed queues: Graphcore's rules with their exact texts, and what goes through."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.base.errors import ModelError
from ipusim.ipu import ipu_compiler, loops
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, micro_batches, repeat
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipusim.ipu.optimizers import GradientDescentOptimizer
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput
from ipusim.ipu.runtime import structures
from ipusim.model.data.datasets import Dataset
from ipusim.model.data.feed import Feed

ONES = np.ones(2, np.float32)


def identity(x):
    return x


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"dataset": [((ONES, ONES), ONES)]}, "Nested list/tuple input shapes are not supported"),
        ({"prefetch_depth": -1}, "prefetch_depth must be greater than zero, but it is -1"),
        ({"prefetch_depth": 256}, "prefetch_depth must be less than 256, but it is 256"),
        ({"device_ordinal": "0"}, "Device ordinal must be an integer"),
        ({"device_ordinal": True}, "Device ordinal must be an integer"),
        ({"device_ordinal": -1}, "Device ordinal must be >= 0"),
    ],
)
def test_infeed_queue(arguments, text, refused):
    refused(ValueError, text, lambda: IPUInfeedQueue(**({"dataset": [ONES]} | arguments)))


def test_infeed_elements_of_another_shape(refused):
    queue = IPUInfeedQueue([np.ones((4, 3)), np.ones((2, 3))])
    text = "Output shape (None, 3) is not fully defined. If using tf.Dataset.batch, set `drop_remainder=True`."
    refused(ValueError, text, lambda: [queue.take(0), queue.take(1)])


def test_infeed_initializer_and_get_next(refused):
    queue = IPUInfeedQueue([ONES])
    assert repr(queue.initializer) == "<Operation 'infeed/initialize'>"
    refused(
        ValueError,
        "The IPUInfeedQueue `initializer` function can only be accessed once.",
        lambda: queue.initializer,
    )
    refused(
        ValueError,
        "`get_next()` is now obsolete as the IPUInfeedQueue is now automatically dequeued by the loop.",
        queue.get_next,
    )


def test_infeed_serves_one_replication_factor(run, refused):
    queue = IPUInfeedQueue(repeat([ONES]))
    config = IPUConfig()
    config.auto_select_ipus = 4
    run(infeed_queue=queue)
    refused(
        ValueError,
        "Iterator for feed infeed has already been setup with a replication factor of 1 when it should have "
        "2.Infeeds can not be shared across graphs with different replication factors. Please create a new "
        "InfeedQueue.",
        lambda: run(infeed_queue=queue, config=config),
    )


def test_infeed_ends(run):
    with pytest.raises(ModelError, match="the infeed's dataset ended after 3 elements"):
        run(infeed_queue=IPUInfeedQueue([ONES] * 3))


def test_infeed_goes_on_from_run_to_run(run):
    queue, outfeed = IPUInfeedQueue(np.float32(i) for i in range(16)), IPUOutfeedQueue()
    found = run(infeed_queue=queue, outfeed_queue=outfeed)
    found.run()
    assert outfeed.dequeue()[0].tolist() == list(range(16))
    assert outfeed.dequeue()[0].shape == (0,)


def test_infeed_elements_by_name(run):
    outfeed = IPUOutfeedQueue()
    run(
        computational_stages=[lambda scale, x, y: scale * (x - y), identity],
        inputs=[2],
        infeed_queue=IPUInfeedQueue(repeat([{"y": np.float32(1), "x": np.float32(4)}])),
        outfeed_queue=outfeed,
    )
    assert outfeed.dequeue()[0].tolist() == [6.0] * 8


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"outfeed_mode": "ALL"},
            "Expected `outfeed_mode` value to be of `ipu_outfeed_queue.IPUOutfeedMode` type, but is <class 'str'>.",
        ),
        ({"device_ordinal": 0.0}, "Device ordinal must be an integer"),
        ({"device_ordinal": -2}, "Device ordinal must be >= 0"),
        ({"buffer_depth": 0}, "Outfeed buffer depth cannot be less than 1"),
    ],
)
def test_outfeed_queue(arguments, text, refused):
    refused(ValueError, text, lambda: IPUOutfeedQueue(**arguments))


def test_outfeed_before_and_after_a_pipeline(run, refused):
    queue = IPUOutfeedQueue()
    refused(ValueError, "Trying to dequeue an outfeed which has not been enqueued.", queue.dequeue)
    run(outfeed_queue=queue)
    refused(ValueError, "An outfeed can only be enqueued once.", lambda: run(outfeed_queue=queue))
    assert len(queue) == 8
    assert [element.tolist() for (element,) in queue] == [[1.0, 1.0]] * 8
    assert len(queue) == 0


def learn(loss):
    return OptimizerFunctionOutput(GradientDescentOptimizer(0.0), loss)


@pytest.mark.parametrize(
    ("arguments", "alone"),
    [
        ({}, False),
        ({"computational_stages": [identity, lambda x: [x]]}, False),
        ({"computational_stages": [identity, lambda x: (x, x)]}, False),
        ({"accumulate_outfeed": True}, False),
        ({"optimizer_function": learn}, False),
        ({"optimizer_function": learn, "outfeed_loss": True}, True),
        ({"optimizer_function": learn, "outfeed_loss": True, "accumulate_outfeed": True}, True),
    ],
)
@pytest.mark.parametrize("mode", list(IPUOutfeedMode))
def test_a_single_result_comes_by_itself_where_graphcores_does(arguments, alone, mode, run):
    if arguments.get("accumulate_outfeed"):  # in the mode ALL only
        mode = IPUOutfeedMode.ALL
    queue = IPUOutfeedQueue(mode)
    run(outfeed_queue=queue, **arguments)
    found = queue.dequeue()
    assert isinstance(found, np.ndarray) == alone
    elements = () if mode is IPUOutfeedMode.LAST else (1,) if arguments.get("accumulate_outfeed") else (8,)
    assert (found if alone else found[-1]).shape == (*elements, 2)


@pytest.mark.parametrize("mode", list(IPUOutfeedMode))
@pytest.mark.parametrize(
    ("structure", "expected"),
    [
        (lambda x: x, lambda x: x),
        (lambda x: [x], lambda x: [x]),
        (lambda x: (x, 2 * x), lambda x: (x, 2 * x)),
        (lambda x: {"a": x, "b": 2 * x}, lambda x: {"a": x, "b": 2 * x}),
        (lambda x: ({"a": x}, 2 * x), lambda x: ({"a": x}, 2 * x)),
        (lambda x: {101: x, 2020: 2 * x}, lambda x: {101: x, 2020: 2 * x}),
    ],
    ids=["tensor", "list", "tuple", "dictionary", "dictionary in a tuple", "dictionary by numbers"],
)
def test_what_a_loop_enqueues_comes_in_the_structure_that_it_has_there(structure, expected, mode):
    queue = IPUOutfeedQueue(mode)
    (total,) = ipu_compiler.compile(lambda: loops.repeat(3, lambda x: (x + 1, queue.enqueue(structure(x))), [0.0]))
    with tf.Session() as session:
        assert session.run(total) == 3
        found = session.run(queue.dequeue())
    assert structures.mapped(lambda x: x.tolist(), found) == structures.mapped(
        lambda x: x.tolist(), expected(np.arange(3.0) if mode is IPUOutfeedMode.ALL else np.float64(2))
    )


def test_a_sessions_number_is_a_number_of_numpys():
    queue = IPUOutfeedQueue(IPUOutfeedMode.LAST)
    run = ipu_compiler.compile(lambda: loops.repeat(3, lambda x: (x + 1, queue.enqueue(x)), [0.0]))
    with tf.Session() as session:
        (total,) = session.run(run)
        assert type(total) is type(session.run(queue.dequeue())) is np.float32


def test_outfeed_in_mode_last(refused):
    queue = IPUOutfeedQueue(IPUOutfeedMode.LAST)
    queue.connect([((2,), np.dtype(np.float32))])
    refused(
        RuntimeError,
        "Trying to get the last value from an outfeed queue before it was executed. Make sure the outfeed dequeue "
        "TensorFlow operation is executed after the enqueue to the outfeed has completed.",
        queue.dequeue,
    )
    refused(
        RuntimeError,
        "IPUOutfeedQueue can only be iterated over if the `outfeed_mode` is set to 'IPUOutfeedMode.ALL'.",
        lambda: iter(queue),
    )


def test_infeed_of_what_cannot_be_iterated_over_or_is_empty(refused):
    text = "dataset: expected elements to iterate over, such as a list of arrays, got int"
    refused(TypeError, text, lambda: IPUInfeedQueue(3))
    with pytest.raises(ModelError, match="expected a dataset with elements, got none"):
        IPUInfeedQueue([])
    for dataset in ([], iter([])):
        with pytest.raises(ModelError, match="expected a dataset with elements each time"):
            IPUInfeedQueue(repeat(dataset))


def test_infeed_of_a_dataset_is_its_feed():
    dataset = Dataset(np.arange(10.0).reshape(5, 2), np.arange(5, dtype=np.int32), 5)
    queue, feed = IPUInfeedQueue(micro_batches(dataset, 2, seed=3)), Feed(dataset, 2, 3)
    for index in range(7):
        for taken, expected in zip(queue.take(index), feed.element(index), strict=True):
            assert taken.tolist() == expected.tolist()


def test_infeed_elements_differ_in_number_or_type():
    for other in ((ONES,), (ONES, np.ones(2))):
        queue = IPUInfeedQueue([(ONES, ONES), other])
        queue.take(0)
        with pytest.raises(ModelError, match="in each element of the infeed, got"):
            queue.take(1)


def infeed(*given, **named):
    return IPUInfeedQueue([ONES], *given, **named).prefetch_depth


def outfeed(*given, **named):
    queue = IPUOutfeedQueue(*given, **named)
    return queue.outfeed_mode.name, queue.buffer_depth, queue.optimise_latency


@pytest.mark.parametrize(
    ("given", "depth"),
    [
        ((), 3),
        (("infeed",), 3),
        (("infeed", 0, 1, 2), 2),
        (("infeed", 2, 4, 2, 5), 5),
        ((None, 0), 3),
        ((None, None), 3),
        ((None, 0, 2), 3),
        ((None, 1, 2), 3),
        ((None, 1, 2, 7), 7),
        ((None, 0, None, 1, 7), 7),
        ((0,), 3),
        ((0, 5), 5),
        ((0, 5, True), 5),
        ((None, 5, True), 5),
    ],
)
def test_an_infeeds_positions_are_those_of_either_release(given, depth):
    assert infeed(*given) == depth


def test_an_infeeds_deprecated_names():
    assert infeed("infeed", data_to_prefetch=2) == 2
    assert infeed(data_to_prefetch=2, prefetch_depth=4) == 4
    assert infeed(feed_name="infeed", replication_factor=2, device_ordinal=None) == 3
    assert infeed(None, prefetch_depth=6) == 6


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ((), ("ALL", 3, False)),
        (("outfeed",), ("ALL", 3, False)),
        (("outfeed", IPUOutfeedMode.LAST), ("LAST", 3, False)),
        (("outfeed", IPUOutfeedMode.LAST, 1, 2, 4), ("LAST", 3, False)),
        ((None, IPUOutfeedMode.LAST, 2), ("LAST", 3, False)),
        ((None, None, 0), ("ALL", 3, False)),
        ((None, None, 2, 4), ("ALL", 3, False)),
        ((None, None, None, None, 1), ("ALL", 3, False)),
        ((IPUOutfeedMode.LAST,), ("LAST", 3, False)),
        ((IPUOutfeedMode.LAST, 0, 5), ("LAST", 5, False)),
        ((IPUOutfeedMode.LAST, None, 5, True), ("LAST", 5, True)),
        ((None, 0, 5, True), ("ALL", 5, True)),
        ((None, None, 5, True), ("ALL", 5, True)),
    ],
)
def test_an_outfeeds_positions_are_those_of_either_release(given, found):
    assert outfeed(*given) == found


def test_an_outfeeds_deprecated_names():
    named = {"feed_name": "outfeed", "replication_factor": 2, "io_batch_size": 3}
    assert outfeed(outfeed_mode=IPUOutfeedMode.LAST, **named) == ("LAST", 3, False)
    assert outfeed("outfeed", buffer_depth=6) == ("ALL", 6, False)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            lambda: infeed(None, 5),
            "IPUInfeedQueue: expected arguments by their names, as behind None stands device_ordinal up to SDK 2.1 and "
            "prefetch_depth after it, got 5 by its position",
        ),
        (
            lambda: outfeed(None, None, 5),
            "IPUOutfeedQueue: expected arguments by their names, as behind None stands device_ordinal up to SDK 2.1 "
            "and buffer_depth after it, got 5 by its position",
        ),
        (
            lambda: infeed(0, 5, True, 4),
            "expected at most 3 arguments, device_ordinal, prefetch_depth, optimise_latency, got 4",
        ),
        (
            lambda: outfeed(IPUOutfeedMode.ALL, 0, 5, True, 4),
            "expected at most 4 arguments, outfeed_mode, device_ordinal, buffer_depth, optimise_latency, got 5",
        ),
    ],
)
def test_positions_that_no_release_or_both_have(wrong, text, refused):
    refused(TypeError, text, wrong)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            lambda: outfeed("last"),
            "Expected `outfeed_mode` value to be of `ipu_outfeed_queue.IPUOutfeedMode` type, but is <class 'str'>.",
        ),
        (lambda: infeed("infeed", "0"), "Device ordinal must be an integer"),
        (lambda: outfeed(None, None, True), "Device ordinal must be an integer"),
        (lambda: infeed("infeed", 0, 0), "replication_factor: expected a whole number from 1 to 2147483647, got 0"),
        (lambda: outfeed(io_batch_size=0), "io_batch_size: expected a whole number from 1 to 2147483647, got 0"),
    ],
)
def test_values_of_positions(wrong, text, refused):
    refused(ValueError, text, wrong)


def test_a_queue_says_whether_a_program_reads_it(run):
    queue = IPUInfeedQueue(repeat([ONES]))
    assert not queue.dequeued
    run(infeed_queue=queue)
    assert queue.dequeued


def test_a_run_notes_that_elements_are_sent_one_by_one(run):
    note = "io_batch_size of IPUOutfeedQueue will have no effect: each element is sent when it is there."
    assert run(outfeed_queue=IPUOutfeedQueue(io_batch_size=4)).notes == (note,)
    assert run(outfeed_queue=IPUOutfeedQueue(io_batch_size=1)).notes == ()
