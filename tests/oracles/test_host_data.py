"""The host's own data rate: all infeeds of a host share it, and no number of replicas passes it."""

import random
from fractions import Fraction

import pytest

from ipusim.app.explain.explanation import explain
from ipusim.app.suggest.limits import Limits
from ipusim.app.suggest.suggestion import suggest
from ipusim.app.sweep.ceiling import ceilings
from ipusim.app.sweep.sweep import sweep
from ipusim.app.sweep.vary import axes_of
from ipusim.runs.execute import execute
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import SpanKind

#: At 1 GHz the IPU reads an element in 1,000 cycles, and its buffer is filled in 2,000.
TEXT = """
system: {name: m2000, clock: 1 GHz, auto_select_ipus: 1, host: {infeed: 4 GB/s, host_fill: 2 GB/s, data_rate: 1 GB/s}}
infeed: {element_bytes: 4000 B}
pipeline:
  schedule: single
  gradient_accumulation_count: 6
  stages: [{name: a, forward: 100, backward: 200, update: 50}]
"""
INFEED, DATA, PASSES, UPDATE = 1000, 4000, 300, 50
TRACKS = HostTrack.INFEED, HostTrack.SECOND_INFEED


def fills(run):
    """Return begin and end of each preparation of an element, by the feed that it is for."""
    of = {}
    for span in run.timeline.expanded():
        if span.kind == SpanKind.HOST and span.link in TRACKS:
            of.setdefault((span.replica, span.link), []).append((span.start, span.end))
    return of


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize(("rate", "data"), [("1 GB/s", DATA), ("100 MB/s", 10 * DATA), ("1.6 GB/s", 2500)])
def test_n_replicas_take_n_times_the_bytes_of_a_sample_at_the_rate(load, replicas, rate, data):
    run = execute(load(TEXT, f"system.auto_select_ipus={replicas}", f"system.host.data_rate={rate}"))
    period = replicas * data
    expected = [(period * number, period * (number + 1)) for number in range(6)]
    assert fills(run) == {(replica, HostTrack.INFEED): expected for replica in range(replicas)}
    makespan = run.timeline.makespan_cycles
    if replicas == 1:
        assert makespan == 6 * data + INFEED + PASSES + UPDATE
    assert 6 * period < makespan < 8 * period


def drawn_changes(rng):
    """Return overrides under which infeeds begin and end elements at different times."""
    schedule = rng.choice(["single", "grouped", "1f1b", "dualpipe"])
    stages = 1 if schedule == "single" else 2
    replicas = rng.choice([2, 4] if stages == 1 else [2])
    named = ", ".join(f"{{name: s{at}, forward: {rng.randrange(50, 3000)}, backward: 70}}" for at in range(stages))
    return [
        f"system.auto_select_ipus={stages * replicas}",
        "system.sync_replicas_independently=true",
        f"system.host.data_rate={rng.choice(['700 MB/s', '1 GB/s', '3 GB/s', '5 GB/s'])}",
        f"infeed.prefetch_depth={rng.randrange(1, 4)}",
        f"pipeline.schedule={schedule}",
        "pipeline.gradient_accumulation_count=12",
        f"pipeline.repeat_count={rng.randrange(1, 3)}",
        f"pipeline.stages=[{named}]",
        f"disturbances=[{{jitter: 0.3, seed: {rng.randrange(99)}}}, {{ipu: {stages}, slower: 1.7}}]",
    ]


@pytest.mark.parametrize("seed", range(12))
def test_every_element_takes_its_share_of_the_rate(load, seed):
    """Integrate the share of each feed over the cycles of an element: all of it has passed at its end, not before."""
    run = execute(load(TEXT, *drawn_changes(random.Random(seed))))
    of, (fill, data) = fills(run), (run.job.costs.host.fill, run.job.costs.host.data)
    spans = [span for feed in of.values() for span in feed]
    moments = sorted({moment for span in spans for moment in span})
    active = {start: sum(begin <= start < end for begin, end in spans) for start in moments}

    def passed(begin, end):
        inside = [moment for moment in moments if begin <= moment < end]
        shares = [
            (min(until, end) - start) * Fraction(1, max(fill, active[start] * data))
            for start, until in zip(inside, [*inside[1:], end], strict=True)
        ]
        return sum(shares)

    assert len(of) == run.job.system.replicas * len(run.job.plan.shape.copies)
    for begin, end in spans:
        assert passed(begin, end - 1) < 1 <= passed(begin, end)


def test_each_of_several_hosts_has_a_rate_of_its_own(load):
    one, two = (execute(load(TEXT, f"system.host.count={count}")) for count in (1, 2))
    assert fills(one) == fills(two)


def test_a_slow_host_makes_samples_more_slowly(load):
    run = execute(load(TEXT, "system.auto_select_ipus=2", "disturbances=[{host: infeed, slower: 2}]"))
    assert fills(run)[1, 0][:2] == [(0, 4 * DATA), (4 * DATA, 8 * DATA)]


@pytest.mark.parametrize("replicas", [1, 4])
def test_a_long_run_that_waits_for_its_host_is_that_of_all_its_micro_batches(load, replicas):
    counts = "pipeline.gradient_accumulation_count=1000", "pipeline.repeat_count=3"
    job = load(TEXT, f"system.auto_select_ipus={replicas}", *counts)
    part, whole = execute(job), execute(job.whole, jump=False)
    assert part.timeline.repeats
    assert part.timeline.expanded() == whole.timeline
    assert part.summary.to_dict() == whole.summary.to_dict()
    shares = part.summary.to_dict()["waterfall"]["shares"]
    assert max(shares, key=shares.get) == "host"


def test_suggest_proves_no_plan_faster_than_the_host(load):
    request = load(TEXT, "system.auto_select_ipus=4", "pipeline.gradient_accumulation_count=16").request
    found = suggest(request, Limits(ipus=(1, 2, 4), global_batch=64))
    assert found.searched.skipped_bound is None  # all of it was searched
    assert found.trial.cycles >= 64 * DATA


def test_no_count_passes_the_rate_on_any_number_of_ipus(load):
    request = load(TEXT).request
    varied = {"system.auto_select_ipus": [1, 2, 4], "pipeline.gradient_accumulation_count": [4, 8, 16, 32]}
    found = sweep(request, axes_of(varied))
    assert all(outcome.samples_per_s < 10**9 / DATA for _, outcome in found.finished_points)
    limits = ceilings(found)
    assert [limit.options["system.auto_select_ipus"] for limit in limits] == [1, 2, 4]
    assert [limit.samples_per_s for limit in limits] == pytest.approx([10**9 / DATA] * 3)


def test_explain_says_that_the_host_is_waited_for(load):
    run = execute(load(TEXT, "system.auto_select_ipus=4"))
    explanation = explain(run.timeline, run.job)
    assert explanation.ipu_time[0][1].tolist() == [6 * PASSES] * 4
    (host,) = [cycles for look, cycles in explanation.ipu_time if look.name == "host"]
    assert host.min() > 0.9 * run.timeline.makespan_cycles
    (quicker,) = [each for each in explanation.what_ifs if each.change.words == "the host twice as fast"]
    assert quicker.gain == pytest.approx(0.5, abs=0.01)
