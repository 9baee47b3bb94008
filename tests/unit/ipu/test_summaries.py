"""Summaries in a session: the programs that it ran as events, and tensors under their tags."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ipusim.ipu import get_variable, ipu_compiler, summary_ops, utils
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.pipelining_ops import pipeline
from ipusim.ipu.runtime.host import Running
from ipusim.ipu.utils import IpuTraceEventType


def compiled(name, count=4):
    infeed, queue = IPUInfeedQueue(repeat([np.float32(3)])), IPUOutfeedQueue()
    infeed.initializer.evaluate(Running())

    def model():
        return pipeline(
            [lambda x: x * get_variable("w", 2.0), lambda x: x],
            gradient_accumulation_count=count,
            infeed_queue=infeed,
            outfeed_queue=queue,
            name=name,
        )

    return ipu_compiler.compile(model), queue.dequeue()[0]


def test_events_are_the_programs_that_a_run_executed():
    (first, _), (second, results) = compiled("first"), compiled("second", 8)
    summary = summary_ops.ipu_compile_summary("report", [first])
    with tf.Session() as session:
        (event,) = utils.extract_all_events(session.run(summary))
        assert (event.type, event.module_name) == (IpuTraceEventType.EXECUTE, "first")
        events, _, sent = session.run([summary, second, results])
    assert sent.tolist() == [6] * 8
    assert [event.module_name for event in events] == ["second", "first"]
    assert utils.extract_all_types_from_event_trace(events) == [IpuTraceEventType.EXECUTE] * 2
    reports = dict(utils.extract_execute_reports(events))
    assert [json.loads(reports[name])["count"] for name in ("first", "second")] == [4, 8]
    assert json.loads(reports["first"])["micro_batch_size"] == 1
    assert utils.extract_compile_reports(events) == utils.extract_poplar_serialized_graphs(events) == []
    assert utils.extract_all_strings_from_event_trace(events) == "".join(
        f"{'-' * 70}\n=> Execute: {name}\n{reports[name]}\n" for name in ("second", "first")
    )


def test_a_session_that_runs_no_program_has_no_events():
    with tf.Session() as session:
        events = session.run(summary_ops.ipu_compile_summary("report", tf.no_op()))
    assert events == ()
    assert utils.extract_all_strings_from_event_trace(events) == ""


@pytest.mark.parametrize(
    ("named", "tag"),
    [
        ({}, "loss"),
        ({"family": "train"}, "train/loss"),
        ({"family": "train", "display_name": "The loss"}, "The loss"),
    ],
)
def test_a_tensor_has_its_tag(named, tag):
    rate = tf.placeholder(np.float32, [2])
    summary = summary_ops.tensor_summary("loss", rate * 2, "what is minimised", ["summaries"], **named)
    with tf.Session() as session:
        found = session.run(summary, {rate: [1, 2]})
    assert (found.tag, found.tensor.tolist(), found.description) == (tag, [2, 4], "what is minimised")


def test_a_tensor_that_comes_out_of_a_program():
    run, results = compiled("model")
    with tf.Session() as session:
        _, found = session.run([run, summary_ops.tensor_summary("results", results)])
    assert found.tensor.tolist() == [6] * 4
    with tf.Session() as session:
        assert session.run(summary_ops.tensor_summary("constant", np.ones(2))).tensor.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (
            "op_list: expected an operation or a list of operations, got [3]",
            lambda: summary_ops.ipu_compile_summary("report", [3]),
        ),
        ("name: expected a text, got None", lambda: summary_ops.ipu_compile_summary(None, [])),
        (
            "collections: expected a list of names, or None, got 'x'",
            lambda: summary_ops.tensor_summary("x", 1, collections="x"),
        ),
        ("family: expected a text, got 3", lambda: summary_ops.tensor_summary("x", 1, family=3)),
        ("tensor: expected an array or a number, got 'y'", lambda: summary_ops.tensor_summary("x", "y")),
        (
            "events: expected what a session returns for an ipu_compile_summary, got [b'event']",
            lambda: utils.extract_all_events([b"event"]),
        ),
    ],
)
def test_what_is_refused(text, wrong, refused):
    refused(TypeError, text, wrong)
