"""A run of time alone that jumps over its repeats is the same, written out, as one that does not."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from ipusim.analysis.memory import memory_curves
from ipusim.app.scenario.load import load_job
from ipusim.hardware.disturbances import Jitter, Lost
from ipusim.hardware.system import System
from ipusim.machine.simulate import simulate
from ipusim.pipeline.plan import Plan
from ipusim.pricing.costs import Costs, Send
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.job import Job
from ipusim.runs.request.request import Request
from ipusim.runs.run import Run
from ipusim.runs.time_alone import timeline_of
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.repeats import with_copies
from tests.effort import draws_everything, rarest, sampled, seeds, share, slowest
from tests.random_runs import drawn_job
from tests.replay.requests import DRAWN, Requested, drawn_requests
from tests.scenarios import job_of

#: Passes of a drawn run by default and with ``--every``, and tensors that may wait for a stage in it, at most.
MOST_PASSES, MOST_PASSES_WITH_EVERY, MOST_WAITING = 6_000, 30_000, 100
#: Of how many times as many micro-batches as drawn a run is, by default and with ``--every``.
TIMES, TIMES_WITH_EVERY = (8, 12, 20), (8, 20, 60)
#: How many of each sort are drawn: of all options, of users' Orders, of stages known by their cycles, with tables.
SORTS = {"options": 10, "cycles": 16, "orders": 3, "tables": 4}
#: Of one sort more than a share, as most of its small runs are over before they repeat themselves.
FEWEST = {"cycles": 10}
#: Two stages, each on an IPU.
TWO: dict[str, Any] = {"mapping": (0, 1), "forward": 1000, "backward": 2000, "update": 0}
#: How many runs are drawn with rules that go by the number of an execution or a micro-batch.
DRAWN_BY_NUMBER = 500


@cache
def requests_of(sorts: tuple[tuple[str, int], ...]) -> list[Requested]:
    """Return so many drawn requests of each sort, drawn once for all that run them."""
    return drawn_requests({**dict.fromkeys(DRAWN, 0), **dict(sorts)})


@cache
def drawn_runs(sort: str) -> list[tuple[str, Run]]:
    """Return the runs of a share of a sort's Jobs, each by its name, which several tests look at."""
    fewest = max(share(SORTS[sort]), FEWEST.get(sort, 0))
    with TemporaryDirectory() as folder:
        return [(name, execute(job)) for name, job in jobs({sort: fewest}, Path(folder))]


def jobs(sorts: dict[str, int], folder: Path, seed: int = 0) -> Iterator[tuple[str, Job]]:
    """Yield drawn Jobs of time alone with many micro-batches and executions, each by its name."""
    rng, large = random.Random(seed), draws_everything()
    times, most_passes = (TIMES_WITH_EVERY, MOST_PASSES_WITH_EVERY) if large else (TIMES, MOST_PASSES)
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


@cache
def repeats_by_number(seed: int) -> bool:
    """Tell whether a drawn run with rules that go by numbers was simulated in part; compare it with the whole run."""
    rng, job = random.Random(seed), drawn_job(seed)
    part, whole = execute(job), execute(job, jump=False)
    assert part.timeline.expanded() == whole.timeline
    assert part.summary.times_dict() == whole.summary.times_dict()
    executions = rng.randint(1, job.executions)  # as of a session run, which may end within a step
    some, every = (timeline_of(job, executions, between=job.between, jump=jump) for jump in (True, False))
    assert some.expanded() == every
    return bool(part.timeline.repeats)


@sampled(2)
@pytest.mark.parametrize("seed", seeds(DRAWN_BY_NUMBER))
def test_rules_that_go_by_the_number_of_an_execution_or_a_micro_batch_hold_in_a_run_simulated_in_part(
    seed: int,
) -> None:
    """Outfeeds of a step's last results, streams that end, hosts, checkpoints, windows of disturbances, jitter."""
    repeats_by_number(seed)


@rarest
def test_each_rule_that_goes_by_numbers_is_drawn_and_most_runs_are_simulated_in_part() -> None:
    drawn: Counter[str] = Counter()
    for seed in range(DRAWN_BY_NUMBER):
        job, jumped = drawn_job(seed), repeats_by_number(seed)
        options, system = job.request.options, job.system
        many_steps = options.steps > 1 and options.pipeline.repeat_count > 1
        for rule, goes_by in {
            "last of several steps": options.outfeed.mode == "LAST" and many_steps,
            "last of several steps, in part": options.outfeed.mode == "LAST" and many_steps and jumped,
            "last of one step, in part": options.outfeed.mode == "LAST" and options.steps == 1 and jumped,
            "host between steps, in part": bool(job.costs.host.call) and many_steps and jumped,
            "inference, in part": not job.program.shape.training and jumped,
            "segments": job.program.shape.segments > 1,
            "hosts": system.hosts > 1,
            "exchanges between hosts": bool(job.between),
            "hosts that are late": bool(job.late),
            "evaluation": options.evaluate is not None,
            "checkpoints": any(isinstance(change, Lost) and change.checkpoint for change in system.disturbances),
            "jitter": any(isinstance(change, Jitter) for change in system.disturbances),
            "disturbances, in part": bool(system.disturbances) and jumped,
            "more elements prefetched than an execution has": options.infeed.prefetch_depth > job.program.shape.count,
            "feeds on I/O tiles": job.program.shape.overlapped_io,
            "in part": jumped,
        }.items():
            drawn[rule] += goes_by
    assert min(drawn.values()) >= 5, drawn
    assert drawn["last of several steps, in part"] >= 40, drawn
    assert drawn["in part"] >= 200, drawn


@pytest.mark.parametrize(("training", "schedule"), [(True, "1f1b"), (False, "grouped")])
def test_results_of_mode_last_leave_once_in_each_of_several_steps(training: bool, schedule: str) -> None:
    """100 MB a step, which take longer to copy than a step to compute: no step is shorter than its copy."""
    job = job_of(schedule, **TWO, system="pod16", executions=10, inference=not training)
    outfeed = {"element_bytes": "100 MB", "mode": "LAST"}
    run = execute(assemble(job.request.replace({"outfeed": outfeed, "steps": 40, "memory": "off"})))
    timeline = run.timeline
    rows = timeline.rows(SpanKind.OUTFEED)
    assert timeline.repeats
    assert int(timeline.weights[rows].sum()) == 40
    expanded = timeline.expanded()
    assert expanded.execution[expanded.rows(SpanKind.OUTFEED)].tolist() == [*range(9, 400, 10)]
    assert timeline.makespan_cycles >= 40 * run.job.system.outfeed_cycles(100_000_000)
    assert expanded == execute(run.job, jump=False).timeline


def test_one_execution_of_a_longer_step_has_no_results_of_mode_last() -> None:
    """They leave with the last execution of the step; so with a disturbance around which the run is simulated."""
    passing = {"ipu": 1, "slower": 2, "from": 600_000, "until": 620_000}
    changes = {"outfeed": {"element_bytes": "1 MB", "mode": "LAST"}, "disturbances": [passing]}
    job = assemble(job_of(**TWO, count=400, system="m2000", executions=10).request.replace(changes))
    part, whole = (timeline_of(job, 1, jump=jump) for jump in (True, False))
    assert len(part.repeats) == 2
    assert not len(whole.rows(SpanKind.OUTFEED))
    assert part.expanded() == whole


def test_hosts_are_as_late_in_each_of_the_simulations_that_a_run_takes() -> None:
    """Where the first short run does not repeat itself, the next one has the waits of all executions again."""
    outfeed = {"element_bytes": "3 MB", "buffer_depth": 255}  # which fills up from micro-batch to micro-batch
    one = job_of(**TWO, count=120, system="m2000", executions=2, held=4000)
    changes = {"system.host.count": 2, "outfeed": outfeed, "memory": "off"}
    job = replace(assemble(one.request.replace(changes)), late=(700, 1400))
    whole = execute(job, jump=False)
    assert whole.timeline != execute(replace(job, late=(700, 0)), jump=False).timeline
    assert execute(job).timeline.expanded() == whole.timeline


@sampled(2)
@pytest.mark.parametrize("sort", SORTS)
def test_jumping_over_repeats_changes_nothing(sort: str) -> None:
    """Every span, its cause, what memory holds and the summary are those of a run that is simulated whole."""
    jumped = 0
    for name, part in drawn_runs(sort):
        check_the_same(part, name)
        jumped += bool(part.timeline.repeats)
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
    cycles = {"forward": 1000, "backward": 2000, "update": 0}
    plain = job_of(schedule, sync=sync, count=320, system=system, moved=10_000, **cycles)
    length = timeline_of(plain).makespan_cycles
    passing = [
        {"ipu": 2, "slower": 2, "from": length // 3, "until": length // 3 + 20_000},
        {"ipu": 1, "slower": 3, "from": 2 * length // 3, "until": 2 * length // 3 + 10_000},
        {"link": [0, 1], "slower": 2, "delay": 700, "from": 2 * length // 3, "until": 2 * length // 3 + 10_000},
    ]
    part = execute(assemble(plain.request.replace({"disturbances": passing})))
    whole = execute(part.job, jump=False)
    assert part.timeline.expanded() == whole.timeline
    assert len(part.timeline.repeats) == 3
    assert len(part.timeline) < len(whole.timeline) / 2
    assert part.summary.times_dict() == whole.summary.times_dict()


def test_a_replica_that_is_done_early_is_no_part_of_what_repeats_itself() -> None:
    """Replicas that go on by themselves, one of which is slower: states recur while it alone has micro-batches left."""
    job = job_of("single", mapping=(0, 0), count=48, sync="point_to_point")
    changes = {"system.auto_select_ipus": 2, "disturbances": [{"ipu": 0, "slower": 2}]}
    run = execute(assemble(job.request.replace(changes)))
    assert run.job.system.replicas == 2
    assert run.timeline.expanded() == execute(run.job, jump=False).timeline


@pytest.mark.parametrize("count", [pytest.param(100_000, marks=slowest), 1_000_000])
def test_a_million_micro_batches_with_a_passing_disturbance_take_as_long_as_few(count: int) -> None:
    job = flight(4, count)
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


def check_the_same(part: Run, name: str = "") -> Run:
    """Hold a run that may have jumped against one of the whole Plan; return that."""
    whole = execute(part.job.whole, jump=False)
    assert part.timeline.expanded() == whole.timeline, name
    assert int(part.timeline.weights.sum()) == len(whole.timeline), name
    assert part.summary.to_dict() == whole.summary.to_dict(), name
    for replica in range(part.job.system.replicas):
        curves = zip(*(held(run, replica) for run in (part, whole)), strict=True)
        assert all(np.array_equal(*columns) for of in curves for columns in zip(*of, strict=True)), name
    return whole


def flight(ipus: int, count: int) -> Job:
    """Return a 1F1B pipeline of equal stages in point-to-point with so many micro-batches."""
    stages = {"mapping": tuple(range(ipus)), "moved": 1000, "update": 0}
    job = job_of(**stages, count=count, system="bow_pod64", sync="point_to_point")
    return assemble(job.request.replace({"system.auto_select_ipus": 32}))


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

    job = flight(ipus, count)
    timeline = timeline_of(job, price=priced)
    one = max(Fraction((k + 1) * (forward + backward) + 2 * k * cycles, k + 1) for k in range(ipus))
    (block,) = timeline.repeats
    assert Fraction(block.cycles, block.micro_batches) == one
    assert block.micro_batches == (ipus if cycles else 1)
    once = block._replace(times=1)
    assert with_copies(timeline.contiguous().columns, once) == once, "rows beside a block are none of its copies"
    fewer = 16 * ipus + count % ipus
    short = timeline_of(job.with_counts(fewer, 1), price=priced, jump=False)
    assert timeline.makespan_cycles == short.makespan_cycles + one * (count - fewer)


@pytest.mark.parametrize("count", [1_000_000, 1_000_016, 1_000_032])
def test_a_period_of_few_micro_batches_is_found_in_one_run(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of stages that differ three micro-batches go round the slowest loop, which any count is whole periods from."""
    counts: list[int] = []

    def counted(plan: Plan, *args: Any, **options: Any) -> Any:
        counts.append(plan.shape.micro_batches)
        return simulate(plan, *args, **options)

    monkeypatch.setattr("ipusim.runs.marked.simulate", counted)
    data = flight(16, count).request.to_dict()
    rng = random.Random(5)
    for stage in data["pipeline"]["stages"]:
        cycles = rng.randrange(1000, 1200)
        stage.update(forward=100 * cycles, backward=200 * cycles)
        stage.update({key: 40_000 for key in ("output_bytes", "gradient_bytes") if key in stage})
    timeline = timeline_of(assemble(Request.from_dict(data, name="uneven")))
    (block,) = timeline.repeats
    assert block.micro_batches == 3
    assert len(counts) == 1
