"""Replicas of a pipeline: what they learn, what their sum costs, and when they wait for each other."""

from fractions import Fraction
from math import ceil

import numpy as np
import pytest

from ipusim.app.run_folder.report import losses_csv
from ipusim.base.errors import DeadlockError, DeviceError, ProgramError
from ipusim.hardware.build import replication_factor, shards_of
from ipusim.hardware.orders import physical_ipus
from ipusim.machine.executor import NullExecutor
from ipusim.machine.host import HostStream
from ipusim.runs.assemble.plans import plan_of
from ipusim.runs.execute import execute
from ipusim.schedules.registry import find
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.timeline import ALL_IPUS, NONE, Timeline
from tests.machine_costs import fixed_cycles, sync_cycles
from tests.oracles.test_sharding import LAYERS
from tests.plans import price_and_run

OPTIMIZER = "optimizer={type: momentum, learning_rate: 0.05, momentum: 0.9}"
PLAIN = "system={name: pod16, auto_select_ipus: 8}", OPTIMIZER, "evaluate=null", "steps=2"


@pytest.fixture
def load(load):
    return lambda *overrides: load(LAYERS, *PLAIN, *overrides)


def test_the_sum_takes_its_closed_form(load):
    """Two replicas of two IPUs: each IPU and its like share a rail, and exchange halves twice."""
    experiment = load("system.auto_select_ipus=4")
    result = execute(experiment)
    timeline, info = result.timeline, result.timeline.info
    link_bytes_per_s = Fraction(128 * 2**30 * 85, 800)
    stages = ((6 * 9 + 9), (9 * 7 + 7 + 7 * 3 + 3))
    elements = max(stages)
    hop = ceil(15 * info.clock_hz / Fraction(10**9))
    half = 8 * ceil(elements / 2)
    one_round = hop + ceil(half * info.clock_hz / (2 * link_bytes_per_s))
    sync, overhead = sync_cycles(4, info.clock_hz), fixed_cycles(4, info.clock_hz)
    rows = timeline.rows(SpanKind.ALL_REDUCE)
    assert len(rows) == experiment.executions
    assert set((timeline.end - timeline.start)[rows].tolist()) == {2 * (sync + overhead + one_round)}
    assert set(timeline.bytes[rows].tolist()) == {8 * sum(stages)}
    told = result.summary.to_dict()["gradient_sum"]
    assert told["cycles"] == 2 * (sync + overhead + one_round)
    assert (told["rounds"], told["bytes"]) == (2, 8 * sum(stages))


def rows_of(timeline: Timeline, replica: int, *kinds: SpanKind) -> list[tuple[int, ...]]:
    rows = np.flatnonzero((timeline.replica == replica) & np.isin(timeline.kind, kinds))
    shift = replica * timeline.info.shards
    columns = (timeline.start, timeline.end, timeline.kind, timeline.ipu - shift, timeline.stage, timeline.micro_batch)
    return sorted(zip(*(column[rows].tolist() for column in columns), strict=True))


PASSES = (SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.INFEED, SpanKind.OUTFEED, SpanKind.WEIGHT_UPDATE)


def test_replicas_run_side_by_side(load):
    timeline = execute(load("numerics=off")).timeline
    first = rows_of(timeline, 0, *PASSES)
    assert first
    assert all(rows_of(timeline, replica, *PASSES) == first for replica in range(4))
    assert timeline.info.stages_of_ipu == {ipu: (ipu % 2,) for ipu in range(8)}


def test_replicas_that_sync_by_themselves_keep_the_time_of_one_alone(load):
    alone = execute(load("numerics=off", "system.auto_select_ipus=2")).timeline
    timeline = execute(load("numerics=off", "system.sync_replicas_independently=true")).timeline
    together = execute(load("numerics=off")).timeline
    kinds = (SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.INFEED)
    end = int(alone.start[alone.rows(SpanKind.WEIGHT_UPDATE)].min())

    def before(found):
        return [row for row in found if row[1] <= end]

    for replica in range(4):
        assert before(rows_of(timeline, replica, *kinds)) == before(rows_of(alone, 0, *kinds))
    syncs = timeline.rows(SpanKind.SYNC)
    assert set(timeline.replica[syncs].tolist()) == {0, 1, 2, 3}
    assert set(together.replica[together.rows(SpanKind.SYNC)].tolist()) == {NONE}
    assert timeline.makespan_cycles < together.makespan_cycles


def test_summary_counts_all_replicas(load):
    result = execute(load())
    summary = result.summary
    assert (summary.replicas, summary.throughput.effective_batch_size) == (4, 3 * 4 * 4)
    assert summary.throughput.samples == 3 * 4 * 4 * 4
    assert [use.stages for use in summary.run_use] == [(0,), (1,)] * 4
    assert summary.idle_ipus == ()
    reduced = result.timeline.rows(SpanKind.ALL_REDUCE)
    cycles = int((result.timeline.end - result.timeline.start)[reduced].sum())
    assert {use.cycles["all_reduce"] for use in summary.run_use} == {cycles}
    first = int((result.timeline.end - result.timeline.start)[reduced[0]])
    assert summary.weight_update_cycles > first
    header, row, *_ = losses_csv(result.learning).decode().splitlines()
    assert header == "step,execution,micro_batch,replica,loss"
    assert row.startswith("0,0,0,0,")


def test_shards_are_a_power_of_two_and_divide_the_device():
    assert [shards_of(mapping) for mapping in ((0,), (0, 1), (0, 1, 2), (3, 0), (4,))] == [1, 2, 4, 4, 8]
    assert replication_factor(16, 4) == 4
    with pytest.raises(DeviceError) as caught:
        replication_factor(4, 8)
    assert str(caught.value) == (
        "Trying to compile a graph for an IPU device with 4 IPUs and 8 shards. "
        "The number of shards needs to divide the number of IPUs."
    )
    assert physical_ipus(range(8), "HOOF", 4) == (0, 2, 3, 1, 4, 6, 7, 5)


def test_an_executor_for_one_replica_does_not_do_for_several(load):
    experiment = load()
    plan = plan_of(find("grouped"), experiment.program.shape)
    with pytest.raises(ProgramError, match="expected an executor for each of 4 replicas of pod16, got 1"):
        price_and_run(plan, experiment.program, experiment.system, executor=NullExecutor())


def test_what_all_do_lies_on_each_ipu_of_its_replica(load):
    timeline = execute(load("numerics=off", "system.sync_replicas_independently=true")).timeline
    syncs = timeline.rows(SpanKind.SYNC)
    source, ipu = timeline.per_ipu(syncs)
    assert (timeline.ipu[syncs] == ALL_IPUS).all()
    assert len(source) == 2 * len(syncs)
    assert (ipu // 2 == timeline.replica[source]).all()


def test_a_replica_that_never_comes_is_named(load, monkeypatch):
    """The host stops for the second replica; the first waits for it before its weight update."""
    started = []
    works = HostStream._host_process

    def host(stream):
        started.append(stream)
        if len(started) == 3:  # infeed and outfeed of replica 0, infeed of replica 1
            return iter([stream._clock.timeout(1)])
        return works(stream)

    def stops(stream):
        yield from host(stream)

    monkeypatch.setattr(HostStream, "_host_process", stops)
    with pytest.raises(DeadlockError) as caught:
        execute(load("numerics=off", "system.auto_select_ipus=4", "system.sync_replicas_independently=true"))
    assert str(caught.value) == (
        "no event is left, but the pipeline is not done:\n  IPU 0 waits for the sum over replicas, which waits for "
        "IPU 2, 3\n  IPU 1 waits for the sum over replicas, which waits for IPU 2, 3\n  IPU 2 waits for the next "
        "element of the infeed\n  IPU 3 waits for the inter-IPU copy, which waits for IPU 2"
    )
