"""Synthesis against all named schedules, against an exact search of few passes, and at other counts than its own."""

from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from ipusim.api import Request, RequestError, assemble, execute, schedules
from ipusim.app.synthesize import synthesis
from ipusim.app.synthesize.starts import NAME
from ipusim.app.synthesize.synthesis import synthesize
from ipusim.app.synthesize.verdict import verdict
from tests.effort import draws_everything, sampled, seeds, share, slowest
from tests.orders import Exact, ExactTimeSteps

#: Seconds of a search where a hundred are drawn, and where few are.
LONG, SHORT = 10.0, 0.4
#: Seconds of a turn of a search whose clock counts turns: about as long as one takes.
TURN = 5e-4


def stages_of(times):
    """Return stages of given cycles: of the forward and the whole backward pass, and of the halves of the latter."""
    kinds = ("forward", "backward", "backward_input", "backward_weights")
    return [{"name": f"s{number}", **dict(zip(kinds, of, strict=True))} for number, of in enumerate(times)]


def drawn(seed):
    """Return a scenario of uneven stages, and limits of its IPUs' memory; none where there are none."""
    random = Random(seed)
    stages, count = random.randint(2, 8), random.randint(2, 24)
    system = random.choice(["free", "m2000" if stages <= 4 else "bow_pod16"])
    base = random.choice([1000, 20_000, 400_000])
    listed = []
    for number in range(stages):
        forward, first, second = (round(base * random.uniform(0.6, 1.4)) for _ in range(3))
        (stage,) = stages_of([(forward, first + second, first, second)])
        stage |= {"name": f"s{number}", "stash_bytes": random.randint(200, 400) * 1000}
        stage |= {"rest_bytes": random.randint(50, 400) * 1000}
        stage |= {"output_bytes": random.randint(1, 200) * 512} if number < stages - 1 else {}
        stage |= {"gradient_bytes": random.randint(1, 200) * 512} if number else {}
        listed.append(stage)
    pipeline = {"schedule": "1f1b", "sync": random.choice(["point_to_point", "lock_step"]), "stages": listed}
    options = {"system": {"name": system}, "memory": "report", "pipeline": pipeline}
    pipeline["gradient_accumulation_count"] = count
    most = [random.randint(stages, 2 * stages) * 450_000 for _ in range(stages)] if random.randrange(2) else []
    return Request.from_dict(options, name=f"drawn{seed}", folder=Path()), most


def named(request, most):
    """Yield the cycles of each named schedule on as many IPUs that fits, run apart from any search.

    But for those with two copies of each stage, or with segments of a micro-batch, which are not searched.
    """
    stages = len(request.options.pipeline.stages)
    known = [schedules.find(name) for name in schedules.names()]
    for name in [schedule.name for schedule in known if not schedule.mirrored and schedule.segments == 1]:
        try:
            job = assemble(request.replace({"pipeline.schedule": name}))
        except RequestError:
            continue
        limits = [*most, *[1 << 60] * (stages - len(most))]
        holds = all(peak.bytes <= limits[peak.ipu] for peak in job.memory.peaks) and not job.memory.too_large
        if len(set(job.program.shape.mapping)) == stages and holds:
            yield execute(job).summary.throughput.run_cycles


def compared(seed, seconds):
    """Return the cycles of the best named schedule, of what is found, and of the bound, all of the pipeline alone."""
    request, most = drawn(seed)
    others = list(named(request, most))
    if not others:
        return None
    found = synthesize(request, seconds=seconds, memory=most)
    assert found.best.times.throughput.run_cycles <= min(others)
    assert found.bound.cycles <= found.best.times.makespan_cycles
    assert not found.is_optimal or found.best.times.makespan_cycles == found.bound.cycles
    peaks = found.best.result.memory.peaks
    assert all(peak.bytes <= limit for peak, limit in zip(peaks, most, strict=bool(most)))
    return found.best_named.times.makespan_cycles, found.best.times.makespan_cycles, found.bound.cycles


@slowest
def test_what_is_found_is_never_worse_than_any_named_schedule_that_fits_and_mostly_better():
    drawn_seeds = seeds(100)
    every = [compared(seed, LONG if len(drawn_seeds) == 100 else SHORT) for seed in drawn_seeds]
    room = [case for case in every if case and case[0] > 1.01 * case[2]]
    better = [case for case in room if case[1] < case[0]]
    assert 2 * len(better) >= len(room) > 0


@pytest.fixture
def clock_of_turns(monkeypatch):
    """Count turns of the search for a clock: on a loaded machine another search would find other words."""
    turns = count()
    monkeypatch.setattr(synthesis, "time", SimpleNamespace(monotonic=lambda: next(turns) * TURN))


@sampled(2)
@pytest.mark.usefixtures("clock_of_turns")
@pytest.mark.parametrize("seed", seeds(30))
def test_of_three_stages_and_four_micro_batches_the_optimum_is_found(seed):
    random = Random(f"small {seed}")
    times = [[random.randint(20, 200) for _ in range(3)] for _ in range(3)]
    stages = stages_of([(f, i + w, i, w) for f, i, w in times])
    pipeline = {"schedule": "1f1b", "gradient_accumulation_count": 4, "stages": stages}
    found = synthesize(Request.from_dict({"system": {"name": "free"}, "pipeline": pipeline}), seconds=0.7)
    assert found.best.times.makespan_cycles == Exact(times, 4).makespan()


def drawn_small(seed, sync):
    """Return a request of two or three uneven stages and micro-batches, their times and their IPUs."""
    random = Random(f"tiny {seed} {sync}")
    stages, count = random.choice(
        [(2, 2), (2, 3), (3, 2), (2, 2), (3, 3)] if draws_everything() else [(2, 2), (2, 3), (3, 2)]
    )
    times = []
    for _ in range(stages):
        forward, first, second = (random.randint(20, 200) for _ in range(3))
        # In point-to-point a whole backward pass that takes no less than its halves is never better than they are.
        whole = first + second + (random.choice([0, 0, -10, 25]) if sync == "lock_step" else 0)
        times.append({"F": forward, "B": whole, "I": first, "W": second})
    listed = stages_of([of.values() for of in times])
    system = random.choice(["free", "m2000"]) if sync == "lock_step" else "free"
    pipeline = {"schedule": "1f1b", "sync": sync, "gradient_accumulation_count": count, "stages": listed}
    return Request.from_dict({"system": {"name": system}, "pipeline": pipeline}), times, count


@sampled(2)
@pytest.mark.usefixtures("clock_of_turns")
@pytest.mark.parametrize("sync", ["lock_step", "point_to_point"])
@pytest.mark.parametrize("seed", seeds(60))
def test_of_two_or_three_stages_and_micro_batches_the_optimum_is_found(seed, sync):
    request, times, count = drawn_small(seed, sync)
    found = synthesize(request, seconds=0.7)
    if sync == "lock_step":
        (meeting,) = {copy.total_cycles for of in found.best.result.job.costs.copies.by_group for copy in of}
        best = ExactTimeSteps(times, count, meeting, range(len(times))).makespan()
        assert found.bound.states > 0
        assert found.is_optimal
    else:
        best = Exact([(of["F"], of["I"], of["W"]) for of in times], count).makespan()
    assert found.best.times.makespan_cycles == best


def test_two_stages_of_an_ipu_are_proven_too():
    times = [dict(zip("FBIW", of, strict=True)) for of in ((30, 90, 40, 50), (60, 70, 60, 30), (20, 80, 50, 20))]
    listed = stages_of([of.values() for of in times])
    pipeline = {"schedule": "gpipe", "sync": "lock_step", "gradient_accumulation_count": 2, "stages": listed}
    pipeline["device_mapping"] = [0, 1, 0]
    found = synthesize(Request.from_dict({"system": {"name": "free"}, "pipeline": pipeline}), ["gpipe"], seconds=2)
    assert found.best.times.makespan_cycles == found.bound.cycles == ExactTimeSteps(times, 2, 0, [0, 1, 0]).makespan()
    assert found.bound.states


def test_a_bound_on_orders_that_copy_after_every_time_step_proves_nothing_of_sharded():
    """Sharded copies only gradients to the first stage, and nothing forward: it takes less than the bound."""
    last = {"name": "b", "forward": 37_972, "backward": 75_944, "gradient_bytes": 260_025}
    pipeline = {"schedule": "1f1b", "sync": "lock_step", "gradient_accumulation_count": 4}
    pipeline["stages"] = [{"name": "a", "forward": 500, "backward": 0}, last]
    found = synthesize(Request.from_dict({"system": {"name": "m2000"}, "pipeline": pipeline}), seconds=0.2)
    assert found.best.schedule == "sharded"
    assert found.best.times.makespan_cycles < found.bound.cycles
    assert not found.is_optimal
    assert "No bound is known, because sharded does not copy after every time-step" in "\n".join(verdict(found))


def test_the_order_searched_has_any_count():
    """Interleaved 1F1B wants a multiple of three micro-batches; an Order that is searched does not."""
    listed = [{"name": f"s{n}", "forward": 10 + n, "backward": 20 + n} for n in range(6)]
    pipeline = {"device_mapping": [0, 1, 2] * 2, "gradient_accumulation_count": 4, "stages": listed}
    found = {
        name: synthesize(
            Request.from_dict({"system": {"name": "free"}, "pipeline": {**pipeline, "schedule": name}}), seconds=0.2
        )
        for name in ("gpipe", "interleaved_1f1b")
    }
    assert {result.best.times.count for result in found.values()} == {4}
    assert found["interleaved_1f1b"].best.result.job.program.shape.mapping == (0, 1, 2, 0, 1, 2)


#: Of twenty drawn requests those for which an order is made that is better than all schedules, and repeats itself.
BETTERED = (1, 4, 5, 6, 7, 8, 13, 14, 16, 19)


@sampled(2)
@pytest.mark.usefixtures("clock_of_turns")
@pytest.mark.parametrize("seed", BETTERED[: share(len(BETTERED))])
def test_what_is_found_takes_as_much_more_with_each_further_period(seed):
    request, most = drawn(1000 + seed)
    found = synthesize(request, seconds=SHORT if draws_everything() else SHORT / 4, memory=most)
    assert found.new_order is not None
    assert found.is_periodic
    with schedules.temporarily():
        schedules.register(schedules.in_words(NAME, found.words))
        # Apart by a multiple of all periods up to 8 micro-batches: links or slots may repeat themselves after several.
        counts = [found.least_count + 840 * further for further in (0, 4, 5, 6)]
        options = {"pipeline.schedule": NAME, "pipeline.sync": found.best.sync.value}
        jobs = [
            assemble(request.replace({**options, "pipeline.gradient_accumulation_count": count})) for count in counts
        ]
        first, *others = [execute(job).summary.makespan_cycles for job in jobs]
    assert first == found.new_order.times.makespan_cycles
    assert others[2] - others[1] == others[1] - others[0]
    limits = [*most, *[1 << 60] * 8]
    assert all(peak.bytes <= limits[peak.ipu] for job in jobs for peak in job.memory.peaks)
