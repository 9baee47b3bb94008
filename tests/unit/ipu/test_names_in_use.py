"""Every name that the page of Graphcore's API says works is used in a test or program; here, those of no other."""

from __future__ import annotations

import ast
import logging
import re
from functools import cache

import numpy as np
import pytest

from ipusim.errors import IpusimError
from ipusim.ipu import ipu_compiler, loops
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.embedding_ops import HostEmbeddingOptimizerSpec
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.ipu_session_run_hooks import IPULoggingTensorHook
from ipusim.ipu.ipu_strategy import IPUStrategyV1
from ipusim.ipu.tensorflow.train import SessionRunArgs, SessionRunContext, SessionRunValues
from reports.graphcore_names import names
from reports.graphcore_status import Status, said_of
from tests.places import ROOT
from tests.seed_programs import PROGRAMS


@cache
def words_in_use() -> frozenset[str]:
    """Return the words of the code of all tests and programs, and of the texts in it that are names alone."""
    found = set(re.findall(r"\w+", "".join(file.read_text() for file in PROGRAMS.glob("*.txt"))))
    for file in (*(ROOT / "tests").rglob("*.py"), *(ROOT / "scenarios" / "python").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Name(id=word) | ast.Attribute(attr=word) | ast.alias(name=word):
                    found.update(word.split("."))
                case ast.keyword(arg=str(word)):
                    found.add(word)
                case ast.Constant(value=str(text)) if re.fullmatch(r"[\w.]+", text):
                    found.update(re.split(r"\.|__", text))
    return frozenset(found)


def test_every_name_that_works_is_used():
    works = [name.path for name in names() if said_of(name).status is Status.WORKS]
    assert len(works) > 250
    assert [path for path in works if path.rpartition(".")[2] not in words_in_use()] == []


def test_a_name_that_nobody_uses_is_seen():
    assert "deleter" in words_in_use()
    assert "".join(("bo", "gus_name")) not in words_in_use()


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
