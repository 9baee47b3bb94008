"""The parts of a run's time, whatever runs: each sum of the first parts is what the run takes without the others."""

from __future__ import annotations

import random
from itertools import accumulate
from pathlib import Path

import pytest

from ipusim.analysis.throughput import throughput_of
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.request.request import Request
from ipusim.runs.time_alone import timeline_of
from ipusim.runs.waterfall import busiest_cycles, priced
from ipusim.timeline.time_parts import TimePart
from tests.effort import sampled, seeds
from tests.properties.test_repeats import drawn


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
        slow = {"ipu": rng.randrange(2), "slower": 2, "from": rng.randrange(2000)}
        slow |= rng.choice(({}, {"until": 9_000}))
        request = request.replace({"disturbances": [slow]})
    job = assemble(request)
    piled_up = any(tensors > 40 for tensors in job.plan.waiting.values())  # takes as long as the square of their number
    return job.of(job.program.shape.micro_batches, 1) if piled_up else job


@sampled(2)
@pytest.mark.parametrize("seed", seeds(300))
def test_parts_add_up_to_the_run_without_the_others(seed):
    job = job_of(seed)
    run = execute(job)
    found = run.summary.waterfall
    assert list(found.cycles) == list(TimePart)
    assert found.run_cycles == throughput_of(run.timeline).run_cycles
    sums = list(accumulate(found.cycles.values()))
    balanced = priced(job, 7)[0]
    assert sums[0] == job.executions * busiest_cycles(job, balanced)
    for cuts, cycles in zip(range(7, -1, -1), sums[1:], strict=True):
        whole = timeline_of(job, job.executions, jump=False, priced=lambda of, cuts=cuts: priced(of, cuts))
        assert cycles == throughput_of(whole).run_cycles
    told = " ".join(found.remarks())
    for part, cycles in found.cycles.items():
        assert (cycles < 0) == (part.words.capitalize() in told)
    assert found.cycles[TimePart.FILL_AND_DRAIN] >= 0
