"""What a change would give, against runs of scenarios in which it has been made."""

import re
from fractions import Fraction

import numpy as np
import pytest

from ipusim.analysis.throughput import throughput_of
from ipusim.api import Request, assemble
from ipusim.app.explain.changes import changes
from ipusim.app.explain.explanation import explain
from ipusim.app.explain.what_if import requested_changes, what_if
from ipusim.app.explain.what_words import help_words, what_if_tables
from ipusim.app.scenario.load import load_job
from ipusim.base.errors import OptionError
from ipusim.hardware.rates import DEFAULT_RATES
from ipusim.machine.simulate import simulate
from ipusim.pipeline.plan import Sync
from ipusim.runs.session import Session
from ipusim.runs.waterfall import price_without
from ipusim.timeline.kind_row import Track
from ipusim.timeline.kinds import SpanKind, kinds_with
from tests.effort import slowest
from tests.scenarios import SCENARIOS

FOUR = SCENARIOS / "schedules_four_ipus.yaml"
UNEVEN = ("pipeline.stages.stage1.forward=1600", "pipeline.stages.stage2.backward=2900")
LARGER = "pipeline.gradient_accumulation_count"
#: Without it nothing puts stages together on an IPU.
KNOWN_MEMORY = "pipeline.stages.stage0.stash_bytes=1 KiB"


def run_of(*overrides, scenario=FOUR):
    job = load_job(scenario, overrides)
    return job, Session(job).run(job.executions)


def seconds(*overrides, scenario=FOUR):
    """Return the seconds of each sample of a scenario."""
    _, timeline = run_of(*overrides, scenario=scenario)
    found = throughput_of(timeline)
    return Fraction(found.run_cycles, found.samples * timeline.info.clock_hz)


def by_words(*overrides, syncs=(), scenario=FOUR):
    job, timeline = run_of(*overrides, scenario=scenario)
    return {found.change.words: found for found in what_if(job, timeline, syncs)}


def test_counts_schedules_and_modes_give_what_scenarios_with_them_give():
    found = by_words(KNOWN_MEMORY, syncs=tuple(Sync))
    assert {each.before for each in found.values()} == {seconds()}
    for count in (16, 32, 64):
        assert found[f"{LARGER}={count}"].after == seconds(f"{LARGER}={count}")
    for schedule in ("interleaved", "sequential", "1f1b", "gpipe", "zero_bubble_h1"):
        for sync in Sync:
            expected = seconds(f"pipeline.schedule={schedule}", f"pipeline.sync={sync.value}")
            assert found[f"{schedule} in {sync.words}"].after == expected
    assert found["grouped in point-to-point"].after == seconds("pipeline.sync=point_to_point")
    assert "grouped in lock-step" not in found
    assert "the host twice as fast" not in found  # of the free system
    # On as many IPUs, with as many samples in a weight update.
    assert found["zbv in point-to-point, 2 replicas, count 4"].in_other_mode
    assert {each.in_other_mode for words, each in found.items() if "in lock-step" in words} == {False}
    same = "pipeline.sync=point_to_point", "system.auto_select_ipus=4", f"{LARGER}=4"
    assert found["zbv in point-to-point, 2 replicas, count 4"].after == seconds("pipeline.schedule=zbv", *same)
    assert "gpipe in point-to-point, 1 replica, count 8" in by_words(KNOWN_MEMORY, "pipeline.schedule=zbv", *same)
    assert all(each.gain == float(1 - each.after / each.before) for each in found.values() if each.after is not None)


def test_each_schedule_is_tried_in_the_mode_of_the_run_where_no_mode_is_asked_for():
    for mode, other in ((Sync.LOCK_STEP, "in point-to-point"), (Sync.POINT_TO_POINT, "in lock-step")):
        found = by_words(f"pipeline.sync={mode.value}")
        assert {f"1f1b in {mode.words}", f"interleaved in {mode.words}"} <= {*found}
        assert not any(other in words for words in found)
        assert not any(each.in_other_mode for each in found.values())


IDEALISED = (
    "Point-to-point is an idealised machine: IPUs meet only after weight updates, and each tensor is copied separately."
)


def test_what_helps_most_is_of_the_sync_mode_of_the_run_and_the_other_mode_is_apart():
    job, timeline = run_of(*UNEVEN)
    found = explain(timeline, job, syncs=tuple(Sync))
    best, causes, apart, hardware, *_ = help_words(found.what_ifs)
    assert causes == (
        "A larger count saves time mainly in fill and drain (now 24.3% of the time); balanced stages save time mainly "
        "in imbalance of stages (now 9.6% of the time)."
    )
    assert hardware == "Other hardware that saves time per sample: system.auto_select_ipus=8 50.0%."
    assert "point-to-point" not in best
    assert apart.startswith("In the other sync mode, not comparable with this run: ")
    assert apart.endswith(IDEALISED)
    assert "in lock-step" not in apart
    titles = {re.split("[,;]", table.title)[0]: table.rows for table in what_if_tables(found.what_ifs, ())}
    assert not any("point-to-point" in words for words, *_ in titles["Changes that help"])
    assert all("point-to-point" in words for words, *_ in titles["Results in the other sync mode"][:-1])
    requested, _ = requested_changes(job, timeline, ["pipeline.schedule=1f1b"])
    assert [*help_words(requested)] == [IDEALISED]
    assert [*help_words(requested_changes(job, timeline, ["pipeline.schedule=interleaved"])[0])] == []


@pytest.mark.parametrize("schedule", ["grouped", "1f1b", "gpipe"])
def test_stages_that_tie_become_faster_together(schedule):
    same = ("pipeline.stages.stage0.backward=2600", "pipeline.stages.stage2.backward=2600")
    found = by_words(f"pipeline.schedule={schedule}", *same)["stage0 and stage2 10% faster"]
    faster = [
        f"pipeline.stages.{stage}.{kind}={cycles}"
        for stage in ("stage0", "stage2")
        for kind, cycles in (("forward", 900), ("backward", 2340))
    ]
    assert found.after == seconds(f"pipeline.schedule={schedule}", *same, *faster)


@pytest.mark.parametrize(
    ("cycles", "mapping", "named"),
    [
        ((3, 4, 3), [0, 1, 0], ["stage0 and stage2 10% faster"]),  # stage1 is the slowest, on an IPU that waits
        ((2, 3, 2, 1), [0, 1, 1, 0], ["stage1 and stage2 10% faster"]),
        ((3, 6, 3), [0, 1, 0], []),
        ((2, 3), [0, 0], ["stage1 10% faster"]),
    ],
)
def test_the_stages_of_the_busiest_ipus_are_told_to_be_faster(cycles, mapping, named):
    stages = [{"name": f"stage{n}", "forward": 1000 * c, "backward": 2000 * c} for n, c in enumerate(cycles)]
    pipeline = {"schedule": "grouped", "gradient_accumulation_count": 24, "device_mapping": mapping, "stages": stages}
    job = assemble(Request.from_dict({"system": {"name": "free", "auto_select_ipus": 2}, "pipeline": pipeline}))
    assert [change.words for change in changes(job) if change.kind == "faster stages"] == named


@slowest
def test_recomputation_hardware_and_the_best_split_give_what_scenarios_with_them_give():
    scenario = SCENARIOS / "bert_base.yaml"
    found = by_words(scenario=scenario)
    off = found["pipeline.allow_recompute=false"]
    assert off.excess_bytes > 0
    assert off.after == seconds("pipeline.allow_recompute=false", "memory=report", scenario=scenario)
    link = float(2 * DEFAULT_RATES.link_bytes_per_s)
    rung, gateway = (
        float(2 * getattr(DEFAULT_RATES, f"{name}_bytes_per_s")) for name in ("machine_rung", "gateway_link")
    )
    links = (f"rates.link={link} B/s", f"rates.machine_rung={rung} B/s", f"rates.gateway_link={gateway} B/s")
    assert found["all links twice as fast"].after == seconds(*links, scenario=scenario)
    splits = [words for words in found if words.startswith("pipeline.splits=")]
    assert splits
    best = max((found[words] for words in splits), key=lambda each: each.gain)
    assert best.after == seconds(best.change.words, "memory=report", scenario=scenario)
    assert best.gain > 0


@pytest.mark.parametrize("name", ["memory_by_schedule", "optimizer_state_offload"])
def test_changes_come_best_first_those_that_do_not_fit_and_other_hardware_last(name):
    found = by_words(scenario=SCENARIOS / f"{name}.yaml").values()
    keys = [(each.change.is_hardware, each.excess_bytes > 0, -each.gain) for each in found]
    assert keys == sorted(keys)
    assert {(False, False), (False, True)} < {key[:2] for key in keys}


def test_what_is_asked_for_is_tried_alone_and_two_by_two():
    job, timeline = run_of(*UNEVEN)
    wanted = [f"{LARGER}=64", "pipeline.stages.stage2.backward=x0.5 pipeline.stages.stage1.forward=800"]
    found, pairs = requested_changes(job, timeline, wanted)
    more = (f"{LARGER}=64",)
    less = ("pipeline.stages.stage2.backward=1450", "pipeline.stages.stage1.forward=800")
    assert [each.after for each in found] == [seconds(*UNEVEN, *more), seconds(*UNEVEN, *less)]
    (pair,) = pairs
    assert pair.joint.after == seconds(*UNEVEN, *more, *less)
    assert pair.sum == sum(each.gain for each in found)
    assert not pair.adds_up
    assert pair.joint.gain < pair.sum


def test_what_does_not_touch_each_other_adds_up():
    job, timeline = run_of(*UNEVEN, "system.name=m2000", "pipeline.stages.stage0.output_bytes=400000")
    _, (pair,) = requested_changes(
        job, timeline, ["rates.link=x2 rates.machine_rung=x2", "pipeline.stages.stage3.update=x0"]
    )
    assert pair.adds_up


def test_every_refusal_of_what_is_asked_for_is_in_one_message():
    job, timeline = run_of()
    wanted = [f"{LARGER}=13", "pipelines.count=3", "pipeline.schedule=x2", "nothing", "rates.link=x0", f"{LARGER}=16"]
    with pytest.raises(OptionError) as error:
        requested_changes(job, timeline, wanted)
    lines = error.value.worded(lambda name: f"--{name}").split("\n")
    assert len(lines) >= 5
    assert lines[0].startswith(f"--what: {LARGER}=13: pipeline.gradient_accumulation_count: The number of iterations")
    for part in ("pipelines", "pipeline.schedule: expected an option with a number", "'nothing'", "rates.link"):
        assert any(part in line for line in lines), part
    assert not any("count=16" in line for line in lines)


def test_words_name_the_best_of_each_kind_and_the_part_that_becomes_shorter():
    job, timeline = run_of(KNOWN_MEMORY, scenario=FOUR)
    said = [*explain(timeline, job).words()]
    count = "pipeline.gradient_accumulation_count"
    first, second = f"a larger count ({count}=64) 24.8%", "another schedule (single in lock-step, 4 replicas, count 2)"
    assert said[1].startswith(f"Changes that save the most time per sample: {first}, {second}")
    assert said[2] == "These changes save time mainly in fill and drain (now 26.9% of the time)."


@pytest.mark.parametrize(
    ("scenario", "overrides"),
    [
        ("host_embedding", ()),
        ("host_embedding", ("system.host.count=2", "pipeline.variables_on_host=true")),
        ("variables_on_host", ()),
    ],
)
def test_without_the_host_nothing_of_it_takes_time(scenario, overrides):
    """Then nothing is left of the run that such a run on the free system does not have, but for copies and syncs."""
    job = load_job(SCENARIOS / f"{scenario}.yaml", ("pipeline.gradient_accumulation_count=8", *overrides))
    costs, system = price_without(job, 4)
    timeline = simulate(job.plan, job.program, system, costs=costs)
    rows = timeline.rows(*kinds_with(lambda row: row.track is Track.HOST or row.category == "host"))
    rows = np.concatenate([rows, timeline.rows(SpanKind.HOST_SUM, SpanKind.HOST_UPDATE)])
    assert simulate(job.plan, job.program, job.system, costs=job.costs).end.max() > timeline.end.max()
    assert not (timeline.end[rows] - timeline.start[rows]).any()


def test_a_run_that_takes_no_time_saves_none(load):
    stages = "{name: a, forward: 0}, {name: b, forward: 0}"
    job = load(f"system: {{name: free}}\npipeline: {{gradient_accumulation_count: 4, stages: [{stages}]}}")
    assert {found.gain for found in what_if(job, Session(job).run(job.executions))} == {0.0}


@pytest.mark.parametrize("schedule", ["grouped", "1f1b"])
def test_balanced_stages_give_what_stages_of_their_mean_give(schedule):
    slow = ("pipeline.stages.stage1.forward=2000", "pipeline.stages.stage1.backward=4000")
    own = f"pipeline.schedule={schedule}"
    found = by_words(own, *slow)["the same work divided equally among the stages"]
    job, _ = run_of(own, *slow)
    means = [
        f"pipeline.stages.stage{stage}.{kind}={sum(job.costs.passes[key, each] for each in range(4)) // 4}"
        for key, kind in ((0, "forward"), (1, "backward"))
        for stage in range(4)
    ]
    assert found.after == seconds(own, *means)
    assert found.cause[0] == "imbalance of stages"


def test_a_rate_that_gives_nothing_names_the_one_that_does():
    job, timeline = run_of("numerics=off", scenario=SCENARIOS / "transformer_eight_ipus.yaml")
    (found,), _ = requested_changes(job, timeline, ["rates.link=x2"])
    (other, both), _ = requested_changes(
        job, timeline, ["rates.machine_rung=x2", "rates.link=x2 rates.machine_rung=x2"]
    )
    assert (found.gain, found.after) == (0.0, found.before)
    assert found.alternative_words.endswith(
        f"with rates.machine_rung=x2 the saving is {both.gain:.1%}, and with only rates.machine_rung=x2 "
        f"{other.gain:.1%}."
    )
    assert other.alternative_words == both.alternative_words == ""
