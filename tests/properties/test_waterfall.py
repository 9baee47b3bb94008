"""The parts of a run's time, whatever runs: each sum of the first parts is what the run takes without the others."""

import random
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from ipusim.analysis.throughput import throughput_of
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.request.request import Request
from ipusim.runs.time_alone import timeline_of
from ipusim.runs.waterfall import price_without, waterfall_of
from ipusim.schedules.registry import find, names
from ipusim.timeline.kinds import PASSES
from ipusim.timeline.time_parts import TimePart
from tests.effort import sampled, seeds
from tests.properties.test_repeats import drawn
from tests.schedules import goes_around, is_a_v, mapping_of, multiple_of


def job_of(seed):
    """A drawn Job: stages as they come, with hosts, replicas, recomputation, Streaming Memory, disturbances."""
    rng, scenario = random.Random(seed), drawn(seed)
    pipeline = scenario["pipeline"]
    if pipeline["schedule"] in ("grouped", "1f1b", "gpipe", "sharded", "sequential") and rng.random() < 0.4:
        pipeline |= {"allow_recompute": True, "gradient_accumulation_count": 24}
    if scenario["system"]["name"] != "free" and rng.random() < 0.3:
        pipeline["offload_weight_update_variables"] = True
        scenario["system"]["enable_remote_buffers"] = True
        for stage in pipeline["stages"]:
            stage |= {"parameter_bytes": 40_000, "state_bytes": rng.choice((0, 80_000))}
    request = Request.from_dict(scenario, name="drawn", folder=Path())
    if rng.random() < 0.3:
        slow = {"ipu": rng.randrange(scenario["system"]["auto_select_ipus"]), "slower": 2}
        slow |= rng.choice(({}, {"from": rng.randrange(2000)}, {"from": rng.randrange(2000), "until": 9_000}))
        request = request.replace({"disturbances": [slow]})
    job = assemble(request)
    piled_up = any(tensors > 40 for tensors in job.plan.waiting.values())  # takes as long as the square of their number
    return job.with_counts(job.program.shape.micro_batches, 1) if piled_up else job


@sampled(2)
@pytest.mark.parametrize("seed", seeds(300))
def test_parts_add_up_to_the_run_without_the_others(seed):
    check_parts(job_of(seed))


def test_parts_of_replicas_that_load_state_at_different_times_add_up_too():
    """A slow replica updates later than the other, and both share Streaming Memory: only events give the times."""
    first = {"name": "a", "forward": 1000, "backward": 2000, "output_bytes": 1024}
    last = {"name": "b", "forward": 1000, "backward": 2000, "gradient_bytes": 1024, "state_bytes": 100_000}
    options = {
        "system": {"name": "m2000", "auto_select_ipus": 4, "enable_remote_buffers": True},
        "pipeline": {"schedule": "1f1b", "gradient_accumulation_count": 4, "stages": [first, last | {"update": 5000}]},
        "disturbances": [{"ipu": 2, "slower": 1.5}],
    }
    check_parts(assemble(Request.from_dict(options)))


def check_parts(job):
    """Hold the parts of a run's time against runs without the first part, the first two, and so on."""
    run = execute(job)
    found = run.summary.waterfall
    assert list(found.cycles) == list(TimePart)
    assert found.run_cycles == throughput_of(run.timeline).run_cycles
    sums = list(accumulate(found.cycles.values()))
    for cuts, cycles in zip(range(7, -1, -1), sums[2:], strict=True):
        whole = timeline_of(job, job.executions, jump=False, price=lambda of, cuts=cuts: price_without(of, cuts))
        assert cycles == throughput_of(whole).run_cycles
        if cuts == 7:  # the balanced run, of whose IPUs the busiest has the useful cycles
            passes = np.isin(whole.kind, PASSES)
            assert sums[0] == np.bincount(whole.ipu[passes], (whole.end - whole.start)[passes]).max()
    told = " ".join(found.remarks())
    for part, cycles in found.cycles.items():
        assert (cycles < 0) == (part.words.capitalize() in told)
    assert min(found.cycles[TimePart.FILL_AND_DRAIN], found.cycles[TimePart.GAPS_IN_MAIN]) >= 0


#: Backward passes of these cycles, by the input and by the weights, take a cycle more in two halves than in one.
ODD = (1, 7, 123, 999, 2001)
EVEN = (2, 246, 1000, 2000)


def odd_job(name, seed, sync=None):
    """Return the Job of stages whose passes differ, of so many micro-batches that a part stands for them."""
    rng = random.Random(f"{name}{seed}")
    schedule, ipus = find(name), rng.choice((2, 4))
    twice, odd = goes_around(name) or is_a_v(name), rng.random() < 0.8
    mapping = [*mapping_of(name, 2 * ipus)] if twice else [*range(ipus)]
    stages = [
        {
            "name": f"s{number}",
            "forward": rng.choice(ODD + EVEN),
            "backward": rng.choice(ODD if odd else EVEN),
            "update": rng.choice((0, 7, 500)),
            "output_bytes": rng.choice((0, 4096)),
        }
        for number in range(len(mapping))
    ]
    multiple = multiple_of(name, len(mapping), ipus)
    pipeline = {
        "schedule": name,
        "sync": (sync or rng.choice(schedule.syncs)).value,
        "stages": stages,
        "device_mapping": mapping,
        "gradient_accumulation_count": multiple * -(-rng.randint(100, 240) // multiple),
        "repeat_count": rng.choice((1, 1, 3, 5)),
    }
    if rng.random() < 0.15:
        pipeline["overlapped"] = rng.choice(("max", 1501))
    # Where all micro-batches go forward first, tensors pile up on links, and a run takes as the square of their number.
    systems = ("free",) if schedule.in_phases else ("free", "pod16")
    options = {"system": {"name": rng.choice(systems)}, "pipeline": pipeline, "memory": "report"}
    if rng.random() < 0.3:
        options["infeed"] = {"element_bytes": rng.choice((100, 50_000))}
    if rng.random() < 0.3:
        options["disturbances"] = [{"ipu": 1, "slower": 3}]
    return assemble(Request.from_dict(options, name="odd", folder=Path()))


#: Names and seeds: more of the schedules that have whole backward passes beside halves.
DRAWS = [
    (name, seed) for name in names() for seed in range(8 if name.startswith("dualpipe") else 3) if name != "single"
]


@sampled(2)
@pytest.mark.parametrize(("name", "seed"), DRAWS)
def test_parts_of_a_run_that_is_simulated_in_part_are_those_of_the_whole(name, seed):
    """However the halves of backward passes round: some schedules have them in their ramps alone."""
    job = odd_job(name, seed)
    laid_out = replace(job.whole, with_counts=None)  # of which no part can be laid out
    whole = timeline_of(laid_out, job.executions, jump=False)
    parts = waterfall_of(laid_out, whole)
    assert waterfall_of(job, timeline_of(job, job.executions)) == parts
    assert min(parts.cycles[TimePart.FILL_AND_DRAIN], parts.cycles[TimePart.GAPS_IN_MAIN]) >= 0
