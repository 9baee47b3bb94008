"""Runs and texts drawn at random, and long properties in shards.

Texts have the characters of UTF-8, without the codec: asked for it, Hypothesis encodes a million characters, for
seconds.
"""

import random
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from ipusim.pricing import laws
from ipusim.pricing.exchanges import HostExchange
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.job import Job
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from ipusim.runs.time_alone import timeline_of
from ipusim.schedules.registry import find, names
from tests.effort import draw_the_same_everywhere, runs_slowest, share, slowest
from tests.properties.test_disturbed_runs import drawn_disturbances
from tests.schedules import (
    goes_around,
    is_a_v,
    keys_of,
    mapping_of,
    multiple_of,
    options_of,
    ragged,
    takes_even_ipus,
    trains_only,
)

#: Passes of a run at most, so that simulating it whole takes a fraction of a second.
MOST_PASSES = 5_000
#: Micro-batches of an execution, executions of a step, and steps: long executions, many executions, and many steps.
COUNTS = (((72, 120, 240), (1, 2), (1, 2)), ((4, 12), (20, 40), (1, 2)), ((4, 12), (2, 3, 5), (9, 24)))
#: Bytes of an element of a feed: none, quick to copy, slow to copy.
ELEMENT_BYTES = (0, 100, 40_000, 3_000_000)
#: Depths of a feed's buffer: the default, one element, and more elements than a short run has.
DEPTHS = (3, 1, 20, 255)
#: Rates at which the host fills and drains buffers: the machine's, and slower than the IPUs.
RATES = (None, "20 GB/s", "300 MB/s")
#: A model with data that are held out, of which time alone is simulated.
MODEL = {
    "data": {"type": "synthetic", "shape": [6], "classes": 3, "samples": 64, "hold_out": 0.25},
    "model": {
        "layers": [
            {"name": "hidden", "type": "dense", "units": 8, "activation": "relu"},
            {"name": "scores", "type": "dense", "units": 3},
            {"name": "loss", "type": "softmax_cross_entropy"},
        ]
    },
    "numerics": "off",
}
#: Exchanges of hosts before a session run, and copies of weights to an IPU.
EXCHANGES = (laws.NETWORK_SUM, laws.NETWORK_GATHER, laws.NETWORK_BROADCAST, laws.FILL, laws.WEIGHTS_IN)


def drawn_scenario(seed: int) -> dict[str, Any]:
    """Return the options of a drawn run, without disturbances."""
    rng = random.Random(seed)
    computing = rng.random() < 0.2
    schedule = rng.choice([name for name in names() if not (computing and find(name).segments > 1)])
    training = trains_only(schedule) or rng.random() < 0.65
    ipus = 2 if computing else rng.choice((2, 2, 3, 4))
    ipus += ipus % 2 if takes_even_ipus(schedule) or is_a_v(schedule) else 0
    turns = 2 if is_a_v(schedule) or goes_around(schedule) else 1
    stages = 2 if computing else ipus * turns
    multiple = multiple_of(schedule, stages, ipus, training)
    count, repeat_count, steps = map(rng.choice, rng.choice(COUNTS))
    pipeline: dict[str, Any] = {
        "schedule": schedule,
        "gradient_accumulation_count": ragged(rng, schedule, multiple * max(1, count // multiple), ipus),
        "repeat_count": repeat_count,
    }
    pipeline |= keys_of(options_of(rng, schedule, pipeline["gradient_accumulation_count"], ipus))
    if turns > 1:
        pipeline["device_mapping"] = list(mapping_of(schedule, stages))
    if rng.random() < 0.5:
        pipeline["sync"] = rng.choice(("lock_step", "point_to_point"))
    machine = rng.choice(("free", "m2000", "bow_pod16"))
    system: dict[str, Any] = {"name": machine, "host": _host(rng, machine)}
    if rng.random() < 0.25:
        system["auto_select_ipus"] = (2 if ipus == 2 else 4) * (1 if machine == "m2000" else 2)
    if schedule == "grouped" and machine != "free" and rng.random() < 0.6:
        system["io_tiles"] = {"num_io_tiles": 32, "place_ops_on_io_tiles": True}
    scenario: dict[str, Any] = {
        "system": system,
        "pipeline": pipeline,
        "steps": steps,
        "infeed": {"element_bytes": rng.choice(ELEMENT_BYTES), "prefetch_depth": rng.choice(DEPTHS)},
        "outfeed": {
            "element_bytes": rng.choice(ELEMENT_BYTES),
            "mode": rng.choice(("ALL", "LAST")),
            "buffer_depth": rng.choice(DEPTHS),
        },
        "memory": "report",
    }
    if computing:
        pipeline |= {"splits": ["scores"], "micro_batch_size": 2}
        scenario |= MODEL | ({"optimizer": {"type": "sgd", "learning_rate": 0.1}} if training else {})
        scenario |= {"evaluate": {"every": rng.randint(1, 4)}} if training or rng.random() < 0.5 else {}
        pipeline["accumulate_outfeed"] = training and scenario["outfeed"]["mode"] == "ALL" and rng.random() < 0.3
    else:
        scenario["training"] = training
        pipeline["stages"] = [_stage(rng, number, stages, training) for number in range(stages)]
        pipeline["replicated_optimizer_state_sharding"] = training and system["host"].get("framework") == "popart"
        if find(schedule).segments > 1:
            pipeline["segments"] = rng.randint(2, 4)
    return scenario


def _host(rng: random.Random, machine: str) -> dict[str, Any]:
    """Return the options of a host, which is slower than the IPUs or one of several in some draws."""
    host = {key: rate for key in ("host_fill", "host_drain") if (rate := rng.choice(RATES)) is not None}
    if machine != "free":
        host |= {"framework": rng.choice(("tensorflow1", "popart"))} if rng.random() < 0.3 else {}
        host |= {"count": 2} if rng.random() < 0.25 else {}
    return host


def _stage(rng: random.Random, number: int, stages: int, training: bool) -> dict[str, Any]:
    """Return a stage known by its cycles."""
    stage: dict[str, Any] = {"name": f"s{number}", "forward": rng.choice((1000, 1000, 1130))}
    if number < stages - 1:
        stage["output_bytes"] = rng.choice((0, 500, 3000))
    if training:
        stage |= {"backward": rng.choice((2000, 2000, 2340)), "update": rng.choice((0, 500)), "parameter_bytes": 4000}
        stage |= {"state_bytes": 8000}
        if number:
            stage["gradient_bytes"] = rng.choice((0, 500, 3000))
    return stage


@cache
def drawn_job(seed: int) -> Job:
    """Return a drawn Job of time alone: with exchanges between its hosts, or disturbed, in some draws."""
    rng = random.Random(seed)
    job = _within_bounds(rng)
    if job.system.hosts > 1 and rng.random() < 0.6:  # as recorded of a program of several hosts
        begins = range(0, job.executions, job.program.repeat_count)
        between = {
            execution: (HostExchange(rng.choice(EXCHANGES), rng.choice((4, 4000))),)
            for execution in begins
            if rng.random() < 0.5
        }
        late = [rng.choice((0, 700)) for _ in range(job.executions)]
        return replace(job, between=between, late=tuple(late) if rng.random() < 0.7 else ())
    if rng.random() < 0.35:
        length = timeline_of(job, job.executions).makespan_cycles
        return assemble(job.request.replace({"disturbances": drawn_disturbances(rng, job.system, length)}))
    return job


def _within_bounds(rng: random.Random) -> Job:
    """Return the first drawn Job that the rules accept and that is quick to simulate whole."""
    while True:
        with suppress(RequestError):  # of a count or mapping that the schedule cannot lay out
            job = assemble(Request.from_dict(drawn_scenario(rng.randrange(10**9)), name="drawn"))
            if job.of_whole(lambda of: len(of.plan.table)) * job.executions * job.system.replicas <= MOST_PASSES:
                return job


#: Every shard draws from a seed of its own, and the smallest example, which all of them draw first, beyond its share.
SHARDS = 10
#: Those that run, by default a few with more examples each: every shard begins with the smallest one.
SOME_SHARDS = [*range(3), *(pytest.param(shard, marks=slowest) for shard in range(3, SHARDS))]


def some(examples):
    """Return the number of examples of which each shard checks its part, of so many in all."""
    return share(examples) if runs_slowest() else 6 * SHARDS


def check_shard(shard, strategy, check, *, examples):
    """Check this shard's part of ``examples`` drawn ones."""

    @seed(shard)
    @settings(max_examples=examples // SHARDS + 1, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def part(example):
        check(example)

    part()


def drawn(strategy, *, examples):
    """Yield what all shards draw, the same examples that they check; a shard draws when its first is asked for."""
    for shard in range(SHARDS):
        found = []
        check_shard(shard, strategy, found.append, examples=examples)
        yield from found


draw_the_same_everywhere()


@lru_cache(maxsize=None, typed=True)
def among(*values):
    """Return what draws one of ``values``: for the same ones the same, as Hypothesis checks each that is new."""
    return st.sampled_from(values)


def any_text(**sizes: Any) -> st.SearchStrategy[str]:
    """Return what draws texts of any characters but halves of a surrogate pair, as ``st.text`` does."""
    return st.text(st.characters(exclude_categories=("Cs",)), **sizes)
