"""Schedules whose stages run all micro-batches through one kind of pass before the next repeat in each such phase."""

import io
import random
from typing import Any

import numpy as np
import pytest

from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.job import Job
from ipusim.runs.request.request import Request
from ipusim.runs.time_alone import timeline_of
from ipusim.schedules.registry import find, names
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.timeline import Timeline
from tests.effort import draws_everything, sampled, seeds
from tests.scenarios import job_of

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
