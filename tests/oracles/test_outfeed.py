"""What the outfeed carries: masks, accumulated sums, their shapes, their time, and Graphcore's rules."""

import csv
import io
import math
from pathlib import Path

import numpy as np
import pytest

from ipusim.app.run_folder.report import picture_window, run_files
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind
from tests.effort import sampled
from tests.machine_costs import vector_operations

SCENARIO = """
system: {name: m2000}
data: {type: synthetic, shape: [6], classes: 3, samples: 96}
model:
  layers:
    - {name: a, type: dense, units: 5, activation: tanh}
    - {name: b, type: dense, units: 3}
    - {name: cel, type: softmax_cross_entropy}
pipeline: {schedule: grouped, splits: [b], micro_batch_size: 4, gradient_accumulation_count: 8, repeat_count: 3}
optimizer: {type: sgd, learning_rate: 0.1}
precision: float64
steps: 2
"""
INFERENCE = SCENARIO.replace("    - {name: cel, type: softmax_cross_entropy}\n", "").replace("optimizer", "# optimizer")


@pytest.fixture
def load(load):
    return lambda *changes, text=SCENARIO: load(text, *changes)


@pytest.mark.parametrize("schedule", ["grouped", "interleaved", "sequential", "sharded"])
def test_what_is_masked_is_not_sent(load, schedule):
    changes = f"pipeline.schedule={schedule}", "pipeline.repeat_count=1"
    plain = execute(load(*changes)).learning
    both = execute(load(*changes, "pipeline.outfeed_mask=[false, false]")).learning
    loss = execute(load(*changes, "pipeline.outfeed_mask=[true, false]")).learning
    predictions = execute(load(*changes, "pipeline.outfeed_mask=[false, true]")).learning
    nothing = execute(load(*changes, "pipeline.outfeed_mask=[true, true]")).learning
    assert plain.losses == both.losses == loss.losses
    assert plain.outputs == loss.outputs == nothing.outputs == {}
    assert predictions.losses == nothing.losses == ()
    assert both.outputs["predictions"].shape == predictions.outputs["predictions"].shape == (8 * 2, 4, 3)
    np.testing.assert_array_equal(both.outputs["predictions"], predictions.outputs["predictions"])
    for other in (both, loss, predictions, nothing):
        for name, array in plain.weights.items():
            np.testing.assert_array_equal(array, other.weights[name])


def test_predictions_are_what_the_loss_is_taken_of(load):
    experiment = load("pipeline.outfeed_mask=[false, false]")
    learning = execute(experiment).learning
    for index, (loss, logits) in enumerate(zip(learning.losses, learning.outputs["predictions"], strict=True)):
        _, labels = experiment.workload(0).feed.element(index)
        share = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        assert loss.loss == pytest.approx(-np.log(share[np.arange(4), labels]).mean(), rel=1e-12)


def test_bytes_of_an_element_are_those_of_what_is_sent(load):
    """Batches of 4 samples with 3 logits, and one loss, of 8 bytes each."""
    for mask, elements in (("[false, false]", 13), ("[true, false]", 1), ("[false, true]", 12), ("[true, true]", 0)):
        experiment = load(f"pipeline.outfeed_mask={mask}")
        assert experiment.program.outfeed.element_bytes == 8 * elements
        timeline = execute(experiment).timeline
        assert set(timeline.bytes[timeline.rows(SpanKind.OUTFEED)].tolist()) == ({8 * elements} if elements else set())
    assert load("pipeline.accumulate_outfeed=true").program.outfeed.element_bytes == 8
    wide = load("pipeline.accumulate_outfeed=true", "pipeline.accumulate_outfeed_dtype=float32")
    assert wide.program.outfeed.element_bytes == 4


@sampled(2)
@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize("schedule", ["grouped", "interleaved", "sequential", "sharded"])
@pytest.mark.parametrize("ipus", [2, 4])
def test_an_accumulated_outfeed_carries_one_sum_an_execution(load, schedule, ipus):
    changes = f"pipeline.schedule={schedule}", f"system.auto_select_ipus={ipus}", "pipeline.repeat_count=1"
    plain = execute(load(*changes)).learning
    summed = execute(load(*changes, "pipeline.accumulate_outfeed=true"))
    replicas = ipus // 2
    single = np.array([loss.loss for loss in plain.losses]).reshape(2, 8, replicas)
    sums = [loss.loss for loss in summed.learning.losses]
    np.testing.assert_allclose(sums, single.sum(axis=1).ravel(), rtol=1e-15)
    assert [loss.execution for loss in summed.learning.losses] == np.repeat(range(2), replicas).tolist()
    assert summed.learning.mean_loss(1) == pytest.approx(plain.mean_loss(1), rel=1e-14)
    assert len(summed.timeline.rows(SpanKind.OUTFEED)) == 2 * replicas
    files = run_files(summed, picture_window(summed.timeline), Path())
    header, *rows = csv.reader(io.StringIO(files["losses.csv"].decode()))
    assert header == ["step", "execution", "micro_batches", *(["replica"] if replicas > 1 else []), "loss_sum"]
    assert [float(row[-1]) for row in rows] == sums
    assert {row[2] for row in rows} == {"8"}


def test_the_sum_goes_out_with_the_weight_update_and_not_before(load):
    plain, summed = (execute(load(*change)) for change in ((), ("pipeline.accumulate_outfeed=true",)))
    timeline = summed.timeline
    updates = timeline.rows(SpanKind.WEIGHT_UPDATE)
    ends = {(int(timeline.execution[row]), int(timeline.ipu[row])): int(timeline.end[row]) for row in updates}
    for row in timeline.rows(SpanKind.OUTFEED):
        assert timeline.time_step[row] == timeline.info.time_steps
        assert timeline.start[row] == ends[int(timeline.execution[row]), 1]
    assert summed.summary.pipeline_use[1].cycles["host_transfer"] == 0
    transfer = math.ceil(8 / float(summed.job.system.host.outfeed_bytes_per_s) * 1.33e9)
    assert plain.summary.pipeline_use[1].cycles["host_transfer"] == 8 * transfer


def test_inference_sends_its_sum_in_the_last_time_step(load):
    plain = execute(load(text=INFERENCE)).learning.outputs["outputs"]
    summed = execute(load("pipeline.accumulate_outfeed=true", text=INFERENCE))
    assert plain.shape == (8 * 3 * 2, 4, 3)
    found = summed.learning.outputs["outputs"]
    np.testing.assert_allclose(found, plain.reshape(6, 8, 4, 3).sum(axis=1), rtol=1e-14)
    timeline = summed.timeline
    rows = timeline.rows(SpanKind.OUTFEED)
    assert set(timeline.time_step[rows].tolist()) == {timeline.info.time_steps - 1}
    assert summed.summary.weight_update_cycles == 0


@pytest.mark.parametrize("replicas", [1, 2])
def test_shapes_of_what_the_host_receives(load, replicas):
    """Eight micro-batches, three executions a step, two steps; the replica dimension only where there are several."""
    of = () if replicas == 1 else (replicas,)
    changes = (f"system.auto_select_ipus={2 * replicas}",)
    all_, last, total = (
        execute(load(*changes, *more, text=INFERENCE)).learning.outputs["outputs"].shape
        for more in ((), ("outfeed.mode=LAST",), ("pipeline.accumulate_outfeed=true",))
    )
    assert all_ == (8 * 3 * 2, *of, 4, 3)
    assert last == (2, *of, 4, 3)
    assert total == (3 * 2, *of, 4, 3)


def test_a_wider_sum_keeps_what_a_narrow_one_loses(load):
    """Half precision has steps of a half above 512: each loss is rounded when it is added there."""
    changes = "precision=float16", "pipeline.gradient_accumulation_count=700", "pipeline.repeat_count=1", "steps=1"
    changes = *changes, "pipeline.schedule=single", "pipeline.splits=[]"
    total = "pipeline.accumulate_outfeed=true"
    single = [np.float16(loss.loss) for loss in execute(load(*changes)).learning.losses]
    narrow, wide = (
        execute(load(*changes, total, *more)).learning.losses[0].loss
        for more in ((), ("pipeline.accumulate_outfeed_dtype=float64",))
    )
    added = np.float16(0)
    for loss in single:
        added = np.float16(added + loss)
    assert narrow == float(added)
    assert wide == pytest.approx(sum(map(float, single)), rel=1e-12)
    assert abs(narrow - wide) > 2


def test_adding_up_takes_time(load):
    """32-bit sums of 12 logits: 12 additions, and 4 + 2 x 4 bytes each of traffic; both fit one cycle of all tiles."""
    plain, summed = (
        load("precision=float32", *change, text=INFERENCE) for change in ((), ("pipeline.accumulate_outfeed=true",))
    )
    work = summed.program.stages[-1].forward[-1]
    assert (vector_operations(work), work.sram_bytes) == (12, 12 * (4 + 8))
    lengths = []
    for experiment in (plain, summed):
        timeline = execute(experiment).timeline
        rows = (timeline.kind == SpanKind.FORWARD) & (timeline.stage == 1)
        lengths += set((timeline.end[rows] - timeline.start[rows]).tolist())
    assert lengths[1] - lengths[0] == 615 + 1  # one compute set, which is less than a cycle beside its launch
