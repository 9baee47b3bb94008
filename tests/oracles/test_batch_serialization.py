"""Batch serialization: the order of its loops, its buffers and its streams."""

from fractions import Fraction
from math import ceil

import numpy as np
import pytest

from ipusim.pipeline.check import violations
from ipusim.pipeline.grid import format_grid
from ipusim.pipeline.holders import Holder
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.runs.execute import execute
from ipusim.schedules.registry import find
from ipusim.timeline.kinds import SpanKind
from tests.plans import order_violations, parse_grid, time_steps_with_work

TIMED = """
system: {name: m2000}
pipeline:
  gradient_accumulation_count: 2
  batch_serialization_iterations: 3
  stages:
    - {name: a, forward: 100, backward: 200, output_bytes: 10 kB, stash_bytes: 40 kB, parameter_bytes: 1 kB}
    - {name: b, forward: 110, backward: 210, output_bytes: 20 kB, gradient_bytes: 10 kB, stash_bytes: 50 kB}
    - {name: c, forward: 120, backward: 220, gradient_bytes: 20 kB, stash_bytes: 60 kB}
infeed: {element_bytes: 5 kB}
"""
REMOTE = "system.enable_remote_buffers=true", "system.streaming_memory={bandwidth: 20 GB/s, ipu_bandwidth: 16 GB/s}"
CLOCK = 1_330_000_000


def test_every_stage_runs_its_micro_batches_in_a_row():
    plan = plan_of(find("sequential"), PlanShape(mapping=(0, 0, 0), micro_batches=6, serialization=3))
    words = [str(op) for *_, op in sorted(plan.ops())]
    loop = "F0.{0} F0.{1} F0.{2} F1.{0} F1.{1} F1.{2} F2.{0} B2.{0} F2.{1} B2.{1} F2.{2} B2.{2} "
    loop += "B1.{0} B1.{1} B1.{2} B0.{0} B0.{1} B0.{2}"
    assert words == [*loop.format(0, 1, 2).split(), *loop.format(3, 4, 5).split()]
    assert time_steps_with_work(plan) == plan.emitted == len(words)
    assert plan.fifo_depths == (3, 3, 0)
    assert [*violations(plan), *order_violations(plan)] == []
    assert parse_grid(format_grid(plan)) == plan


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        ((), (3 * (40 + 50), 3 * (10 + 10 + 20 + 20), 0, 10, 20, 0, 0, 10, 20)),
        (REMOTE, (0, 10 + 10 + 20 + 20, 3 * (40 + 50 + 60) + 1, 40 + 10, 50 + 20, 0, 40 + 1, 50 + 10, 20)),
    ],
    ids=["on the IPU", "in Streaming Memory"],
)
def test_buffers_have_an_element_for_each_turn(load, changes, held):
    """Of what stages keep and what they send, in kB; Streaming Memory has the accumulator of the first stage too.

    A pass of a stage has what it makes, and a single element of what comes from Streaming Memory for it.
    """
    found = execute(load(TIMED, *changes)).memory.footprint
    resident = dict(found.ipus[0].resident)
    passes = [getattr(stage, f"{way}_bytes") for way in ("forward", "backward") for stage in found.stages]
    sizes = resident[Holder.FIFOS], resident[Holder.COPIES], found.ipus[0].remote_bytes, *passes
    assert sizes == tuple(1000 * size for size in held)


def test_activations_come_and_go_with_every_pass(load):
    timeline = execute(load(TIMED, *REMOTE, "pipeline.offload_gradient_accumulation_buffers=false")).timeline
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
    off = "pipeline.offload_activations=false", "pipeline.offload_gradient_accumulation_buffers=false"
    for changes, expected in ((REMOTE, True), ((*REMOTE, *off), False), ((), False)):
        offload = load(TIMED, *changes).program.offload
        assert (offload.activations, offload.gradient_accumulation_buffers) == (expected, expected)
