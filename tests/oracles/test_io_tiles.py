"""I/O tiles: what they take from the computation, what they hide, and that nothing is learnt otherwise."""

from dataclasses import replace

import pytest

from ipusim.hardware.generations import GC200
from ipusim.pricing.passes import pass_cycles
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind
from tests.oracles.test_offload import LAYERS

#: 4,000 and 2,000 cycles for an element at 1 GHz; the host needs one cycle for each. Tensors between stages are empty.
TIMED = """
system:
  name: m2000
  clock: 1 GHz
  io_tiles: {num_io_tiles: 64, place_ops_on_io_tiles: true}
  host: {infeed: 1 GB/s, host_fill: 4000 GB/s, outfeed: 1 GB/s, host_drain: 2000 GB/s}
pipeline:
  gradient_accumulation_count: 8
  stages:
    - {name: a, forward: 1000, backward: 2000}
    - {name: b, forward: 1500, backward: 2500}
infeed: {element_bytes: 4000 B}
outfeed: {element_bytes: 2000 B}
"""
#: Of a size at which fewer tiles take longer.
LARGE = (
    *("system={name: m2000, io_tiles: {num_io_tiles: 72, place_ops_on_io_tiles: true}}", "data.shape=[300]"),
    *("model.layers.a.units=400", "model.layers.b.units=300"),
    *("pipeline.micro_batch_size=8", "pipeline.gradient_accumulation_count=8", "optimizer.type=sgd"),
)
OFF = "system.io_tiles.place_ops_on_io_tiles=false", "system.io_tiles.num_io_tiles=0"


def test_a_time_step_lasts_as_long_as_the_passes_or_the_host_copies_beside_them(load):
    experiment = load(TIMED)
    timeline = execute(experiment).timeline
    now, begins = 1, []  # the host needs a cycle for the first element, and is ahead from then on
    for step in range(14):
        begins.append(now)
        a = 1000 * (1 <= step <= 8) + 2000 * (4 <= step <= 11)
        b = 1500 * (2 <= step <= 9) + 2500 * (3 <= step <= 10)
        infeed, outfeed = 4000 * (step <= 7), 2000 * (3 <= step <= 10)
        now += max(a, b, infeed, outfeed) + experiment.system.sync_cycles
    assert timeline.makespan_cycles == now
    for kind, first, length in ((SpanKind.OVERLAPPED_INFEED, 0, 4000), (SpanKind.OVERLAPPED_OUTFEED, 3, 2000)):
        rows = timeline.rows(kind)
        assert timeline.start[rows].tolist() == begins[first : first + 8]
        assert (timeline.end[rows] - timeline.start[rows]).tolist() == [length] * 8
        assert timeline.time_step[rows].tolist() == list(range(first, first + 8))
    assert not len(timeline.rows(SpanKind.INFEED, SpanKind.OUTFEED, SpanKind.HOST_WAIT))


def test_copies_on_one_ipu_follow_each_other(load):
    timeline = execute(load(TIMED, "pipeline.device_mapping=[0, 0]")).timeline
    out, back = timeline.rows(SpanKind.OVERLAPPED_OUTFEED), timeline.rows(SpanKind.OVERLAPPED_INFEED)
    both = range(3, 8)
    ends = dict(zip(timeline.time_step[out].tolist(), timeline.end[out].tolist(), strict=True))
    starts = dict(zip(timeline.time_step[back].tolist(), timeline.start[back].tolist(), strict=True))
    assert [ends[step] for step in both] == [starts[step] for step in both]


def test_it_is_faster_than_feeds_between_the_passes(load):
    hidden, shown = (execute(load(TIMED, *changes)) for changes in ((), OFF))
    assert hidden.summary.makespan_cycles < shown.summary.makespan_cycles
    use = hidden.summary.pipeline_use
    assert [each.cycles["overlapped_io"] for each in use] == [32_000, 16_000]
    assert [each.cycles["host_transfer"] for each in use] == [0, 0]
    assert [each.cycles["host_transfer"] for each in shown.summary.pipeline_use] == [32_000, 16_000]


def test_fewer_tiles_compute_and_hold_memory(load):
    """1472 - 72 of them: a pass is priced on an IPU that has no more."""
    result, plain = (execute(load(LAYERS, *LARGE, *changes)) for changes in ((), OFF))
    lengths = [
        [set((timeline.end[rows] - timeline.start[rows]).tolist()) for rows in of_stages]
        for timeline in (result.timeline, plain.timeline)
        for of_stages in [[(timeline.kind == SpanKind.FORWARD) & (timeline.stage == stage) for stage in range(2)]]
    ]
    for found, ipu in zip(lengths, (replace(GC200, tiles=1400), GC200), strict=True):
        assert found == [{pass_cycles(stage.forward, ipu)} for stage in result.job.program.stages]
    assert lengths[0] != lengths[1]
    assert result.memory.sram_bytes == 1400 * 624 * 1024
    assert plain.memory.sram_bytes == 1472 * 624 * 1024


def test_tiles_that_are_set_aside_alone_overlap_nothing(load):
    alone = execute(load(LAYERS, *LARGE, "system.io_tiles.place_ops_on_io_tiles=false"))
    assert not alone.job.plan.shape.overlapped_io
    assert alone.job.system.ipu.tiles == 1400


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ("infeed.element_bytes=40 MB", "Computation too large to fit on IO tiles, with 40000000 bytes of feeds in "),
        # 64 tiles of 624 KiB hold 40,894,464 bytes
        ("system.io_tiles.available_memory_proportion=0.00009", "Computation too large to fit on IO tiles, with 4000 "),
        ("use_synthetic_data=true", "I/O tiles have no effect, because the feeds move no bytes"),
    ],
)
def test_feeds_that_are_not_placed_leave_the_tiles_to_the_computation(load, change, note):
    text = TIMED
    if "synthetic" in change:
        text = "\n".join(line for line in TIMED.splitlines() if not line.startswith(("infeed", "outfeed")))
    overlapped, plain = (execute(load(text, change, *changes)) for changes in ((), OFF))
    assert overlapped.job.notes[0].startswith(note)
    assert overlapped.timeline == plain.timeline
    assert overlapped.job.system == plain.job.system


def test_feeds_are_placed_up_to_the_proportion(load):
    room = 64 * 624 * 1024 * 9 // 10
    for size, placed in ((room, True), (room + 1, False)):
        experiment = load(TIMED, f"infeed.element_bytes={size} B")
        assert experiment.program.shape.overlapped_io is placed
