"""Quotients of whole numbers of 8 and 16 bits, in float32 as TensorFlow has them, and not in NumPy's float64."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.ipu import ipu_compiler, loops, scopes
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.pipelining_ops import pipeline

IMAGE = np.array([[255, 51]], np.uint8)
SHARE = np.array([[1.0, 0.2]], np.float32)
DTYPES = [
    *((kind, np.float32) for kind in (np.int8, np.uint8, np.int16, np.uint16)),
    *((kind, np.float64) for kind in (np.int32, np.int64)),
]


@pytest.mark.parametrize(("kind", "expected"), DTYPES)
def test_the_dtype_of_a_quotient_is_that_of_the_table_of_tensorflow(kind, expected):
    array, x = np.full((1, 2), 6, kind), tf.placeholder(kind, [1, 2])
    quotients = [*(tf.divide(each, 4) for each in (array, x)), x / 4, x / x, 4 / x]
    with tf.Session() as session:
        found = [session.run(each + 0, {x: array}) for each in quotients]
    assert {each.dtype for each in found} == {np.dtype(expected)}
    assert [float(each[0, 0]) for each in found] == pytest.approx([1.5] * 3 + [1, 4 / 6])


ELEMENTS = {
    "the operator": lambda x: x / 255,
    "a part": lambda x: x[:1] / 255,
    "another form": lambda x: np.reshape(x.reshape(-1), (1, 2)) / 255,
    "arithmetic before": lambda x: (x // 1 + x - x) / 255,
    "tf.divide": lambda x: tf.divide(x, 255),
    "as float32": lambda x: x.astype(np.float32) / np.float32(255),
    "cast": lambda x: tf.cast(x, tf.float32) / 255,
}


@pytest.mark.parametrize("function", ELEMENTS.values(), ids=ELEMENTS)
def test_an_element_of_a_dataset_is_divided_into_float32(function):
    (found,) = tf.data.Dataset.from_tensor_slices(IMAGE[None]).map(function)
    assert type(found) is np.ndarray
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, SHARE)


def test_a_number_of_a_dataset_is_divided_into_float32():
    found = list(tf.data.Dataset.from_tensor_slices(IMAGE[0]).filter(lambda x: x > 60).map(lambda x: x / 255))
    assert [(each.dtype, float(each)) for each in found] == [(np.float32, 1.0)]


def test_an_element_of_64_bits_is_divided_by_the_rule_of_numpy():
    (found,) = tf.data.Dataset.from_tensor_slices([[2**40]]).map(lambda x: x / 2)
    assert found.dtype == np.float64


def piped(infeed, outfeed):
    return pipeline([lambda x: x / 255, lambda x: x * 1], 4, infeed_queue=infeed, outfeed_queue=outfeed)


def looped(infeed, outfeed):
    return loops.repeat(4, lambda x: outfeed.enqueue(x / 255), [], infeed)


def sharded(infeed, outfeed):
    def body(x):
        with scopes.ipu_shard(0):
            share = x / 255
        with scopes.ipu_shard(1):
            return outfeed.enqueue(share * 1)

    return loops.repeat(4, body, [], infeed)


@pytest.mark.parametrize("program", [piped, looped, sharded])
def test_a_program_divides_into_float32(program):
    infeed = IPUInfeedQueue(tf.data.Dataset.from_tensors(IMAGE).repeat())
    outfeed = IPUOutfeedQueue()
    ran = ipu_compiler.compile(lambda: program(infeed, outfeed), [])
    found = outfeed.dequeue()
    with tf.Session() as session:
        session.run(infeed.initializer)
        session.run(ran)
        (result,) = np.reshape(session.run(found), (1, 4, 1, 2))
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result[0], SHARE)
