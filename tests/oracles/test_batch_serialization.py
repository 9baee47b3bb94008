"""Batch serialization: the order of its loops, its buffers and its streams."""

from fractions import Fraction
from math import ceil

import numpy as np
import pytest

from ipusim.app.scenario.problems import ScenarioError
from ipusim.base.errors import RemoteMemoryError
from ipusim.pipeline.check import violations
from ipusim.pipeline.grid import format_grid
from ipusim.pipeline.holders import Holder
from ipusim.pipeline.offload import check_activations
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.runs.execute import execute
from ipusim.schedules.registry import find
from ipusim.timeline.kinds import SpanKind
from tests.plans import order_violations, parse_grid, time_steps_with_work

LAYERS = """
system: {name: m2000}
data: {type: synthetic, shape: [6], classes: 3, samples: 96}
model:
  layers:
    - {name: a, type: dense, units: 7, activation: tanh}
    - {name: drop, type: dropout, rate: 0.2}
    - {name: b, type: dense, units: 5, activation: relu}
    - {name: c, type: dense, units: 3}
    - {name: cel, type: softmax_cross_entropy}
pipeline:
  splits: [b, c]
  micro_batch_size: 4
  gradient_accumulation_count: 2
  batch_serialization_iterations: 3
  repeat_count: 2
optimizer: {type: momentum, learning_rate: 0.1, momentum: 0.5}
precision: float64
steps: 2
"""
TIMED = """
system: {name: m2000, enable_remote_buffers: true, streaming_memory: {bandwidth: 20 GB/s, ipu_bandwidth: 16 GB/s}}
pipeline:
  gradient_accumulation_count: 2
  batch_serialization_iterations: 3
  stages:
    - {name: a, forward: 100, backward: 200, output_bytes: 10 kB, stash_bytes: 40 kB, parameter_bytes: 1 kB}
    - {name: b, forward: 110, backward: 210, output_bytes: 20 kB, gradient_bytes: 10 kB, stash_bytes: 50 kB}
    - {name: c, forward: 120, backward: 220, gradient_bytes: 20 kB, stash_bytes: 60 kB}
infeed: {element_bytes: 5 kB}
"""
CLOCK = 1_330_000_000


def test_every_stage_runs_its_micro_batches_in_a_row():
    plan = plan_of(find("sequential"), PlanShape(mapping=(0, 0, 0), micro_batches=6, serialization=3))
    words = [str(op) for *_, op in sorted(plan.ops())]
    loop = "F0.{0} F0.{1} F0.{2} F1.{0} F1.{1} F1.{2} F2.{0} B2.{0} F2.{1} B2.{1} F2.{2} B2.{2} "
    loop += "B1.{0} B1.{1} B1.{2} B0.{0} B0.{1} B0.{2}"
    assert words == [*loop.format(0, 1, 2).split(), *loop.format(3, 4, 5).split()]
    assert plan.emitted == len(words)
    assert plan.fifo_depths == (3, 3, 0)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("stages", "count", "loop"), [(2, 4, 2), (3, 6, 6), (4, 20, 5)])
def test_plans_keep_every_rule_and_are_read_back(training, stages, count, loop):
    plan = plan_of(
        find("sequential"), PlanShape(mapping=(0,) * stages, micro_batches=count, training=training, serialization=loop)
    )
    assert not violations(plan)
    assert not order_violations(plan)
    assert parse_grid(format_grid(plan)) == plan
    assert time_steps_with_work(plan) == plan.emitted


def test_buffers_have_an_element_for_each_turn(load):
    """Of what stages keep and of what they send: 3 x 40 + 3 x 50 kB, and 3 x (10 + 10 + 20 + 20) kB."""
    changes = "system.enable_remote_buffers=false", "system.streaming_memory.bandwidth=null"
    text = TIMED.replace(", streaming_memory: {bandwidth: 20 GB/s, ipu_bandwidth: 16 GB/s}", "")
    held = execute(load(text, changes[0])).memory.footprint.ipus[0]
    assert dict(held.resident)[Holder.FIFOS] == 3 * (40 + 50) * 1000
    assert dict(held.resident)[Holder.COPIES] == 3 * (10 + 10 + 20 + 20) * 1000
    assert held.remote_bytes == 0


def test_activations_that_are_offloaded_leave_the_ipu(load):
    fit = execute(load(TIMED)).memory
    held = fit.footprint.ipus[0]
    assert dict(held.resident)[Holder.FIFOS] == 0
    assert dict(held.resident)[Holder.COPIES] == (10 + 10 + 20 + 20) * 1000
    buffers = 3 * (40 + 50 + 10 + 10 + 20 + 20) * 1000
    assert held.remote_bytes == buffers + 1000  # and a's accumulator
    # What a pass keeps, and what it sends on.
    assert [stage.forward_bytes for stage in fit.footprint.stages] == [50_000, 70_000, 0]


def test_activations_come_and_go_with_every_pass(load):
    timeline = execute(load(TIMED, "pipeline.offload_gradient_accumulation_buffers=false")).timeline
    ipu = timeline.ipu == 0
    moved = []
    for kind in (SpanKind.REMOTE_LOAD, SpanKind.REMOTE_STORE):
        rows = np.flatnonzero((timeline.kind == kind) & ipu & (timeline.time_step < timeline.info.time_steps))
        moved.append((timeline.time_step[rows].tolist(), timeline.bytes[rows].tolist()))
        lengths = timeline.end[rows] - timeline.start[rows]
        assert lengths.tolist() == [ceil(Fraction(size, 16 * 10**9) * CLOCK) for size in moved[-1][1]]
    k = 1000
    loads = {**dict.fromkeys((3, 4, 5), 10 * k), **dict.fromkeys((6, 8, 10), 20 * k)}
    loads |= dict.fromkeys((12, 13, 14), (50 + 20) * k) | dict.fromkeys((15, 16, 17), (40 + 10) * k)
    stores = dict.fromkeys((0, 1, 2), (40 + 10) * k) | dict.fromkeys((3, 4, 5), (50 + 20) * k)
    stores |= dict.fromkeys((7, 9, 11), 20 * k) | dict.fromkeys((12, 13, 14), 10 * k)
    for found, expected in zip(moved, (loads, stores), strict=True):
        steps = [step + 18 * group for group in range(2) for step in sorted(expected)]
        assert found == (steps, [expected[step % 18] for step in steps])


def test_offloading_is_the_default_with_streaming_memory(load):
    offload = load(TIMED).program.offload
    assert offload.activations
    assert offload.gradient_accumulation_buffers
    off = load(TIMED, "pipeline.offload_activations=false", "pipeline.offload_gradient_accumulation_buffers=false")
    assert not off.program.offload.activations
    assert not off.program.offload.gradient_accumulation_buffers
    assert not load(LAYERS).program.offload.activations


NO_REMOTE = (
    "Activations offloading has been enabled, however the current configuration of the IPU devices does not support "
    "remote memory. Set the `offload_activations` argument of `pipelining_ops.pipeline` to `False` to stop seeing this "
    "message."
)


@pytest.mark.parametrize(
    ("changes", "key", "text"),
    [
        (
            ("pipeline.reduction_method=MEAN",),
            "pipeline.batch_serialization_iterations",
            "batch_serialization_iterations != 1 is only supported when reduction_method is "
            "GradientAccumulationReductionMethod.SUM",
        ),
        (
            ("pipeline.schedule=grouped",),
            "pipeline.schedule",
            "Batch serialization is only supported with the `Sequential` schedule.",
        ),
        (
            ("pipeline.device_mapping=[0, 1, 0]",),
            "pipeline.device_mapping",
            "When using batch serialization, all the pipeline stages need to be mapped to a single IPU.",
        ),
        (("pipeline.offload_activations=true",), "pipeline.offload_activations", NO_REMOTE),
    ],
)
def test_what_is_refused(load, changes, key, text):
    with pytest.raises(ScenarioError) as caught:
        load(LAYERS, *changes)
    (problem,) = caught.value.problems
    assert (problem.key, problem.text) == (key, text)


def test_activations_alone_are_refused_without_remote_memory():
    with pytest.raises(RemoteMemoryError, match="Activations offloading has been enabled"):
        check_activations(True, remote_memory=False, serialized=True)
