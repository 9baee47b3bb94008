"""Long runs: in phases, of which a part stands for the whole, and of which no state recurs."""

import io
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipusim.app.regression.expectations import judged_before
from ipusim.base.errors import IpusimError
from ipusim.machine.recurrence import Mark, size_of
from ipusim.machine.simulate import simulate
from ipusim.runs import execute as running
from ipusim.runs.assemble import limits
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.job import Job
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from ipusim.runs.time_alone import timeline_of
from ipusim.schedules.registry import find, names
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.timeline import Timeline
from tests.cli.commands import ipusim
from tests.effort import draws_everything, runs_slowest, sampled, seeds, slowest
from tests.properties.test_jump import flight
from tests.replay.requests import scenario_of
from tests.scenarios import job_of
from tests.schedules import FREE, mapping_of

IN_PHASES = [name for name in names() if find(name).in_phases]


def drawn(seed: int) -> Job:
    """Return a Job of stages without a word on memory, whose times, copies and feeds are drawn."""
    rng, large = random.Random(seed), draws_everything()
    name, ipus, loops = rng.choice(IN_PHASES), rng.randint(2, 5), rng.choice([1, 2, 2, 3])
    even, training = rng.random() < 0.6, rng.random() < 0.8
    sync = rng.choice(["point_to_point", "lock_step"])
    # Where tensors pile up on links that are too slow for them, a run takes as long as the square of their number.
    size = rng.choice([0, 500, 3000, 300_000 if sync == "lock_step" else 8000])
    stages = [timed_stage(rng, 1 if even else rng.uniform(0.8, 1.2), size, training) for _ in range(ipus * loops)]
    for key, at in (("gradient_bytes", 0), ("output_bytes", -1)):
        stages[at].pop(key, None)
    mapping = [*range(ipus)] * loops
    if name == "gpipe" and rng.random() < 0.5:  # which has stages wherever they are
        rng.shuffle(mapping)
        mapping[: len(set(mapping))] = sorted(set(mapping))
    pipeline = {
        "schedule": name,
        "sync": sync,
        "stages": [{**stage, "name": f"s{number}"} for number, stage in enumerate(stages)],
        "device_mapping": mapping,
        "gradient_accumulation_count": rng.choice([100, 151, 240] if large else [80, 121, 160]),
        "repeat_count": rng.choice([1, 1, 2, 6 if large else 4]),
    }
    system: dict[str, Any] = {"name": rng.choice(["free", "m2000", "bow_pod16"][: 3 if ipus <= 4 else 1])}
    if system["name"] == "bow_pod16" and rng.random() < 0.3:
        system |= {"auto_select_ipus": 8}
    options = {"training": training, "system": system, "pipeline": pipeline, "memory": "report"}
    if rng.random() < 0.4:
        options |= {"infeed": {"element_bytes": rng.choice([100, 200_000])}, "outfeed": {"element_bytes": 64}}
    return assemble(Request.from_dict(options, name=f"drawn{seed}"))


def timed_stage(rng: random.Random, factor: float, size: int, training: bool) -> dict[str, int]:
    """Return a stage's cost; a backward pass takes twice as long as a forward pass, and tensors are of one size."""
    stage = {"forward": int(1000 * factor), "output_bytes": size}
    return stage | ({"backward": int(2000 * factor), "gradient_bytes": size, "update": 500} if training else {})


@sampled(2)
@pytest.mark.parametrize("seed", seeds(300))
def test_jumping_over_phases_changes_nothing(seed: int) -> None:
    """Every span, the summary, and what is read of blocks are those of the run that is simulated whole."""
    job = drawn(seed)
    part, whole = execute(job), execute(job.whole, jump=False)
    assert part.timeline.expanded() == whole.timeline
    assert int(part.timeline.weights.sum()) == len(whole.timeline)
    assert part.summary.times_dict() == whole.summary.times_dict()
    if seed % 3 == 0:  # with the parts of the time, for which the run is simulated without each
        assert part.summary.to_dict() == whole.summary.to_dict()
    again = io.BytesIO()
    part.timeline.save(again)
    again.seek(0)
    assert Timeline.load(again) == part.timeline
    assert part.timeline.with_block_ends_expanded().expanded() == whole.timeline
    middle = whole.timeline.makespan_cycles // 2
    for window in ((0, middle // 10), (middle, middle + middle // 20), (2 * middle - middle // 10, 2 * middle)):
        assert part.timeline.spans(*window) == whole.timeline.spans(*window)


@pytest.mark.parametrize("sync", ["point_to_point", "lock_step"])
@pytest.mark.parametrize("name", IN_PHASES)
def test_a_million_micro_batches_take_what_their_closed_form_says(name: str, sync: str) -> None:
    """(m v + p - 1)(f + b) on p IPUs with v stages each and copies that take no time; each micro-batch once.

    In lock-step ramps are longer, by what they take in a run of few micro-batches.
    """
    ipus, loops, count = 8, 2, 1_000_000
    job = job_of(name, mapping=(*range(ipus),) * loops, count=count, update=0, sync=sync)
    timeline, fewer = timeline_of(job), timeline_of(job.with_counts(40, 1), jump=False).makespan_cycles
    assert len(timeline.repeats) == 2 * loops
    assert timeline.makespan_cycles == fewer + (count - 40) * loops * 300
    if sync == "point_to_point":
        assert timeline.makespan_cycles == (count * loops + ipus - 1) * 300
    for kind in (SpanKind.FORWARD, SpanKind.BACKWARD):
        of_stage = np.bincount(timeline.stage[timeline.kind == kind], timeline.weights[timeline.kind == kind])
        assert of_stage.tolist() == [count] * (ipus * loops)


@pytest.mark.parametrize("name", IN_PHASES)
def test_stages_that_say_what_they_hold_are_simulated_whole(name: str) -> None:
    """An IPU then holds more from period to period, which no block of memory over time says."""
    job = job_of(name, count=400, system="m2000", held=10)
    assert job.plan.shape.micro_batches == 400
    assert not timeline_of(job).repeats


def test_a_pass_that_waits_for_the_phase_before_is_no_sign_of_a_longer_run() -> None:
    """Copies that take as long as 15 passes: of few micro-batches the second loop waits, of many it does not."""
    cycles = {"forward": 500, "backward": 1000, "update": 0}
    job = job_of("breadth_first", mapping=(0, 1, 0, 1), count=1200, moved=1000, system="bow_pod16", **cycles)
    timeline = timeline_of(job)
    assert len(timeline.repeats) == 4
    assert timeline.contiguous().info.count > job.plan.shape.micro_batches, "of as many as are laid out it waits"
    assert timeline.expanded() == timeline_of(job, jump=False)


@slowest
def test_what_repeats_is_not_counted_against_memory_and_what_does_not_is() -> None:
    """A million micro-batches under 1F1B are kept in part; under GPipe 20,000 that hold memory are refused at once."""
    million = flight(8, 1_000_000)
    assert million.plan.shape.micro_batches < 200
    data = flight(8, 20_000).request.to_dict()
    data["pipeline"]["schedule"] = "gpipe"
    data["pipeline"]["stages"][0]["stash_bytes"] = 1
    with pytest.raises(IpusimError, match="expected a run that takes at most 2 GiB of memory"):
        assemble(Request.from_dict(data, name="gpipe"))


@sampled(4)
@pytest.mark.parametrize("schedule", [name for name in FREE if find(name).period is not None])
def test_lock_step_of_an_order_without_time_steps_is_told_as_of_the_whole_plan(schedule: str) -> None:
    """Its time-steps repeat themselves in other periods than its passes: their number, and what their copies take."""
    data = flight(4, 96).request.to_dict()
    data["pipeline"] |= {"schedule": schedule, "sync": "lock_step"}
    data["pipeline"]["device_mapping"] = list(mapping_of(schedule, 4))
    data["expect"] = {"time_steps": "at least 1"}
    job = assemble(Request.from_dict(data, name="lock-step"))
    assert job.plan.shape.micro_batches < 96
    whole, again = (execute(each, jump=False).summary for each in (job.whole, job))
    summary = whole.to_dict()
    assert execute(job).summary.to_dict() == summary
    assert again.times_dict() == whole.times_dict()
    if runs_slowest():  # with the parts of the time, for which the run is simulated without each
        assert again.to_dict() == summary
    told, _ = judged_before(job.whole)
    assert [each.value for each in told] == [summary["time_steps"]]
    assert not judged_before(job)[0]


PERIODIC = [name for name in names() if find(name).period is not None and not find(name).in_phases]


@sampled(2)
@pytest.mark.parametrize("schedule", PERIODIC)
def test_peaks_are_told_by_the_passes_of_the_whole_run(schedule: str) -> None:
    """Also where memory is fullest behind all that repeats itself, as in the cool-down of zbv and v_half."""
    stage = {"forward": 100, "backward": 200, "stash_bytes": 600, "gradient_bytes": 700, "output_bytes": 400}
    stages = [{"name": f"s{number}", **stage} for number in range(4)]
    pipeline = {"schedule": schedule, "gradient_accumulation_count": 400, "stages": stages}
    job = assemble(Request.from_dict({"system": {"name": "m2000"}, "pipeline": pipeline}, name="peaks"))
    assert job.plan.shape.micro_batches < 400
    assert [peak.op for peak in job.memory.peaks] == [peak.op for peak in job.whole.memory.peaks]


def piling_up(count: int) -> Job:
    """Return an inference in point-to-point whose first stage is faster than its last, which tensors wait for."""
    stages = [{"name": "a", "forward": 100, "output_bytes": 1000}, {"name": "b", "forward": 150}]
    pipeline = {"schedule": "grouped", "sync": "point_to_point", "gradient_accumulation_count": count, "stages": stages}
    data = {"training": False, "system": {"name": "m2000"}, "pipeline": pipeline}
    return assemble(Request.from_dict(data, name="piling-up"))


@slowest
def test_a_long_run_that_never_repeats_itself_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not where it was not to jump, nor a short one, nor one that jumps; and the summary does not depend on it."""
    job, jumping = piling_up(400), flight(4, 400)
    assert execute(job).remarks == ()
    monkeypatch.setattr(running, "_MANY_SPANS", 1000)
    run = execute(job)
    spans = len(run.timeline)
    sentence = f"No state of this run repeats, so all of its {spans} spans were simulated one by one."
    assert run.remarks == (sentence,)
    assert spans >= 1000
    assert execute(job, jump=False).remarks == execute(jumping).remarks == ()
    assert execute(job, jump=False).summary.to_dict() == run.summary.to_dict()
    (tmp_path / "s.yaml").write_text(scenario_of(job.request.to_dict()))
    assert sentence in ipusim("run", "s.yaml", cwd=tmp_path).stdout
    assert sentence not in ipusim("run", "s.yaml", "--no-jump", cwd=tmp_path).stdout


def test_a_run_that_never_repeats_itself_and_is_too_large_is_refused_by_its_own_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = piling_up(100_000)
    monkeypatch.setattr(limits, "MAX_RUN_BYTES", 1_000_000)
    with pytest.raises(RequestError) as refused:
        execute(job)
    (problem,) = refused.value.problems
    assert problem.path == ("pipeline", "gradient_accumulation_count")
    counts = [int(number) for number in re.findall(r"\d+", problem.text)]
    assert counts[0] == 100_000
    assert 16 <= counts[1] < 100_000
    assert problem.text == (
        "expected a run that repeats, or a run that fits in memory as a whole, got 100000 micro-batches, and the "
        f"first {counts[1]} do not repeat; make the run smaller"
    )


def test_noting_states_costs_no_more_than_a_run_even_where_they_become_larger_and_larger() -> None:
    """Of thousands of tensors that wait, a mark of each micro-batch would note all."""
    job = piling_up(2000)
    assert max(job.plan.waiting.values()) > 500
    whole, program = job.whole.plan, job.program
    marks: list[Mark] = []
    every = range(program.shape.micro_batches)
    timeline = simulate(
        whole, program, job.system, costs=job.whole.costs, executions=1, marked=every, note=marks.append
    )
    noted = sum(size_of(mark.state) for mark in marks)
    largest = max(size_of(mark.state) for mark in marks)
    assert 100 < len(marks) < 1000
    assert noted <= 20_000 + 4 * len(timeline) + 2 * largest
    assert any(mark.micro_batch > 1000 for mark in marks), "it goes on as the run does"
