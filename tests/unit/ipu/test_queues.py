"""Infeed and outfeed queues: Graphcore's rules with their exact texts, and what goes through."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ipusim.base.errors import ProgramStateError
from ipusim.ipu.runtime.queues import IPUOutfeedMode as Mode
from tests.programs import configure, hosted_names, run

ONES = np.ones(2, np.float32)


@pytest.fixture(scope="module")
def module_names():
    with hosted_names() as found:
        yield found


@pytest.fixture
def names(module_names):
    module_names.tf.reset_default_graph()
    configure(module_names, 2)
    return module_names


def dataset(names, *values):
    return names.tf.data.Dataset.from_tensors(values[0] if values else ONES).repeat()


def infeed(names, *given, **named):
    """How many elements an infeed of these arguments keeps ready."""
    return names.ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(names), *given, **named).prefetch_depth


def outfeed(names, *given, **named):
    queue = names.ipu.ipu_outfeed_queue.IPUOutfeedQueue(*given, **named)
    return queue.outfeed_mode.value, queue.buffer_depth, queue.optimise_latency


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"prefetch_depth": -1}, "prefetch_depth must be greater than zero, but it is -1"),
        ({"prefetch_depth": 256}, "prefetch_depth must be less than 256, but it is 256"),
        ({"device_ordinal": "0"}, "Device ordinal must be an integer"),
        ({"device_ordinal": True}, "Device ordinal must be an integer"),
        ({"device_ordinal": -1}, "Device ordinal must be >= 0"),
    ],
)
def test_infeed_queue(names, arguments, text):
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        infeed(names, **arguments)


def test_infeed_elements_that_are_nested_or_of_unknown_shapes(names):
    kind = names.ipu.ipu_infeed_queue.IPUInfeedQueue
    with pytest.raises(ValueError, match="Nested list/tuple input shapes are not supported"):
        kind(dataset(names, ((ONES, ONES), ONES)))
    kind(dataset(names, ({"a": ONES}, ONES)))
    text = r"Output shape \(\?, 2\) is not fully defined|Output shape \(None, 2\) is not fully defined"
    with pytest.raises(ValueError, match=text):
        kind(names.tf.data.Dataset.from_tensors(ONES).batch(3))


def test_infeed_initializer_and_get_next(names):
    queue = names.ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(names))
    assert isinstance(queue.initializer, names.tf.Operation)
    with pytest.raises(ValueError, match="`initializer` function can only be accessed once"):
        _ = queue.initializer
    with pytest.raises(ValueError, match=re.escape("`get_next()` is now obsolete")):
        queue.get_next()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"device_ordinal": 0.0}, "Device ordinal must be an integer"),
        ({"device_ordinal": -2}, "Device ordinal must be >= 0"),
        ({"buffer_depth": 0}, "Outfeed buffer depth cannot be less than 1"),
    ],
)
def test_outfeed_queue(names, arguments, text):
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        outfeed(names, **arguments)


def sent(names, mode=Mode.ALL, feeds=({},), stages=None, data=None, training=False, **arguments):
    """What a pipeline of two stages sends, of which the last hands on what it takes."""
    ops, tf = names.ipu.pipelining_ops, names.tf
    elements = names.ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(names) if data is None else data)
    queue = names.ipu.ipu_outfeed_queue.IPUOutfeedQueue(mode)

    def weighted(x):
        return x * tf.get_variable("w", [], initializer=tf.ones_initializer())

    def learn(loss):
        return ops.OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(0.0), loss)

    def network():
        return ops.pipeline(
            stages or [lambda x: x, weighted],
            gradient_accumulation_count=8,
            infeed_queue=elements,
            outfeed_queue=queue,
            optimizer_function=learn if training else None,
            **arguments,
        )

    return run(names, network, queue, [elements], feeds).sent


@pytest.mark.parametrize(
    ("arguments", "alone"),
    [
        ({}, False),
        ({"mode": Mode.LAST}, False),
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
    data = dataset(names, {"y": np.float32(1), "x": np.float32(4)})
    (found,) = sent(names, data=data, stages=[lambda x, y: 2 * (x - y), lambda x: x])
    assert found.tolist() == [6.0] * 8


def test_outfeed_before_a_program_and_in_the_mode_last(names):
    queue = names.ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with pytest.raises(ValueError, match="Trying to dequeue an outfeed which has not been enqueued"):
        queue.dequeue()
    configure(names, 1)
    last = names.ipu.ipu_outfeed_queue.IPUOutfeedQueue(Mode.LAST)
    loop = lambda: names.ipu.loops.repeat(3, lambda i: (i + 1, last.enqueue(i)), [0])  # noqa: E731
    compiled = names.ipu.ipu_compiler.compile(loop)
    dequeued = last.dequeue()
    with names.tf.Session() as session:
        with pytest.raises(ProgramStateError, match="Trying to get the last value from an outfeed queue before it"):
            session.run(dequeued)
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
        ((None, None, 0), ("ALL", 3, False)),
        ((None, None, 2, 4), ("ALL", 3, False)),
        ((None, None, None, None, 1), ("ALL", 3, False)),
        ((Mode.LAST,), ("LAST", 3, False)),
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
            "IPUInfeedQueue: expected arguments by name, as the argument after None is device_ordinal up to SDK 2.1 "
            "and prefetch_depth in later releases, got 5 by position",
        ),
        (
            lambda names: outfeed(names, None, None, 5),
            "IPUOutfeedQueue: expected arguments by name, as the argument after None is device_ordinal up to SDK 2.1 "
            "and buffer_depth in later releases, got 5 by position",
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
        (
            lambda names: outfeed(names, "last"),
            "Expected `outfeed_mode` value to be of `ipu_outfeed_queue.IPUOutfeedMode` type, but is <class 'str'>.",
        ),
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
