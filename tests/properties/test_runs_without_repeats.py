"""Long runs in which no state recurs: they say so, and are bounded by what they take."""

import re
from pathlib import Path

import pytest

from ipusim.machine.recurrence import Mark, size_of
from ipusim.machine.simulate import simulate
from ipusim.runs import execute as running
from ipusim.runs.assemble import limits
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.job import Job
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from tests.cli.commands import ipusim
from tests.effort import slowest
from tests.properties.test_jump import flight
from tests.replay.requests import scenario_of


def piling_up(count: int) -> Job:
    """Return an inference in point-to-point whose first stage is faster than its last, which tensors wait for."""
    stages = [{"name": "a", "forward": 100, "output_bytes": 1000}, {"name": "b", "forward": 150}]
    pipeline = {"schedule": "grouped", "sync": "point_to_point", "gradient_accumulation_count": count, "stages": stages}
    data = {"training": False, "system": {"name": "m2000"}, "pipeline": pipeline}
    return assemble(Request.from_dict(data, name="piling-up"))


@slowest
def test_a_long_run_that_never_repeats_itself_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not where it was not to jump, nor a short one, nor one that jumps; and the summary does not depend on it."""
    job, jumping = piling_up(400), flight(4, 400)
    assert execute(job).remarks == ()
    monkeypatch.setattr(running, "_MANY_SPANS", 1000)
    run = execute(job)
    spans = len(run.timeline)
    sentence = f"No state of this run repeats, so all of its {spans} spans were simulated one by one."
    assert run.remarks == (sentence,)
    assert spans >= 1000
    assert execute(job, jump=False).remarks == execute(jumping).remarks == ()
    assert execute(job, jump=False).summary.to_dict() == run.summary.to_dict()
    (tmp_path / "s.yaml").write_text(scenario_of(job.request.to_dict()))
    assert sentence in ipusim("run", "s.yaml", cwd=tmp_path).stdout
    assert sentence not in ipusim("run", "s.yaml", "--no-jump", cwd=tmp_path).stdout


def test_a_run_that_never_repeats_itself_and_is_too_large_is_refused_by_its_own_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = piling_up(100_000)
    monkeypatch.setattr(limits, "MAX_RUN_BYTES", 1_000_000)
    with pytest.raises(RequestError) as refused:
        execute(job)
    (problem,) = refused.value.problems
    assert problem.path == ("pipeline", "gradient_accumulation_count")
    counts = [int(number) for number in re.findall(r"\d+", problem.text)]
    assert counts[0] == 100_000
    assert 16 <= counts[1] < 100_000
    assert problem.text == (
        "expected a run that repeats, or a run that fits in memory as a whole, got 100000 micro-batches, and the "
        f"first {counts[1]} do not repeat; make the run smaller"
    )


def test_noting_states_costs_no_more_than_a_run_even_where_they_become_larger_and_larger() -> None:
    """Of thousands of tensors that wait, a mark of each micro-batch would note all."""
    job = piling_up(2000)
    assert max(job.plan.waiting.values()) > 500
    whole, program = job.whole.plan, job.program
    marks: list[Mark] = []
    every = range(program.shape.micro_batches)
    timeline = simulate(
        whole, program, job.system, costs=job.whole.costs, executions=1, marked=every, note=marks.append
    )
    noted = sum(size_of(mark.state) for mark in marks)
    largest = max(size_of(mark.state) for mark in marks)
    assert 100 < len(marks) < 1000
    assert noted <= 20_000 + 4 * len(timeline) + 2 * largest
    assert any(mark.micro_batch > 1000 for mark in marks), "it goes on as the run does"
