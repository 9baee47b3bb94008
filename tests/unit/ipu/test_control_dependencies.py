"""What must come before what the host computes: ``tf.control_dependencies`` in each run of a session."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.ipu import internal_ops, ipu_compiler, loops
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue


@pytest.fixture(autouse=True)
def in_sessions():
    tf.disable_eager_execution()


def fed():
    return tf.placeholder(tf.float32, [2])


@pytest.mark.parametrize(
    "made",
    [lambda x: x + 1, lambda x: tf.identity(x) + 1, lambda x: tf.identity_n([x])[0] + 1, lambda x: 1 + tf.add(x, 0)],
)
def test_what_is_made_in_the_block_comes_after(made, capsys):
    x = fed()
    printed = internal_ops.print_tensor(x * 3, name="before")
    alone = made(x)
    with tf.control_dependencies([printed]):
        after = made(x)
    with tf.Session() as session:
        np.testing.assert_array_equal(session.run(alone, {x: [1, 2]}), [2, 3])
        assert capsys.readouterr().err == ""
        np.testing.assert_array_equal(session.run([after, after * 2], {x: [1, 2]}), [[2, 3], [4, 6]])
        assert capsys.readouterr().err == "before: [3., 6.]\n"  # once in a run


def counter():
    return tf.Variable(np.float32(0), trainable=False, name="count")


def test_a_variable_is_read_after_its_change():
    count = counter()
    added = count.assign_add(1.0)
    with tf.control_dependencies([added]):
        read, nothing, grouped = tf.identity(count), tf.no_op(), tf.group(tf.no_op())
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(read) == 1
        assert session.run([read, added]) == [2, 2]
        session.run(nothing)
        session.run(grouped)
        assert session.run(count) == 4


def test_blocks_add_up_and_none_ends_them():
    one, two = counter(), tf.Variable(np.float32(0), trainable=False, name="other")
    with tf.control_dependencies([one.assign_add(1.0)]), tf.control_dependencies([two.assign_add(1.0)]):
        both = tf.no_op()
        with tf.control_dependencies(None):
            neither = tf.no_op()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run([both, neither])
        assert session.run([one, two]) == [1, 1]
        session.run(neither)
        assert session.run([one, two]) == [1, 1]


def test_a_program_comes_before_and_what_is_dequeued_is_that_of_this_run():
    queue = IPUOutfeedQueue()
    ran = ipu_compiler.compile(lambda: loops.repeat(2, lambda x: (x + 1, queue.enqueue(x)), [np.float32(0)]))
    with tf.control_dependencies([ran] if not isinstance(ran, tuple) else ran):
        one = tf.constant(1.0) + counter()
    dequeued = queue.dequeue()
    with tf.control_dependencies([tf.reduce_sum(dequeued)]):
        last = tf.no_op()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(one) == 1
        np.testing.assert_array_equal(session.run([last, ran, dequeued])[2], [0, 1, 0, 1])


def test_a_group_takes_what_the_run_is_fed_and_does_all_once():
    x, count = fed(), counter()
    added = count.assign_add(tf.reduce_sum(x))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run([tf.group(added, added * 2), added], {x: [1, 2]})
        assert session.run(count) == 3
