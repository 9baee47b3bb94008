"""Names of the page of Graphcore's API that no other test or program uses."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from ipusim.base.errors import IpusimError
from ipusim.ipu import ipu_compiler, loops
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.embedding_ops import HostEmbeddingOptimizerSpec
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.ipu_session_run_hooks import IPULoggingTensorHook
from ipusim.ipu.ipu_strategy import IPUStrategyV1
from ipusim.ipu.tensorflow.train import SessionRunArgs, SessionRunContext, SessionRunValues


def test_a_queue_can_be_deleted_and_another_read():
    for _ in range(2):
        infeed = IPUInfeedQueue(tf.data.Dataset.from_tensors((np.float32(1), np.float32(2))).repeat(), feed_name="in")
        outfeed = IPUOutfeedQueue(feed_name="out")
        assert infeed.number_of_tuple_elements == 2
        loop = ipu_compiler.compile(lambda: loops.repeat(3, lambda x, y: outfeed.enqueue(x + y), [], infeed))  # noqa: B023
        with tf.Session() as session:
            session.run(infeed.initializer)
            session.run(loop)
            assert np.ravel(session.run(outfeed.dequeue())).tolist() == [3, 3, 3]
            assert session.run([infeed.deleter, outfeed.deleter]) == [None, None]


def test_a_hook_logs_after_the_runs_that_are_due(caplog):
    """As a program's own hook around it would call it: after the first run, and not after the second."""
    hook = IPULoggingTensorHook(every_n_iter=2)
    queue = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(np.float32([1, 2])).repeat())
    loop = ipu_compiler.compile(lambda: loops.repeat(2, lambda x: hook.log({"x": x}), [], queue))
    hook.begin()
    with tf.Session() as session, caplog.at_level(logging.INFO, "tensorflow"):
        context = SessionRunContext(SessionRunArgs(loop), session)
        session.run(queue.initializer)
        logged = []
        for _ in range(3):
            session.run(loop)
            hook.after_run(context, SessionRunValues(None, None, None))
            logged.append(len(caplog.records))
    assert logged == [1, 1, 2]


def test_a_table_is_looked_up_between_its_instructions_alone():
    spec = HostEmbeddingOptimizerSpec(0.1)
    rows = tf.get_variable("rows", [4, 2], initializer=tf.ones_initializer())
    slots = spec.create_slot_variables(rows, "rows")
    register = spec.create_register_instruction(rows, slots, "rows")
    deregister = spec.create_deregister_instruction(rows, slots, "rows")

    def look_up():
        outfeed = IPUOutfeedQueue()
        queue = IPUInfeedQueue(tf.data.Dataset.from_tensors(np.int32([1, 3])).repeat())

        def body(ids):
            return outfeed.enqueue(spec.create_lookup_instruction(rows, ids, slots, "TOKEN", "rows"))

        loop = ipu_compiler.compile(lambda: loops.repeat(2, body, [], queue))
        with tf.Session() as session:
            session.run([queue.initializer, rows.initializer])
            session.run(register)
            session.run(loop)
            session.run(deregister)
            return session.run(outfeed.dequeue()), session, loop

    rows_found, session, loop = look_up()
    assert np.asarray(rows_found).tolist() == np.ones([2, 2, 2]).tolist()
    with pytest.raises(IpusimError):
        session.run(loop)


def test_a_functional_models_layers_are_assigned_to_stages():
    with IPUStrategyV1().scope():
        inputs = tf.keras.Input(2)
        with tf.keras.ipu.PipelineStage(0):
            x = tf.keras.layers.Dense(3)(inputs)
        with tf.keras.ipu.PipelineStage(1):
            x = tf.keras.layers.Dense(4)(x)
        model = tf.keras.Model(inputs, x)
        first, second = model.get_pipeline_stage_assignment()
    assert {type(first), type(second)} == {tf.keras.ipu.extensions.FunctionalLayerPipelineStageAssignment}
    assert (first.pipeline_stage, second.pipeline_stage) == (0, 1)
    assert second.inbound_layers == first.layer or list(np.ravel(second.inbound_layers)) == [first.layer]
