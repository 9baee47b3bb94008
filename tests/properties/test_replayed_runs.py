"""Replays of simulated runs, written as traces: a run differs from the simulation of its plan in what disturbed it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ipusim.analysis.critical_path import critical_path_of
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.request.request import Request
from ipusim.timeline.kinds import PASSES, SpanKind, of_kinds
from tests.effort import share
from tests.trace_files import events_of, replayed

SCHEDULES = ("gpipe", "1f1b", "eager_1f1b", "zero_bubble_h1", "interleaved_1f1b", "zbv", "breadth_first")
CYCLES = st.integers(1, 10**6)


@st.composite
def requests(draw):
    schedule = draw(st.sampled_from(SCHEDULES))
    per_ipu = 2 if schedule in ("interleaved_1f1b", "zbv", "breadth_first") else 1
    ipus = draw(st.integers(2, 3))
    stages = []
    for number in range(ipus * per_ipu):
        halves = {"backward_input": draw(CYCLES), "backward_weights": draw(CYCLES)}
        stages.append(
            {"name": f"s{number}", "forward": draw(CYCLES), "backward": sum(halves.values()), **halves, "update": 9}
        )
    count = draw(st.integers(1, 2)) * 2 * ipus
    pipeline = {"schedule": schedule, "sync": "point_to_point", "gradient_accumulation_count": count, "stages": stages}
    data = {"training": True, "system": {"name": "free"}, "pipeline": pipeline}
    if draw(st.booleans()):
        data["disturbances"] = [{"jitter": "20 %", "seed": draw(st.integers(0, 9))}]
    return Request.from_dict(data)


@settings(max_examples=2 * share(60), deadline=None)
@given(requests())
def test_a_run_differs_from_the_simulation_of_its_plan_by_its_jitter_alone(request_):
    """Without jitter it replays without difference; with it no part of the difference is unexplained."""
    run = execute(assemble(request_))
    found = replayed(events_of(run.timeline))
    same(found.measured_run.timeline, run.timeline)
    difference = found.measured_run.timeline.makespan_cycles - found.simulated_run.timeline.makespan_cycles
    assert sum(found.parts.values()) == difference == found.parts["jitter"]
    assert request_.options.disturbances or set(found.parts.values()) == {0}


def same(measured, simulated):
    """Hold the passes, updates and waits of a measured run against those of the simulation that it was written from."""
    kinds = (*PASSES, SpanKind.WEIGHT_UPDATE, SpanKind.RECEIVE_WAIT)
    names = ("start", "end", "kind", "ipu", "stage", "micro_batch")
    rows = [
        sorted(zip(*(getattr(timeline, name)[of_kinds(timeline.kind, kinds)].tolist() for name in names), strict=True))
        for timeline in (measured, simulated.expanded())
    ]
    assert rows[0] == rows[1]
    assert critical_path_of(measured).spans.sum() > 0
