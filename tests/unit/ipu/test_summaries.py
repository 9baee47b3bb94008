"""Summaries in a session: the programs that it ran as events, and a tensor under its tag."""

import json

import numpy as np
import pytest

from tests.traced_training import Lazily

pytestmark = pytest.mark.usefixtures("tf")

ipu_compiler, summary_ops, utils = Lazily("ipu_compiler"), Lazily("summary_ops"), Lazily("utils")
ipu_infeed_queue, ipu_outfeed_queue = Lazily("ipu_infeed_queue"), Lazily("ipu_outfeed_queue")
pipelining_ops = Lazily("pipelining_ops")


def compiled(tf, name, count=4):
    dataset = tf.data.Dataset.from_tensors(np.float32(3)).repeat()
    infeed, queue = ipu_infeed_queue.IPUInfeedQueue(dataset), ipu_outfeed_queue.IPUOutfeedQueue()

    def model():
        return pipelining_ops.pipeline(
            [lambda x: x * 2.0, lambda x: x],
            gradient_accumulation_count=count,
            infeed_queue=infeed,
            outfeed_queue=queue,
            name=name,
        )

    return ipu_compiler.compile(model), infeed.initializer


def test_events_are_the_programs_that_a_run_executed(tf):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        (first, begin), (second, begin_too) = compiled(tf, "first"), compiled(tf, "second", 8)
        summary = summary_ops.ipu_compile_summary("report", [first])
        both = summary_ops.ipu_compile_summary("both", [first, second])
        session.run([begin, begin_too])
        (event,) = utils.extract_all_events(session.run(summary))
        assert (event.type, event.module_name) == (utils.IpuTraceEventType.EXECUTE, "first")
        events = utils.extract_all_events(session.run(both))
    assert sorted(event.module_name for event in events) == ["first", "second"]
    assert utils.extract_all_types_from_event_trace(events) == [utils.IpuTraceEventType.EXECUTE] * 2
    reports = dict(utils.extract_execute_reports(events))
    assert [json.loads(reports[name])["count"] for name in ("first", "second")] == [4, 8]
    assert utils.extract_compile_reports(events) == utils.extract_poplar_serialized_graphs(events) == []
    assert utils.extract_all_strings_from_event_trace(events) == "".join(
        f"{'-' * 70}\n=> Execute: {event.module_name}\n{event.execution_report}\n" for event in events
    )


def test_a_session_that_runs_no_program_has_no_events(tf):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        events = session.run(summary_ops.ipu_compile_summary("report", tf.no_op()))
    assert utils.extract_all_strings_from_event_trace(events) == ""
