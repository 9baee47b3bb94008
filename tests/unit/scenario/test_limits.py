"""Runs that would take too much memory are refused before they begin, by a bound that is measured."""

import re
from math import prod

import pytest

from ipusim.app.scenario import load_job
from ipusim.app.scenario.problems import ScenarioError
from ipusim.machine.extent import most_cycles, most_spans
from ipusim.runs.assemble import assemble as assembling
from ipusim.runs.assemble import limits
from ipusim.runs.assemble.limits import MAX_RUN_BYTES, PASS_BYTES, SPAN_BYTES
from ipusim.runs.assemble.system import resolve_plan
from ipusim.runs.execute import execute
from ipusim.runs.problems import RequestError
from tests.scenarios import SCENARIOS

FOUR = SCENARIOS / "schedules_four_ipus.yaml"
#: Runs of every kind of span.
KINDS = {
    "schedules_four_ipus": ("system.name=m2000", "infeed.element_bytes=4 KiB", "pipeline.schedule=sequential"),
    "overlapped_io": (),
    "optimizer_state_offload": ("numerics=off",),
    "recomputation": (),
    "concurrent_stages": (),
    "data_parallel_4x4": ("numerics=off", "steps=1", "system.sync_replicas_independently=true"),
    "transformer_eight_ipus": ("numerics=off", "steps=1", "pipeline.repeat_count=2"),
    "inference": ("numerics=off",),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_run_records_no_more_spans_than_were_told_and_not_far_fewer(name):
    experiment = load_job(SCENARIOS / f"{name}.yaml", KINDS[name])
    result = execute(experiment)
    costs = experiment.costs
    told = most_spans(result.job.whole.plan, experiment.system, costs, experiment.executions)
    assert result.timeline.spans_in_all <= told <= 1.5 * result.timeline.spans_in_all


def test_spans_around_passes_whose_weights_lie_in_parts_elsewhere_are_told(load):
    text = """
system: {name: pod16, auto_select_ipus: 8, enable_remote_buffers: true, minimum_remote_tensor_size: 1 B}
pipeline:
  gradient_accumulation_count: 8
  replicated_weight_sharding: true
  offload_weights: true
  stages:
    - {name: a, forward: 10, backward: 20, update: 5, output_bytes: 8, parameter_bytes: 4 MiB, state_bytes: 4 MiB}
    - {name: b, forward: 10, backward: 20, update: 5, parameter_bytes: 4 MiB, state_bytes: 4 MiB}
"""
    experiment = load(text)
    result = execute(experiment)
    costs = experiment.costs
    assert costs.pass_streams
    told = most_spans(result.job.plan, experiment.system, costs, 1)
    assert len(result.timeline.start) <= told <= 2 * len(result.timeline.start)


def test_a_count_that_cannot_be_laid_out_either_is_refused_by_its_passes_alone():
    with pytest.raises(ScenarioError) as caught:
        load_job(FOUR, ["pipeline.gradient_accumulation_count=624001"])
    (problem,) = caught.value.problems
    assert "got one of at least 3.719 GiB: 624001 " in problem.text
    assert " make at least 4992008 spans of the trace; " in problem.text


@pytest.mark.parametrize(
    ("count", "executions", "stages"),
    [
        (64, 1, "{name: a, forward: 10, backward: 10}, {name: b, forward: 10, backward: 50}"),
        (2, 100, "{name: a, forward: 10}, {name: b, forward: 10}"),
    ],
    ids=["for what has no bytes", "for each other at the end of an inference"],
)
def test_waits_count(load, count, executions, stages):
    """In point-to-point an IPU waits for the passes before it, whatever these send."""
    text = f"""
system: {{name: m2000}}
pipeline:
  sync: point_to_point
  gradient_accumulation_count: {count}
  repeat_count: {executions}
  stages: [{stages}]
"""
    job = load(text)
    assert len(execute(job).timeline) <= most_spans(job.plan, job.system, job.costs, executions)


def test_spans_beside_the_passes_count():
    """Of 2,496,000 passes alone the run would fit; with waits, syncs and copies it does not.

    Where the host does something between two session runs, each repeats as a whole, so that they are counted as they
    are.
    """
    changes = ["pipeline.gradient_accumulation_count=24", "pipeline.repeat_count=6500", "steps=2"]
    changes += ["system.name=m2000", "pipeline.schedule=sequential", "pipeline.stages.0.output_bytes=4 KiB"]
    changes += ["system.host.framework=tensorflow1"]
    assert 8 * 24 * 13000 * SPAN_BYTES + 8 * 24 * PASS_BYTES < MAX_RUN_BYTES
    with pytest.raises(ScenarioError) as caught:
        load_job(FOUR, changes)
    assert [problem.key for problem in caught.value.problems] == ["pipeline.repeat_count"]
    assert load_job(FOUR, changes[:-1])  # without a host between them


@pytest.mark.parametrize(
    ("changes", "least", "factors"),
    [
        (
            ["pipeline.schedule=sequential", "pipeline.batch_serialization_iterations=4"],
            200_000,
            "300 gradient_accumulation_count x 4 batch_serialization_iterations x 1 repeat_count x 1 steps, of which "
            "36 micro-batches in 1 execution are simulated, make up to 1188 spans of the trace; make one of the four "
            "smaller",
        ),
        (
            ["pipeline.schedule=1f1b", "steps=200"],
            300_000,
            "300 gradient_accumulation_count x 1 repeat_count x 200 steps, of which 36 micro-batches in 4 executions "
            "are simulated, make up to 2128 spans of the trace; make one of the three smaller",
        ),
    ],
)
def test_the_counts_of_a_run_that_is_too_large_are_those_that_were_given(monkeypatch, changes, least, factors):
    monkeypatch.setattr(limits, "MAX_RUN_BYTES", least)
    with pytest.raises(ScenarioError) as caught:
        load_job(FOUR, ["system.name=m2000", "pipeline.gradient_accumulation_count=300", *changes])
    (problem,) = caught.value.problems
    assert problem.key == "pipeline.gradient_accumulation_count"
    assert problem.text.endswith(f": {factors}")


def test_a_whole_run_that_is_too_large_is_refused_before_its_plan_is_laid_out(monkeypatch):
    """The problem is that of the laid out run, to the span."""
    count, laid_out, problems = 300, [], []
    changes = ["pipeline.schedule=1f1b", "pipeline.sync=point_to_point", "system.name=m2000"]
    job = load_job(FOUR, [*changes, f"pipeline.gradient_accumulation_count={count}"])
    monkeypatch.setattr(limits, "MAX_RUN_BYTES", 1000 * job.program.shape.passes)

    def resolve(options, schedule, shape, findings):
        laid_out.append(shape.micro_batches)
        return resolve_plan(options, schedule, shape, findings)

    monkeypatch.setattr(assembling, "resolve_plan", resolve)
    for refuse in (limits.refuse_large_whole, lambda *_: None):
        assert count not in laid_out
        monkeypatch.setattr(assembling, "refuse_large_whole", refuse)
        with pytest.raises(RequestError) as caught:
            job.with_counts(count, 1)
        problems.append(caught.value.problems)
    assert problems[0] == problems[1]
    assert laid_out[-1] == count


def test_results_that_the_host_keeps_count(load):
    text = """
system: {name: free}
data: {type: synthetic, shape: [64], classes: 2, samples: 64}
model: {layers: [{name: a, type: dense, units: 4}, {name: b, type: dense, units: 65536}]}
pipeline: {splits: [b], micro_batch_size: 64, gradient_accumulation_count: 256}
"""
    with pytest.raises(ScenarioError) as caught:
        load(text)
    (problem,) = caught.value.problems
    assert problem.key == "pipeline.gradient_accumulation_count"
    assert " and 12 GiB of results; make one of the three smaller" in problem.text
    assert load(text, "outfeed.mode=LAST")
    assert load(text, "numerics=off")


@pytest.mark.parametrize(
    "what",
    [
        ("pipeline.variables_on_host=true",),
        ("system.host.count=2",),
        ("system.enable_remote_buffers=true", "system.streaming_memory.bandwidth=1 MB/s"),
    ],
)
def test_a_run_that_lasts_longer_than_a_timeline_can_say_is_refused(load, what):
    """Its cycles passed 64 bits, or the file of its Timeline could not be read."""
    rates = "infeed", "outfeed", "host_fill", "host_drain", "network", "data_rate"
    slow = *(f"system.host.{rate}=1 MB/s" for rate in rates), "memory=off"
    text = """
system: {name: m2000, minimum_remote_tensor_size: 1 B}
pipeline:
  schedule: single
  gradient_accumulation_count: 1
  stages: [{name: a, forward: 10, backward: 10, update: 10, parameter_bytes: 64 GiB, state_bytes: 64 GiB}]
"""
    with pytest.raises(ScenarioError) as caught:
        load(text, *slow, *what, "steps=40000")
    (problem,) = caught.value.problems
    assert problem.key == "pipeline"
    assert problem.text.startswith(f"expected a run of at most {2**62} cycles, got up to ")
    job = load(text, *slow, *what, "steps=2")
    assert execute(job).timeline.makespan_cycles <= most_cycles(job.plan, job.system, job.costs, 2)


@pytest.mark.parametrize(
    ("slower", "refused"),
    [
        ([1000] * 6, 4),
        ([1000] * 4 + [300], 4),
        ([1000] * 4, None),
    ],
)
def test_the_disturbance_whose_product_with_others_makes_a_run_too_long_is_refused(slower, refused):
    """The product of all that slow one IPU is bounded where they are given; less than that is exact."""
    disturbances = f"disturbances=[{', '.join(f'{{ipu: 0, slower: {factor}}}' for factor in slower)}]"
    if refused is None:
        run = execute(load_job(FOUR, [disturbances]))
        assert run.timeline.makespan_cycles >= 8 * 3000 * prod(slower)
        assert 0 <= run.summary.bubble.span_idle_fraction <= 1
        return
    with pytest.raises(ScenarioError) as caught:
        load_job(FOUR, [disturbances])
    (problem,) = caught.value.problems
    assert problem.key == f"disturbances.{refused}.slower"
    assert problem.text.startswith(f"expected a run of at most {2**62} cycles, got up to ")
    reason = "because the disturbances before slow the run too"
    assert problem.text.endswith(f" with this disturbance, {reason}: make it smaller")


def test_windows_that_do_not_overlap_multiply_nothing():
    """A hundred of them on one IPU slow it by one factor at a time."""
    windows = [f"{{ipu: 0, slower: 1000, from: {10_000 * at}, until: {10_000 * at + 5_000}}}" for at in range(100)]
    assert execute(load_job(FOUR, [f"disturbances=[{', '.join(windows)}]"])).timeline.makespan_cycles < 10**6


def test_a_run_whose_cycles_on_all_ipus_together_pass_63_bits_is_refused():
    """One IPU's have less: the idle time of all four was told as 2.63 of the whole."""
    changes = "pipeline.stages.0.forward=100000000000", "pipeline.gradient_accumulation_count=40000000"
    with pytest.raises(RequestError) as caught:
        execute(load_job(FOUR, changes))
    (problem,) = caught.value.problems
    assert problem.path == ("pipeline",)
    found = re.match(
        r"expected a run of at most (\d+) cycles on (\d+) tracks .*, got a run of (\d+): use", problem.text
    )
    most, tracks, cycles = map(int, found.groups())
    assert tracks >= 4
    assert most * tracks <= 2**63 - 1 < cycles * tracks
