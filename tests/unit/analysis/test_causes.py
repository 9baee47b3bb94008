"""Idle causes, the critical path and the verdict of a pipeline whose every cycle can be counted by hand."""

from dataclasses import replace

import numpy as np
import pytest

from ipusim.analysis.causes import idle_causes, ipu_time
from ipusim.analysis.critical_path import critical_path_of, path_parts
from ipusim.analysis.idle_spans import CAUSES
from ipusim.analysis.waterfall import Waterfall
from ipusim.app.scenario.load import load_job
from ipusim.base.errors import TimelineError
from ipusim.runs.session import Session
from ipusim.runs.waterfall import waterfall_of
from ipusim.timeline.kind_row import Part
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.time_parts import Idle, TimePart
from ipusim.timeline.timeline import Timeline
from tests.scenarios import SCENARIOS

FOUR = SCENARIOS / "schedules_four_ipus.yaml"


def run(*overrides):
    job = load_job(FOUR, overrides)
    return Session(job).run(job.executions)


def cycles(found, ipu):
    return {cause: int(of) for cause, of in zip(CAUSES, found.cycles[ipu], strict=True) if of}


def test_every_kind_of_span_on_an_ipu_computes_or_waits_or_is_a_cause():
    for kind in SpanKind:
        use = kind.row.use
        if use is not None:
            assert use.is_arithmetic != (use.idle is not None) or kind.row.part is Part.WAIT


def test_grouped_in_lock_step():
    # Forward passes take 1,000 cycles, backward passes 2,000; IPU 3 begins after three time-steps of the former and is
    # done three of the latter before the end. While both are under way in a time-step, who runs a forward pass waits.
    found = idle_causes(run())
    assert found.window_cycles == 33_500
    for ipu in range(4):
        assert cycles(found, ipu) == {Idle.PASSES: 9_000}
        assert found.busy[ipu] == 8 * 3_000 + 500
    # With balanced stages it would wait for 9,000 cycles, so that nothing of that is imbalance; else the rest is.
    for fill, imbalance in ((9_000, 0), (10_000, 0), (2_000, 7_000)):
        cycles_of = {TimePart.USEFUL: 24_000, TimePart.FILL_AND_DRAIN: fill, TimePart.IMBALANCE: imbalance}
        waterfall = Waterfall({**dict.fromkeys(TimePart, 0), **cycles_of, TimePart.UPDATE: 500}, 1)
        parts = {look.name: column.tolist() for look, column in ipu_time(found, waterfall) if column.any()}
        waits = {"fill and drain": [9_000 - imbalance] * 4, "imbalance of stages": [imbalance] * 4}
        rest = {"computes": [24_000] * 4, "collectives and weight update": [500] * 4}
        assert parts == rest | {name: column for name, column in waits.items() if any(column)}
    assert [look.name for look, column in ipu_time(found, None) if column.any()][1] == "passes of other IPUs"


def parts_of(*overrides):
    """Return the cycles of each IPU by part, and the waterfall's, of a run of the four equal stages."""
    job = load_job(FOUR, overrides)
    timeline = Session(job).run(job.executions)
    waterfall = waterfall_of(job, timeline)
    by_ipu = {look.name: column.tolist() for look, column in ipu_time(idle_causes(timeline), waterfall)}
    return by_ipu, {part.words: cycles for part, cycles in waterfall.cycles.items()}


def test_ipus_wait_for_copies_that_make_passes_of_others_late_and_not_for_an_imbalance_of_equal_stages():
    # 1F1B's sends take none of an IPU's own time, and add up along the pipeline: each IPU waits for all of that.
    sends = [f"pipeline.stages.{stage}.{way}_bytes=256 KiB" for stage in range(4) for way in ("output", "gradient")]
    by_ipu, whole = parts_of("system.name=m2000", "pipeline.schedule=1f1b", *sends)
    assert (by_ipu["imbalance of stages"], by_ipu["passes of other IPUs"]) == ([0] * 4, [0] * 4)
    assert by_ipu["copies and sync"][0] == whole["copies and sync"] > 0
    assert by_ipu["fill and drain"] == [whole["fill and drain"]] * 4


def test_ipus_wait_for_the_disturbance_of_another_and_not_for_an_imbalance_of_equal_stages():
    # 44,250 cycles: IPU 2 takes 1.5 times as long for its 24,000, and for the update of 500, which ends 250 later.
    by_ipu, whole = parts_of("disturbances=[{ipu: 2, slower: 1.5}]")
    assert whole["disturbances"] == 10_750
    assert by_ipu["computes"] == [24_000, 24_000, 36_000, 24_000]
    assert by_ipu["imbalance of stages"] == [0] * 4
    assert by_ipu["fill and drain"] == [9_000, 9_000, 7_500, 9_000]
    assert by_ipu["disturbances"] == [10_500, 10_500, 0, 10_500]


def test_of_unequal_stages_ipus_wait_for_the_slowest():
    # Eight micro-batches of 4,500 cycles on the slowest IPU, whose ramps are three time-steps of 3,000: 8 x 1,500 more.
    slow = ["pipeline.stages.2.forward=1500", "pipeline.stages.2.backward=3000", "pipeline.schedule=1f1b"]
    by_ipu, whole = parts_of(*slow)
    assert (whole["fill and drain"], whole["imbalance of stages"]) == (10_125, 6_375)
    assert by_ipu["fill and drain"] == [10_125, 10_125, 7_000, 10_125]
    assert by_ipu["imbalance of stages"] == [9_375, 8_875, 0, 8_875]  # all but IPU 0 wait for its update too


IO_TILES = """
system:
  name: m2000
  clock: 1 GHz
  overhead: 0 ns
  io_tiles: {num_io_tiles: 64, place_ops_on_io_tiles: true}
  host: {infeed: 1 GB/s, host_fill: 100 TB/s, outfeed: 1 GB/s, host_drain: 100 TB/s}
pipeline:
  gradient_accumulation_count: 4
  repeat_count: 2
  accumulate_outfeed: true
  stages: [{name: a, forward: 1000}, {name: b, forward: 1000}]
infeed: {element_bytes: 6000 B}
outfeed: {element_bytes: 500 B}
"""


def test_who_waits_for_io_tiles_of_another_ipu_waits_for_the_host(load):
    """Each element takes 6,000 cycles to come, beside 1,000 of a pass; a sum of results takes 500 to leave."""
    job = load(IO_TILES)
    timeline = Session(job).run(job.executions)
    found = idle_causes(timeline)
    assert (found.busy == 2 * 4 * 1_000).all()
    assert (found.busy + found.cycles.sum(axis=1) == found.window_cycles).all()
    for ipu in range(2):
        assert set(cycles(found, ipu)) <= {Idle.HOST, Idle.COPIES, Idle.PASSES}
        assert found.cycles[ipu][CAUSES.index(Idle.HOST)] >= 2 * (4 * 6_000 + 500 - 4 * 1_000)
    (sent, _) = timeline.rows(SpanKind.OVERLAPPED_OUTFEED)
    (row,) = np.flatnonzero((timeline.ipu == 1) & (timeline.start == timeline.start[sent]) & (timeline.kind == 10))
    assert timeline.end[row] == timeline.end[sent]  # its other tiles wait meanwhile


@pytest.mark.parametrize("schedule", ["grouped", "gpipe"])
def test_a_host_that_updates_in_no_time_passes_on_what_ended_then(schedule):
    # The next execution begins with what the host did, which took no time: the others waited for the last IPU.
    updated = ["pipeline.variables_on_host=true", "pipeline.stages.0.parameter_bytes=4 KiB"]
    found = idle_causes(run(f"pipeline.schedule={schedule}", "pipeline.repeat_count=2", *updated))
    assert found.window_cycles == 2 * 33_000
    for ipu in range(4):
        assert cycles(found, ipu) == {Idle.PASSES: 2 * 9_000}


def test_the_critical_path_of_grouped_follows_the_last_ipu():
    timeline = run()
    parts = {
        (part.kind, part.stage): (part.spans, part.cycles) for part in path_parts(timeline, critical_path_of(timeline))
    }
    assert sum(of for _, of in parts.values()) == 33_500
    assert parts[SpanKind.BACKWARD, 3] == (8, 16_000)
    assert all(parts[SpanKind.BACKWARD, stage] == (1, 2_000) for stage in range(3))
    assert parts[SpanKind.WEIGHT_UPDATE, -1] == (1, 500)


def test_a_timeline_whose_causes_do_not_lead_to_its_start_is_refused():
    timeline = run()
    table = np.stack([getattr(timeline, name) for name in timeline.__annotations__ if name != "info"], axis=1)
    broken = table.copy()
    first, _, _, row = critical_path_of(timeline).rows[:4]
    broken[row, 10] = -1
    with pytest.raises(TimelineError, match=f"expected a cause of span {row}, which begins in cycle"):
        critical_path_of(Timeline(timeline.info, broken))
    broken[row, 10] = first
    with pytest.raises(TimelineError, match=f"expected a cause that ends when span {row} begins, got span {first}"):
        critical_path_of(Timeline(timeline.info, broken))
    with pytest.raises(TimelineError, match="expected a Timeline with spans on IPUs, got none"):
        critical_path_of(Timeline(timeline.info, table[:0]))
    waiting = table.copy()
    waiting[waiting[:, 1] == timeline.makespan_cycles, 2] = SpanKind.SYNC_WAIT
    with pytest.raises(
        TimelineError, match="expected a span other than a wait at the end of the run's last cycle 33500"
    ):
        critical_path_of(Timeline(timeline.info, waiting))


def made_of(ipus, replicas, *spans):
    """Return a Timeline of spans whose causes nobody has recorded, each of start, end, kind, IPU and stage."""
    shards = range(ipus // replicas)
    info = replace(run().info, ipus=tuple(range(ipus)), replicas=replicas, stages=(*"abc",)[: len(shards)])
    info = replace(info, mapping=tuple(shards))
    rows = [(*span, -1, 0, 0, -1, 0, -1, span[3] // len(shards)) for span in sorted(spans)]
    return Timeline(info, np.array(rows))


FORWARD, EXCHANGE, WAIT = SpanKind.FORWARD, SpanKind.EXCHANGE, SpanKind.SYNC_WAIT


def waited(timeline, ipu, until):
    """Return each wait of an IPU that ends by a cycle, with its cause and the stage that it waits for."""
    found = idle_causes(timeline)
    own = (found.ipu == ipu) & (found.end <= until)
    columns = (found.start[own], found.end[own], found.cause[own], found.stage[own])
    return [
        (start, end, CAUSES[cause], stage)
        for start, end, cause, stage in zip(*(of.tolist() for of in columns), strict=True)
    ]


def test_a_wait_without_a_recorded_cause_is_for_what_ended_with_it_in_its_replica():
    ends = [(100, 200, FORWARD, ipu, ipu % 2) for ipu in range(4)]
    timeline = made_of(4, 2, (0, 100, WAIT, 0, -1), (0, 100, FORWARD, 1, 1), (0, 100, EXCHANGE, 3, -1), *ends)
    assert waited(timeline, 0, 100) == [(0, 100, Idle.PASSES, 1)]
    # Nothing of its own replica ends then: it is what another one's IPU did.
    timeline = made_of(4, 2, (0, 100, WAIT, 0, -1), (0, 90, FORWARD, 1, 1), (0, 100, EXCHANGE, 3, -1), *ends)
    assert waited(timeline, 0, 100) == [(0, 100, Idle.COPIES, -1)]


def test_of_several_that_end_with_a_wait_the_last_of_its_replica_is_its_cause():
    ends = [(100, 200, FORWARD, ipu, ipu) for ipu in range(3)]
    timeline = made_of(
        3,
        1,
        (0, 100, WAIT, 0, -1),
        (0, 100, EXCHANGE, 1, -1),
        (0, 20, EXCHANGE, 2, -1),
        (20, 100, FORWARD, 2, 2),
        *ends,
    )
    assert waited(timeline, 0, 100) == [(0, 20, Idle.COPIES, -1), (20, 100, Idle.PASSES, 2)]


def test_no_wait_is_for_what_took_no_time_another_wait_or_its_own_ipu():
    ends = [(100, 200, FORWARD, ipu, ipu) for ipu in range(2)]
    before = ((0, 50, EXCHANGE, 0, -1), (50, 100, WAIT, 0, -1), (0, 60, EXCHANGE, 1, -1), (60, 100, WAIT, 1, -1))
    timeline = made_of(2, 1, *before, (100, 100, EXCHANGE, 1, -1), *ends)
    assert waited(timeline, 0, 100) == [(0, 50, Idle.COPIES, -1), (50, 100, Idle.PASSES, -1)]
