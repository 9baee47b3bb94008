"""A run of time alone that jumps over its repeats is the same, written out, as one that does not."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from ipusim.analysis.memory import memory_curves
from ipusim.app.regression.expectations import judged_before
from ipusim.app.scenario.load import load_job
from ipusim.base.errors import IpusimError
from ipusim.hardware.system import System
from ipusim.machine.recurrence import Mark, size_of
from ipusim.machine.simulate import simulate
from ipusim.pipeline.plan import Plan
from ipusim.pricing.costs import Costs, Send
from ipusim.runs import execute as running
from ipusim.runs.assemble import limits
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.job import Job
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from ipusim.runs.run import Run
from ipusim.runs.time_alone import timeline_of
from ipusim.schedules.registry import find, names
from ipusim.timeline.repeats import with_copies
from tests.cli.commands import ipusim
from tests.effort import runs_slowest, sampled, share, slowest
from tests.house_schedules import FREE, mapping_of
from tests.replay.requests import DRAWN, Requested, drawn_requests, scenario_of

#: Passes of a drawn run by default and with ``--all``, and tensors that may wait for a stage in it, at most.
MOST_PASSES, MOST_PASSES_WITH_ALL, MOST_WAITING = 6_000, 30_000, 100
#: Of how many times as many micro-batches as drawn a run is, by default and with ``--all``.
TIMES, TIMES_WITH_ALL = (8, 12, 20), (8, 20, 60)
#: How many of each sort are drawn: of all options, of users' Orders, of stages known by their cycles, with tables.
SORTS = {"options": 10, "cycles": 16, "orders": 3, "tables": 4}
#: Of one sort more than a share, as most of its small runs are over before they repeat themselves.
FEWEST = {"cycles": 10}


@cache
def requests_of(sorts: tuple[tuple[str, int], ...]) -> list[Requested]:
    """Return so many drawn requests of each sort, drawn once for all that run them."""
    return drawn_requests({**dict.fromkeys(DRAWN, 0), **dict(sorts)})


def drawn_jobs(sort: str, folder: Path, seed: int = 0) -> Iterator[tuple[str, Job]]:
    """Yield a share of a sort's Jobs, each by its name."""
    yield from jobs({sort: max(share(SORTS[sort]), FEWEST.get(sort, 0))}, folder, seed)


@cache
def drawn_runs(sort: str) -> list[tuple[str, Run]]:
    """Return the runs of a share of a sort's Jobs, each by its name, which several tests look at."""
    with TemporaryDirectory() as folder:
        return [(name, execute(job)) for name, job in drawn_jobs(sort, Path(folder))]


def jobs(sorts: dict[str, int], folder: Path, seed: int = 0) -> Iterator[tuple[str, Job]]:
    """Yield drawn Jobs of time alone with many micro-batches and executions, each by its name."""
    rng, large = random.Random(seed), runs_slowest()
    times, most_passes = (TIMES_WITH_ALL, MOST_PASSES_WITH_ALL) if large else (TIMES, MOST_PASSES)
    for drawn in requests_of(tuple(sorts.items())):
        for name, text in drawn.files.items():
            (folder / name).write_text(text)
        off = ["memory=report"]  # tensors that wait for an IPU are as many more as there are micro-batches
        off += [] if drawn.name.startswith(("cycles", "orders")) else ["numerics=off"]
        options = load_job(folder / drawn.file, off).request.options
        pipeline = options.pipeline
        counts = {
            "gradient_accumulation_count": pipeline.gradient_accumulation_count * rng.choice(times),
            "repeat_count": pipeline.repeat_count * rng.choice([1, 3, 5]),
        }
        if drawn.name.startswith("orders"):  # which are of one count
            counts.pop("gradient_accumulation_count")
        changes = [f"pipeline.{name}={count}" for name, count in counts.items()]
        changes += [f"steps={rng.choice([1, 1, 2, 5])}"]  # session runs, between which a framework's host takes time
        if rng.random() < 0.5 and options.system.name != "free":
            changes.append("system.host.framework=tensorflow1")
        job = load_job(folder / drawn.file, [*off, *changes])
        # Where tensors pile up on links that are too slow for them, a run takes as long as the square of their number.
        piled_up = any(tensors > MOST_WAITING for tensors in job.plan.waiting.values())
        if not piled_up and job.of_whole(lambda of: len(of.plan.table)) * job.executions <= most_passes:
            yield f"{drawn.name} {' '.join(changes)}", job


@sampled(2)
@pytest.mark.parametrize("sort", SORTS)
def test_jumping_over_repeats_changes_nothing(sort: str) -> None:
    """Every span, its cause, what memory holds and the summary are those of a run that is simulated whole."""
    jumped = 0
    for name, part in drawn_runs(sort):
        job, whole = part.job, execute(part.job.whole, jump=False)
        assert part.timeline.expanded() == whole.timeline, name
        assert int(part.timeline.weights.sum()) == len(whole.timeline), name
        assert part.summary.to_dict() == whole.summary.to_dict(), name
        for replica in range(job.system.replicas):
            curves = zip(*(held(run, replica) for run in (part, whole)), strict=True)
            assert all(np.array_equal(*columns) for of in curves for columns in zip(*of, strict=True)), name
        jumped += bool(part.timeline.repeats)
    assert jumped


@pytest.mark.parametrize("sort", ["cycles", "tables"])
def test_disturbed_runs_jump_where_nothing_changes_any_more(sort: str, tmp_path: Path) -> None:
    """With an IPU that is slower for good, or for the first part of a run, and with one that is slower at its end."""
    slowed = jumped = 0
    for number, (name, job) in enumerate(drawn_jobs(sort, tmp_path, seed=1)):
        length = int(execute(job).timeline.makespan_cycles)
        first, until = [(0, None), (length // 50, length // 20), (length - length // 20, length)][number % 3]
        slow = {"ipu": job.program.shape.mapping[-1], "slower": 1.25, "from": first}
        slow |= {} if until is None else {"until": until}
        disturbed = assemble(job.request.replace({"disturbances": [slow]}))
        part, whole = execute(disturbed), execute(disturbed, jump=False)
        assert part.timeline.expanded() == whole.timeline, (name, slow)
        assert part.summary.times_dict() == whole.summary.times_dict(), (name, slow)
        slowed += whole.timeline.makespan_cycles > length
        jumped += bool(part.timeline.repeats)
    assert slowed
    assert jumped


@sampled(2)
@pytest.mark.parametrize(
    ("schedule", "sync", "system"),
    [
        pytest.param(*of, system, marks=() if (number + other) % 2 == 0 else slowest)
        for number, of in enumerate(
            [
                ("grouped", "lock_step"),
                ("1f1b", "lock_step"),
                ("1f1b", "point_to_point"),
                ("eager_1f1b", "point_to_point"),
                ("zero_bubble_h2", "point_to_point"),
            ]
        )
        for other, system in enumerate(["free", "m2000"])
    ],
)
def test_a_disturbed_execution_jumps_before_between_and_behind_its_disturbances(
    schedule: str, sync: str, system: str
) -> None:
    """Two IPUs and a cable are slower for a while, far from each other; what is left out is the same, written out."""
    stages = [{"name": f"s{number}", "forward": 1000, "backward": 2000} for number in range(4)]
    for one, other in pairwise(stages):
        one["output_bytes"] = other["gradient_bytes"] = 10_000
    pipeline = {"schedule": schedule, "sync": sync, "gradient_accumulation_count": 320, "stages": stages}
    data = {"system": {"name": system}, "pipeline": pipeline}
    plain = assemble(Request.from_dict(data))
    length = timeline_of(plain).makespan_cycles
    passing = [
        {"ipu": 2, "slower": 2, "from": length // 3, "until": length // 3 + 20_000},
        {"ipu": 1, "slower": 3, "from": 2 * length // 3, "until": 2 * length // 3 + 10_000},
        {"link": [0, 1], "slower": 2, "delay": 700, "from": 2 * length // 3, "until": 2 * length // 3 + 10_000},
    ]
    part = execute(assemble(Request.from_dict(data | {"disturbances": passing})))
    whole = execute(part.job, jump=False)
    assert part.timeline.expanded() == whole.timeline
    assert len(part.timeline.repeats) == 3
    assert len(part.timeline) < len(whole.timeline) / 2
    assert part.summary.times_dict() == whole.summary.times_dict()


def test_a_replica_that_is_done_early_is_no_part_of_what_repeats_itself() -> None:
    """Replicas that go on by themselves, one of which is slower: states recur while it alone has micro-batches left."""
    stages = [{"name": f"s{number}", "forward": 100, "backward": 200} for number in range(2)]
    pipeline = {"schedule": "single", "sync": "point_to_point", "gradient_accumulation_count": 48, "stages": stages}
    data = {"system": {"name": "free", "auto_select_ipus": 2}, "pipeline": pipeline}
    run = execute(assemble(Request.from_dict(data | {"disturbances": [{"ipu": 0, "slower": 2}]})))
    assert run.job.system.replicas == 2
    assert run.timeline.expanded() == execute(run.job, jump=False).timeline


@pytest.mark.parametrize("count", [pytest.param(100_000, marks=slowest), 1_000_000])
def test_a_million_micro_batches_with_a_passing_disturbance_take_as_long_as_few(count: int) -> None:
    job = flight(7, 4, 100, 200, count)
    passing = {"ipu": 2, "slower": 2, "from": "10 ms", "until": "10.1 ms"}
    run = execute(assemble(job.request.replace({"disturbances": [passing]})))
    assert len(run.timeline.repeats) >= 2
    assert len(run.timeline) < 20_000
    assert run.summary.count == count
    lost = run.timeline.makespan_cycles - execute(job).timeline.makespan_cycles
    assert 0 < lost < 200_000


def held(run: Run, replica: int) -> list[tuple[Any, ...]]:
    """Return the columns of what each IPU of a replica holds over time."""
    footprint = run.job.memory.footprint
    curves = memory_curves(run.timeline.expanded(), footprint, replica)
    return [(curve.time, curve.live_bytes, curve.fifo_bytes, [curve.resident_bytes]) for curve in curves]


def flight(cycles: int, ipus: int, forward: int, backward: int, count: int) -> Job:
    """Return a 1F1B pipeline of equal stages in point-to-point with so many micro-batches."""
    stage = {"forward": forward, "backward": backward, "output_bytes": 1000, "gradient_bytes": 1000}
    stages = [dict(stage, name=f"s{number}") for number in range(ipus)]
    del stages[0]["gradient_bytes"], stages[-1]["output_bytes"]
    data = {
        "training": True,
        "system": {"name": "bow_pod64", "auto_select_ipus": 32},
        "pipeline": {
            "schedule": "1f1b",
            "sync": "point_to_point",
            "gradient_accumulation_count": count,
            "stages": stages,
        },
    }
    return assemble(Request.from_dict(data, name=f"transfers of {cycles} cycles"))


@sampled(2)
@pytest.mark.parametrize("ipus", [4, 8, 16, pytest.param(24, marks=slowest)])
@pytest.mark.parametrize("cycles", [0, 7])
def test_1f1b_of_a_million_micro_batches_takes_what_its_closed_form_says(ipus: int, cycles: int) -> None:
    """A micro-batch takes the largest mean over loops of k + 1 neighbours, of their passes and 2 k transfers.

    k + 1 micro-batches go round such a loop at a time (a cycle mean of the timed event graph; Baccelli et al., 1992).
    """
    forward, backward, count = 100, 200, 1_000_000

    def priced(job: Job) -> tuple[Costs, System]:
        sends = {key: Send(send.bytes, lead_cycles=cycles) for key, send in job.costs.sends.items()}
        return replace(job.costs, sends=sends), job.system

    job = flight(cycles, ipus, forward, backward, count)
    timeline = timeline_of(job, priced=priced)
    one = max(Fraction((k + 1) * (forward + backward) + 2 * k * cycles, k + 1) for k in range(ipus))
    (block,) = timeline.repeats
    assert Fraction(block.cycles, block.micro_batches) == one
    assert block.micro_batches == (ipus if cycles else 1)
    once = block._replace(times=1)
    assert with_copies(timeline.contiguous().columns, once) == once, "rows beside a block are none of its copies"
    fewer = 16 * ipus + count % ipus
    short = timeline_of(job.of(fewer, 1), priced=priced, jump=False)
    assert timeline.makespan_cycles == short.makespan_cycles + one * (count - fewer)


@pytest.mark.parametrize("count", [1_000_000, 1_000_016, 1_000_032])
def test_a_period_of_few_micro_batches_is_found_in_one_run(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of stages that differ three micro-batches go round the slowest loop, which any count is whole periods from."""
    counts: list[int] = []

    def counted(plan: Plan, *args: Any, **options: Any) -> Any:
        counts.append(plan.shape.micro_batches)
        return simulate(plan, *args, **options)

    monkeypatch.setattr("ipusim.runs.marked.simulate", counted)
    data = flight(0, 16, 1, 1, count).request.to_dict()
    rng = random.Random(5)
    for stage in data["pipeline"]["stages"]:
        cycles = rng.randrange(1000, 1200)
        stage.update(forward=100 * cycles, backward=200 * cycles)
        stage.update({key: 40_000 for key in ("output_bytes", "gradient_bytes") if key in stage})
    timeline = timeline_of(assemble(Request.from_dict(data, name="uneven")))
    (block,) = timeline.repeats
    assert block.micro_batches == 3
    assert len(counts) == 1


@slowest
def test_what_repeats_is_not_counted_against_memory_and_what_does_not_is() -> None:
    """A million micro-batches under 1F1B are kept in part; under GPipe 20,000 that hold memory are refused at once."""
    million = flight(0, 8, 100, 200, 1_000_000)
    assert million.plan.shape.micro_batches < 200
    data = flight(0, 8, 100, 200, 20_000).request.to_dict()
    data["pipeline"]["schedule"] = "gpipe"
    data["pipeline"]["stages"][0]["stash_bytes"] = 1
    with pytest.raises(IpusimError, match="expected a run that takes at most 2 GiB of memory"):
        assemble(Request.from_dict(data, name="gpipe"))


@sampled(4)
@pytest.mark.parametrize("schedule", [name for name in FREE if find(name).period is not None])
def test_lock_step_of_an_order_without_time_steps_is_told_as_of_the_whole_plan(schedule: str) -> None:
    """Its time-steps repeat themselves in other periods than its passes: their number, and what their copies take."""
    data = flight(0, 4, 100, 200, 96).request.to_dict()
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
    job, jumping = piling_up(400), flight(7, 4, 100, 200, 400)
    assert execute(job).remarks == ()
    monkeypatch.setattr(running, "_MANY_SPANS", 1000)
    run = execute(job)
    spans = len(run.timeline)
    sentence = f"No state of this run comes again, so that all of its {spans} spans were simulated one by one."
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
        "expected a run that repeats itself, of which a part is simulated, or one that memory holds as a whole, got "
        f"100000 micro-batches of which the first {counts[1]} do not repeat themselves; make it smaller"
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
