"""Embeddings whose tables lie on the host: what their rows take, what waits for them, and that nothing else changes."""

from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipusim.analysis.critical_path import critical_path_of
from ipusim.app.scenario import load_job
from ipusim.app.scenario.problems import ScenarioError
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind

TEXT = """
system: {name: m2000, clock: 1 GHz, host: {infeed: 2 GB/s, host_fill: 4 GB/s, outfeed: 1 GB/s, host_drain: 5 GB/s}}
data: {type: synthetic_tokens, length: 6, vocabulary: 12, samples: 192, noise: 0.1}
model:
  layers:
    - {name: tokens, type: host_embedding, input_dim: 12, output_dim: 8}
    - {name: hidden, type: dense, units: 16, activation: tanh}
    - {name: logits, type: dense, units: 12}
    - {name: cel, type: softmax_cross_entropy}
pipeline: {schedule: grouped, splits: [logits], micro_batch_size: 4, gradient_accumulation_count: 4, repeat_count: 3}
optimizer: {type: adam, learning_rate: 0.01}
"""
ON_IPU = TEXT.replace("host_embedding", "embedding")
#: Bytes of a micro-batch: ids of 4 bytes, rows of 8 floats.
IDS, ROWS = 4 * 6 * 4, 4 * 6 * 8 * 4


def spans(timeline, kind):
    return [(int(timeline.start[row]), int(timeline.end[row]), int(timeline.bytes[row])) for row in timeline.rows(kind)]


@pytest.fixture(scope="module")
def loads_job(tmp_path_factory):
    path = tmp_path_factory.mktemp("scenarios") / "scenario.yaml"

    def load(text, *changes):
        path.write_text(text)
        return load_job(path, changes)

    return load


def cycles(size, giga_bytes):
    return ceil(Fraction(size, giga_bytes))


def test_rows_come_before_a_forward_pass_and_their_gradients_go_behind_its_backward_pass(loads_job):
    """At 1 GHz a GB/s is a byte a cycle: the IPU writes ids, the host reads them and writes rows, the IPU reads."""
    timeline = execute(loads_job(TEXT)).timeline
    first, second, *_ = spans(timeline, SpanKind.HOST_ROWS)
    host = next(each for each in spans(timeline, SpanKind.HOST) if each[0] == first[1])
    gather = cycles(IDS, 5) + cycles(ROWS, 4)
    assert first[1:] == (first[0] + IDS, IDS)
    assert host[1] - host[0] == gather
    assert second == (host[1], host[1] + cycles(ROWS, 2), ROWS)
    assert spans(timeline, SpanKind.FORWARD)[0][0] == second[1]
    sizes = [size for *_, size in spans(timeline, SpanKind.HOST_ROWS)]
    assert [sizes.count(size) for size in (IDS, ROWS, IDS + ROWS)] == [12, 12, 12]
    backward = [row for row in timeline.rows(SpanKind.BACKWARD) if timeline.stage[row] == 0]
    gone = [row for row in timeline.rows(SpanKind.HOST_ROWS) if timeline.bytes[row] == IDS + ROWS]
    assert timeline.end[backward].tolist() == timeline.start[gone].tolist()
    assert {int(timeline.ipu[row]) for row in gone} == {0}


def test_a_look_up_waits_for_updates_before_it(loads_job):
    """The host applies what came first; the wait's end is that of its search, which begins behind them."""
    slow = TEXT.replace("host_drain: 5 GB/s", "host_drain: 10 MB/s")
    timeline = execute(loads_job(slow)).timeline
    host = [row for row in timeline.rows(SpanKind.HOST) if timeline.link[row] == 2]
    begins, ends = timeline.start[host], timeline.end[host]
    assert (begins[1:] >= ends[:-1]).all()
    assert (begins[1:] == ends[:-1]).any()
    read = [row for row in timeline.rows(SpanKind.HOST_ROWS) if timeline.bytes[row] == ROWS]
    assert set(timeline.start[read]) <= set(ends)
    path = critical_path_of(timeline).rows
    assert SpanKind.HOST in timeline.kind[path]


@given(
    schedule=st.sampled_from(["grouped", "interleaved", "1f1b", "gpipe", "zero_bubble_h1"]),
    sync=st.sampled_from(["lock_step", "point_to_point"]),
    replicas=st.sampled_from([1, 2]),
    again=st.booleans(),
    optimizer=st.sampled_from(["sgd", "adam", "lamb"]),
)
def test_it_learns_what_an_embedding_on_the_ipu_learns(loads_job, schedule, sync, replicas, again, optimizer):
    changes = [
        f"pipeline.schedule={schedule}",
        f"pipeline.sync={sync}",
        f"system.auto_select_ipus={2 * replicas}",
        f"optimizer={{type: {optimizer}, learning_rate: 0.01}}",
        *(["pipeline.allow_recompute=true"] if again and schedule != "zero_bubble_h1" else []),
    ]
    here, there = (execute(loads_job(text, *changes)) for text in (TEXT, ON_IPU))
    assert here.learning is not None
    assert there.learning is not None
    np.testing.assert_array_equal(here.learning.losses, there.learning.losses)
    for name, array in there.learning.weights.items():
        np.testing.assert_array_equal(here.learning.weights[name], array)


def test_the_table_takes_no_memory_of_the_ipu_and_no_update(loads_job):
    here, there = (loads_job(text) for text in (TEXT, ON_IPU))
    table = 12 * 8 * 4
    mine, other = here.program.stages[0], there.program.stages[0]
    assert other.parameter_bytes - mine.parameter_bytes == table
    assert other.state_bytes - mine.state_bytes == 2 * table
    assert other.accumulator_bytes - mine.accumulator_bytes == table
    assert here.costs.updates[0] < there.costs.updates[0]
    assert mine.stash_bytes == other.stash_bytes


def test_in_inference_rows_come_and_nothing_goes_back(loads_job):
    timeline = execute(loads_job(TEXT, "optimizer=null", "training=false")).timeline
    assert {size for *_, size in spans(timeline, SpanKind.HOST_ROWS)} == {IDS, ROWS}


def test_synthetic_data_leaves_the_host_out(loads_job):
    job = loads_job(TEXT, "use_synthetic_data=true")
    assert not job.costs.tables
    assert not len(execute(job).timeline.rows(SpanKind.HOST_ROWS, SpanKind.HOST))


def test_replicas_meet_where_all_that_learns_lies_on_the_host(loads_job):
    alone = TEXT.replace("    - {name: hidden, type: dense, units: 16, activation: tanh}\n", "").replace(
        "    - {name: logits, type: dense, units: 12}\n", "    - {name: shape, type: activation, activation: tanh}\n"
    )
    text = alone.replace("output_dim: 8", "output_dim: 12").replace("splits: [logits]", "splits: [cel]")
    here, there = (
        execute(loads_job(each, "system.auto_select_ipus=4")) for each in (text, text.replace("host_embed", "embed"))
    )
    np.testing.assert_array_equal(here.learning.losses, there.learning.losses)
    assert len(here.timeline.rows(SpanKind.ALL_REDUCE))
    several = (["system.host.count=2", "system.host.sum_over=links"], ["pipeline.schedule=chimera"])
    for changes in ([*several[0], "use_synthetic_data=true"], [*several[1], "use_synthetic_data=true"], *several):
        others, on_ipus = (execute(loads_job(each, *changes)) for each in (text, text.replace("host_embed", "embed")))
        np.testing.assert_array_equal(others.learning.losses, on_ipus.learning.losses)


def test_a_projection_cannot_share_a_table_on_the_host(loads_job):
    tied = TEXT.replace(
        "    - {name: logits, type: dense, units: 12}\n",
        "    - {name: back, type: dense, units: 8}\n    - {name: logits, type: tied_projection, embedding: tokens, "
        "units: 12}\n",
    )
    with pytest.raises(ScenarioError) as caught:
        loads_job(tied)
    assert str(caught.value).endswith(
        "expected a layer whose parameters are on the IPU, got 'tokens', whose parameters are on the host"
    )
