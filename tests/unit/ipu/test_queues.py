"""Infeed and outfeed queues: Graphcore's rules with their exact texts, and what goes through."""

import re

import numpy as np
import pytest

from ipusim.ipu.runtime.queues import IPUOutfeedMode as Mode
from tests.programs import configure, pipelined

ONES = np.ones(2, np.float32)


@pytest.fixture(autouse=True)
def _two_ipus(names):
    configure(names, 2)


def dataset(names, *values):
    return names.tf.data.Dataset.from_tensors(values[0] if values else ONES).repeat()


def infeed(names, *given, **named):
    """How many elements an infeed of these arguments keeps ready."""
    return names.ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(names), *given, **named).prefetch_depth


def outfeed(names, *given, **named):
    queue = names.ipu.ipu_outfeed_queue.IPUOutfeedQueue(*given, **named)
    return queue.outfeed_mode.value, queue.buffer_depth, queue.optimise_latency


def sent(names, stages=None, data=None, training=False, **arguments):
    """What a pipeline of two stages sends, of which the last hands on what it takes."""
    tf = names.tf

    def weighted(x):
        return x * tf.get_variable("w", [], initializer=tf.ones_initializer())

    optimizer = tf.train.GradientDescentOptimizer(0.0) if training else None
    data = dataset(names) if data is None else data
    return pipelined(names, stages or [lambda x: x, weighted], data, 8, optimizer=optimizer, **arguments).sent


@pytest.mark.parametrize(
    ("arguments", "alone"),
    [
        ({}, False),
        ({"mode": "LAST"}, False),
        ({"stages": [lambda x: x, lambda x: (x, x)]}, False),
        ({"accumulate_outfeed": True}, False),
        ({"training": True}, False),
        ({"training": True, "outfeed_loss": True}, True),
        ({"training": True, "outfeed_loss": True, "accumulate_outfeed": True}, True),
    ],
)
def test_a_single_result_comes_by_itself_where_graphcores_does(names, arguments, alone):
    found = sent(names, **arguments)
    assert isinstance(found, np.ndarray) == alone
    elements = () if "mode" in arguments else (1,) if arguments.get("accumulate_outfeed") else (8,)
    assert (found if alone else found[-1]).shape == (*elements, 2)


def test_infeed_goes_on_from_run_to_run_and_ends(names):
    numbers = np.arange(20, dtype=np.float32)
    data = names.tf.data.Dataset.from_tensor_slices(numbers)
    found = sent(names, data=data, feeds=({}, {}))
    assert np.concatenate([each[0] for each in found]).tolist() == numbers[:16].tolist()
    names.tf.reset_default_graph()
    data = names.tf.data.Dataset.from_tensor_slices(numbers[:3])
    with pytest.raises(names.tf.errors.OutOfRangeError):
        sent(names, data=data)


def test_infeed_elements_by_name(names):
    names.ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(names, ({"a": ONES}, ONES)))  # it may be beside an array
    data = dataset(names, {"y": np.float32(1), "x": np.float32(4)})
    (found,) = sent(names, data=data, stages=[lambda x, y: 2 * (x - y), lambda x: x])
    assert found.tolist() == [6.0] * 8


def test_an_outfeed_in_the_mode_last_gives_the_last_element_again(names):
    configure(names, 1)
    last = names.ipu.ipu_outfeed_queue.IPUOutfeedQueue(Mode.LAST)
    loop = lambda: names.ipu.loops.repeat(3, lambda i: (i + 1, last.enqueue(i)), [0])  # noqa: E731
    compiled = names.ipu.ipu_compiler.compile(loop)
    dequeued = last.dequeue()
    with names.tf.Session() as session:
        session.run(compiled)
        assert [int(session.run(dequeued)) for _ in range(2)] == [2, 2]


@pytest.mark.parametrize(
    ("given", "depth"),
    [
        ((), 3),
        (("infeed",), 3),
        (("infeed", 0, 1, 2), 2),
        (("infeed", 2, 4, 2, 5), 5),
        ((None, 0), 3),
        ((None, 0, 2), 3),
        ((None, 1, 2, 7), 7),
        ((None, 0, None, 1, 7), 7),
        ((0, 5), 5),
        ((0, 5, True), 5),
        ((None, 5, True), 5),
    ],
)
def test_an_infeeds_positions_are_those_of_either_release(names, given, depth):
    assert infeed(names, *given) == depth


def test_an_infeeds_deprecated_names(names):
    assert infeed(names, "infeed", data_to_prefetch=2) == 2
    assert infeed(names, data_to_prefetch=2, prefetch_depth=4) == 4
    assert infeed(names, feed_name="infeed", replication_factor=2, device_ordinal=None) == 3
    assert infeed(names, None, prefetch_depth=6) == 6


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ((), ("ALL", 3, False)),
        (("outfeed",), ("ALL", 3, False)),
        (("outfeed", Mode.LAST), ("LAST", 3, False)),
        (("outfeed", Mode.LAST, 1, 2, 4), ("LAST", 3, False)),
        ((None, Mode.LAST, 2), ("LAST", 3, False)),
        ((None, None, 2, 4), ("ALL", 3, False)),
        ((None, None, None, None, 1), ("ALL", 3, False)),
        ((Mode.LAST, 0, 5), ("LAST", 5, False)),
        ((Mode.LAST, None, 5, True), ("LAST", 5, True)),
        ((None, 0, 5, True), ("ALL", 5, True)),
        ((None, None, 5, True), ("ALL", 5, True)),
    ],
)
def test_an_outfeeds_positions_are_those_of_either_release(names, given, found):
    assert outfeed(names, *given) == found


def test_an_outfeeds_deprecated_names(names):
    named = {"feed_name": "outfeed", "replication_factor": 2, "io_batch_size": 3}
    assert outfeed(names, outfeed_mode=Mode.LAST, **named) == ("LAST", 3, False)
    assert outfeed(names, "outfeed", buffer_depth=6) == ("ALL", 6, False)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            lambda names: infeed(names, None, 5),
            "IPUInfeedQueue: expected arguments by name, because the argument after None is device_ordinal up to SDK "
            "2.1 and prefetch_depth in later releases, got 5 by position",
        ),
        (
            lambda names: outfeed(names, None, None, 5),
            "IPUOutfeedQueue: expected arguments by name, because the argument after None is device_ordinal up to SDK "
            "2.1 and buffer_depth in later releases, got 5 by position",
        ),
        (
            lambda names: infeed(names, 0, 5, True, 4),
            "expected at most 3 arguments, device_ordinal, prefetch_depth, optimise_latency, got 4",
        ),
        (
            lambda names: outfeed(names, Mode.ALL, 0, 5, True, 4),
            "expected at most 4 arguments, outfeed_mode, device_ordinal, buffer_depth, optimise_latency, got 5",
        ),
    ],
)
def test_positions_that_no_release_or_both_have(names, wrong, text):
    with pytest.raises(TypeError, match=re.escape(text)):
        wrong(names)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda names: infeed(names, "infeed", "0"), "Device ordinal must be an integer"),
        (lambda names: outfeed(names, None, None, True), "Device ordinal must be an integer"),
        (
            lambda names: infeed(names, "infeed", 0, 0),
            "replication_factor: expected a whole number from 1 to 2147483647, got 0",
        ),
        (
            lambda names: outfeed(names, io_batch_size=0),
            "io_batch_size: expected a whole number from 1 to 2147483647, got 0",
        ),
    ],
)
def test_values_of_positions(names, wrong, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        wrong(names)
