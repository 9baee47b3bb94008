"""Drawn sets of disturbances of drawn runs: IPUs' spans tile them, jumping changes nothing, idle time has its cause."""

import random
from contextlib import suppress

import numpy as np
import pytest

from ipusim.analysis.causes import idle_causes
from ipusim.analysis.idle_roots import idle_by_root
from ipusim.analysis.throughput import throughput_of
from ipusim.machine import delivery
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from tests.effort import draws_everything, sampled, seeds
from tests.properties.test_repeats import drawn
from tests.scenarios import job_from, job_of
from tests.timelines import check_tiling

#: Passes of a run of several executions, at most, by default.
MOST_PASSES = 4000
#: A training of two stages with arithmetic.
LEARNING = {
    "system": {"name": "m2000", "auto_select_ipus": 4},
    "data": {"type": "synthetic", "shape": [5], "classes": 3, "samples": 48},
    "model": {
        "layers": [
            {"name": "hidden", "type": "dense", "units": 8, "activation": "tanh"},
            {"name": "scores", "type": "dense", "units": 3},
            {"name": "far", "type": "softmax_cross_entropy"},
        ]
    },
    "pipeline": {"splits": ["scores"], "micro_batch_size": 2, "gradient_accumulation_count": 4},
    "optimizer": {"type": "sgd", "learning_rate": 0.1},
    "steps": 3,
}


def drawn_disturbances(rng, system, length):
    """One to four disturbances that a system can have, within a run of such a length or beyond it."""

    def time():
        return rng.randrange(max(1, length * 5 // 4))

    def during():
        first = time()
        return rng.choice(({}, {"from": first}, {"until": first}, {"from": first, "until": first + time()}))

    ipus = range(system.count)
    links = [(one, other) for one in ipus for other in system.cables[one]]
    parts = ("infeed", "outfeed", "tables", "variables", "outside", "network", "program")
    saved = {"checkpoint": rng.randrange(100), "checkpoint_every": rng.randint(1, 3), "spare": rng.random() < 0.5}
    makers = [
        lambda: {"ipu": rng.choice(ipus), "slower": rng.choice((1, 1.3, 2, 7.5)), **during()},
        lambda: {"ipu": rng.choice(ipus), "jitter": f"{rng.randint(0, 30)} %", "seed": rng.randrange(100)},
        lambda: {"jitter": "5 %", "seed": rng.randrange(100)},
        lambda: {"host": rng.choice(parts), "slower": rng.choice((1.5, 4)), **during()},
        lambda: {"host": rng.choice(parts), "stall": time(), "at": time()},
        lambda: {"streaming_memory": system.streaming_memory_of(0), "slower": 2, **during()},
        lambda: {"ipu": rng.choice(ipus), "lost": time(), "detect": time(), "restart": time(), **saved},
    ]
    if links:
        makers += [
            lambda: {"link": list(rng.choice(links)), "slower": rng.choice((1, 4)), "delay": rng.randrange(500)},
            lambda: {"link": list(rng.choice(links)), "delay": rng.randrange(500), **during()},
        ]
    if system.count > 2:
        makers.append(lambda: {"link": list(links[0]), "dead": True})
    if system.count > 2 and system.replicas == system.hosts == 1:
        makers.append(lambda: {"link": list(links[0]), "dead": True, "from": time()})
    return [rng.choice(makers)() for _ in range(rng.randint(1, 4))]


def drawn_job(rng, is_short=lambda job: True, **pipeline):
    """Return a drawn Job without disturbances, with some options of its pipeline, and the length of its run."""
    while True:
        scenario = drawn(rng.randrange(10**6))
        scenario["pipeline"] |= {key: rng.choice(values) for key, values in pipeline.items()}
        with suppress(RequestError):  # of a count that its schedule cannot lay out
            job = job_from(scenario)
            if is_short(job):
                return job, execute(job).timeline.makespan_cycles


def check_disturbed(plain, disturbances):
    """Hold the disturbed run of a Job against the same run without jumps; return both."""
    job = assemble(plain.request.replace({"disturbances": disturbances}))
    run, whole = execute(job), execute(job, jump=False)
    assert run.timeline.expanded() == whole.timeline, disturbances
    return run, whole


@sampled(2)
@pytest.mark.parametrize("seed", seeds(300))
def test_any_disturbances_of_any_run(seed):
    rng = random.Random(seed)
    plain, length = drawn_job(rng)
    disturbances = drawn_disturbances(rng, plain.system, length)
    run, whole = check_disturbed(plain, disturbances)
    assert run.summary.disturbances == whole.summary.disturbances, disturbances
    check_tiling(whole.timeline)
    idle = idle_causes(run.timeline)
    assert (idle_by_root(run.timeline).sum(axis=(1, 2)) <= idle.cycles.sum(axis=1)).all()
    holders = list(run.timeline.info.stages_of_ipu)
    np.testing.assert_array_equal((idle.cycles.sum(axis=1) + idle.busy)[holders], idle.window_cycles)
    undisturbed, cost = execute(plain).timeline, run.summary.disturbances
    if cost is None:
        assert run.timeline == undisturbed, disturbances  # such as of an IPU that is 1 times slower
        return
    assert cost.plain_cycles == throughput_of(undisturbed).run_cycles
    assert all(cycles > 0 for cycles in cost.waits.values())


@sampled(2)
@pytest.mark.parametrize("seed", seeds(300))
def test_tensors_on_lanes_take_as_long_as_links_need_for_them(monkeypatch, seed):
    rng = random.Random(seed)
    plain, length = drawn_job(rng, sync=["point_to_point"])
    for disturbances in ([], drawn_disturbances(rng, plain.system, length)):
        job = assemble(plain.request.replace({"disturbances": disturbances}))
        run = execute(job, jump=False)
        with monkeypatch.context() as patch:
            patch.setattr(delivery, "lanes_of", lambda _: set())
            carried = execute(job, jump=False)
        assert run.timeline == carried.timeline, disturbances


@sampled(2)
@pytest.mark.parametrize("seed", seeds(100))
def test_of_several_executions_those_before_between_and_behind_changes_are_left_out(seed):
    def is_short(job):
        return draws_everything() or job.of_whole(lambda of: len(of.plan.table)) * job.executions <= MOST_PASSES

    rng = random.Random(seed)
    plain, length = drawn_job(rng, is_short, repeat_count=(12, 20, 40) if draws_everything() else (16, 24, 40))
    first, stalled = rng.randrange(length), rng.randrange(length)
    disturbances = [
        {"ipu": rng.choice(range(plain.system.count)), "slower": 2, "from": first, "until": first + length // 20},
        {"host": "infeed", "stall": rng.randrange(5000), "at": stalled},
        {"ipu": 0, "slower": 1.3, "from": rng.randrange(length)},
    ][: rng.randint(1, 3)]
    run, whole = check_disturbed(plain, disturbances)
    assert run.summary.times_dict() == whole.summary.times_dict(), disturbances
    if seed % 3 == 0 or draws_everything():  # with the parts of the time, for which the run is simulated without each
        assert run.summary.to_dict() == whole.summary.to_dict(), disturbances


@pytest.mark.parametrize("sync", ["lock_step", "point_to_point"])
def test_of_a_thousand_executions_few_are_simulated_around_two_changes(sync):
    plain = job_of(sync=sync, executions=1000)
    third = execute(plain).timeline.makespan_cycles // 3
    slow = {"ipu": 1, "slower": 2, "from": third, "until": 2 * third}
    run = execute(assemble(plain.request.replace({"disturbances": [slow]})))
    before, between, behind = (block for block in run.timeline.repeats if block.executions)
    assert before.times + between.times + behind.times > 800
    assert between.cycles > before.cycles == behind.cycles
    assert len(run.timeline) < 30 * len(execute(assemble(plain.request.replace({"pipeline.repeat_count": 1}))).timeline)


@pytest.mark.parametrize("seed", seeds(100))
def test_arithmetic_is_the_same_to_the_bit_under_any_disturbances(seed):
    rng = random.Random(seed)
    data = LEARNING | {"pipeline": {**LEARNING["pipeline"], "sync": rng.choice(("lock_step", "point_to_point"))}}
    plain = execute(assemble(Request.from_dict(data)))
    disturbances = drawn_disturbances(rng, plain.job.system, plain.timeline.makespan_cycles)
    run = execute(assemble(Request.from_dict(data | {"disturbances": disturbances})))
    assert run.learning.losses == plain.learning.losses
    for name, array in plain.learning.weights.items():
        np.testing.assert_array_equal(run.learning.weights[name], array)
