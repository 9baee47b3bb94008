"""A Timeline with blocks says to the bit what it says with every copy written out, whatever is run."""

import io
import json
import random
from functools import lru_cache

import numpy as np
import pytest

from ipusim.analysis.critical_path import critical_path_of
from ipusim.analysis.memory import memory_curves, moment
from ipusim.analysis.run_times import run_times_of
from ipusim.app.explain.explanation import explain
from ipusim.app.regression.listed import fingerprint
from ipusim.app.regression.pin import spans
from ipusim.app.run_folder.columns import span_columns
from ipusim.app.run_folder.export import csv_bytes
from ipusim.app.run_folder.memory_file import memory_file, read_memory
from ipusim.runs.execute import execute, sum_up
from ipusim.schedules import registry
from ipusim.timeline.timeline import Timeline
from tests.effort import sampled, seeds, slowest
from tests.scenarios import job_from
from tests.schedules import goes_around, is_a_v, is_mirrored, keys_of, mapping_of, options_of, ragged
from tests.timelines import folded

SIZES = (0, 256, 90_000)
SEEDS = seeds(24)


def drawn(seed):
    """A scenario of stages of given cycles, equal or not, with or without anything else that takes time."""
    rng = random.Random(seed)
    schedule = rng.choice(sorted(registry.names()))
    equal, count = rng.random() < 0.5, rng.randint(2, 4)
    count += is_mirrored(schedule) and count % 2  # two copies of each stage take an even number of IPUs
    stages = [
        {
            "name": f"s{number}",
            "forward": 100 if equal else rng.randint(60, 140),
            "backward": 200 if equal else rng.randint(120, 280),
            "update": rng.randint(1, 90),
            "output_bytes": rng.choice(SIZES),
            **({"gradient_bytes": rng.choice(SIZES)} if number else {}),
        }
        for number in range(count)
    ]
    pipeline = {
        "schedule": schedule,
        "gradient_accumulation_count": rng.choice((12, 24, 48)),
        "repeat_count": rng.choice((1, 1, 2, 7)),
        "stages": stages,
    }
    if count == 4 and pipeline["gradient_accumulation_count"] == 12:
        pipeline["gradient_accumulation_count"] = 24  # Grouped takes multiples of eight
    if rng.random() < 0.5:
        pipeline["sync"] = rng.choice(("lock_step", "point_to_point"))
    if rng.random() < 0.5:
        pipeline["overlapped"] = rng.choice(("max", 170))
    if rng.random() < 0.5:
        pipeline["segments"] = rng.choice((1, 3))
    asked = pipeline["gradient_accumulation_count"] = ragged(rng, schedule, pipeline["gradient_accumulation_count"], 2)
    pipeline |= keys_of(options_of(rng, schedule, asked, 2))
    shards = 2 if count == 2 else 4
    if goes_around(schedule) or is_a_v(schedule):
        pipeline["stages"] = [dict(stage, name=f"s{number}") for number, stage in enumerate((stages + stages)[:4])]
        pipeline["device_mapping"] = list(mapping_of(schedule, 4))
        shards = 2
    scenario = {
        "system": {"name": rng.choice(("free", "bow_pod16")), "auto_select_ipus": shards * rng.choice((1, 1, 2))},
        "pipeline": pipeline,
        "steps": rng.choice((1, 1, 2)),
    }
    moves = random.Random(f"moves {seed}")
    if moves.random() < 0.3:
        to, keep = moves.choice(("streaming_memory", "partner")), moves.choice((0, 1, 2))
        pipeline["offload_activations"] = {"to": to, "keep": keep, "buffers": moves.choice((1, 1, 2))}
        scenario["system"]["enable_remote_buffers"] = scenario["system"]["name"] != "free"
        for number, stage in enumerate(pipeline["stages"]):
            stage["stash_bytes"] = 700 * (1 + number) ** moves.choice((0, 3))
    if rng.random() < 0.4:
        scenario["infeed"] = {"element_bytes": rng.choice((100, 9_000, 200_000))}
    return scenario


def told(timeline, job):
    """Return everything that is told of a run, as text."""
    whole = range(timeline.info.executions)
    return json.dumps(
        [
            sum_up(job, timeline, None).summary.to_dict(),
            *(run_times_of(timeline, execution).times_dict() for execution in whole),
            *(explain(timeline, "-", execution).data() for execution in (None, *whole)),
        ]
    )


@lru_cache
def ran(seed):
    """The Job of a drawn scenario, its Timeline, and the same with blocks."""
    job = job_from(drawn(seed))
    whole = execute(job, jump=False).timeline
    return job, whole, folded(whole)


@sampled(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_are_told_of_as_all_their_copies(seed):
    job, whole, short = ran(seed)
    assert short.expanded() == whole
    assert short.with_block_ends_expanded().expanded() == whole
    assert int(short.weights.sum()) == short.spans_in_all == len(whole)
    assert short.makespan_cycles == whole.makespan_cycles
    assert told(short, job) == told(whole, job)


@slowest
def test_most_drawn_runs_repeat_themselves():
    found = [ran(seed)[-1] for seed in range(24)]
    assert sum(bool(timeline.repeats) for timeline in found) >= len(found) / 2
    assert any(any(block.executions for block in timeline.repeats) for timeline in found)


@pytest.mark.parametrize("seed", SEEDS)
def test_windows_hold_what_the_whole_run_has_there(seed):
    _, whole, short = ran(seed)
    rng = random.Random(seed)
    for _ in range(8):
        begin = rng.randint(0, whole.makespan_cycles)
        end = begin + rng.randint(1, whole.makespan_cycles // 3)
        assert short.spans(begin, end) == whole.spans(begin, end)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_path_leads_through_the_same_spans(seed):
    _, whole, short = ran(seed)
    path, every = critical_path_of(short), critical_path_of(whole)
    assert path.spans.sum() == len(every.rows)
    assert set(short.start[path.rows].tolist()) <= set(whole.start[every.rows].tolist())


@pytest.mark.parametrize("seed", SEEDS)
def test_memory_over_time_has_the_same_entries(seed, tmp_path):
    job, whole, short = ran(seed)
    footprint = job.memory.footprint
    curves = memory_curves(short, footprint)
    for some, every in zip(curves, memory_curves(whole, footprint), strict=True):
        assert some.entries_in_all == len(every.time)
        for name in ("time", "live_bytes", "fifo_bytes"):
            np.testing.assert_array_equal(getattr(some.expanded(), name), getattr(every, name))
    (tmp_path / "memory.npz").write_bytes(memory_file(curves))
    found = read_memory(tmp_path, len(whole.info.ipus))
    assert [curve.repeats for curve in found] == [curve.repeats for curve in curves]
    assert memory_file(found) == memory_file(curves)
    # Inside of blocks peaks may lie that are none in any row.
    for peak in job.memory.peaks:
        assert moment(short, peak) == moment(whole, peak)


@pytest.mark.parametrize("seed", SEEDS)
def test_tables_files_and_pins_are_of_all_spans(seed):
    _, whole, short = ran(seed)
    file = io.BytesIO()
    short.save(file)
    file.seek(0)
    assert Timeline.load(file) == short
    assert csv_bytes(span_columns(short)) == csv_bytes(span_columns(whole))
    begin, end = whole.makespan_cycles // 3, whole.makespan_cycles // 2
    assert csv_bytes(span_columns(short, begin, end)) == csv_bytes(span_columns(whole, begin, end))
    assert fingerprint(spans(short), 60) == fingerprint(spans(whole), 60)
