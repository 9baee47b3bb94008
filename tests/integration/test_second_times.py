"""Times of the scenarios that ship are equal when they are computed a second time, without events."""

from dataclasses import replace
from pathlib import Path

import pytest

from ipusim.app.scenario.load import load_job
from ipusim.retiming.stretches import Ending
from ipusim.runs import second_times
from ipusim.runs.job import Job
from ipusim.runs.second_times import check_times
from ipusim.runs.time_alone import timeline_of
from tests.scenarios import SCENARIOS, job_of

#: Of which times depend on the order in which the host is asked.
NOT_EXACT = {"host_embedding"}


def long_run() -> Job:
    """Return a run of which a part is simulated."""
    return job_of(mapping=(0, 1), count=4000, update=0, sync="point_to_point")


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_shipped_scenario_has_the_same_times_without_events(path: Path) -> None:
    job = load_job(path)
    check = check_times(job, timeline_of(job, job.executions, between=job.between))
    assert check.outcome == ("not exact" if path.stem in NOT_EXACT else "equal"), check.text


def test_all_of_a_run_with_blocks_is_checked() -> None:
    """Its micro-batches that were never simulated too."""
    job = long_run()
    timeline = timeline_of(job)
    assert timeline.repeats
    assert check_times(job, timeline).text == (
        "Times computed a second time are equal, passes 16,000, sends 0, weight updates 2, ends of executions 1."
    )


def test_of_a_run_too_large_to_compare_the_part_that_is_laid_out_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the sentence says so; states of the whole run are not asked for."""
    job = long_run()
    count = job.plan.shape.count
    monkeypatch.setattr(second_times, "MOST_SPANS", 5_000)
    assert count < 1000
    assert check_times(job, timeline_of(job)).text == (
        f"Times computed a second time are equal, of the part that is laid out, micro-batches {count}, "
        f"executions 1, passes {4 * count:,}, sends 0, weight updates 2, ends of executions 1."
    )


def test_an_end_that_differs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all passes, sends and updates are equal."""
    job = load_job(SCENARIOS / "gpu_schedules.yaml")
    timeline = timeline_of(job, job.executions)
    end = int(timeline.end.max())
    right = Ending.carry_out
    monkeypatch.setattr(Ending, "carry_out", lambda ending, of, now: right(ending, of, now) + 5)
    assert check_times(job, timeline).text == (
        "Times computed a second time differ, the end in execution 0 of replica 0 "
        f"is at cycles {end:,} to {end:,}, and {end + 5:,} to {end + 5:,} without events."
    )


def test_hosts_that_wait_for_each_other_are_not_exact() -> None:
    job = replace(long_run(), late=(10,))
    check = check_times(job, timeline_of(long_run()))
    assert str(check) == "Times were not computed a second time: hosts that wait for each other."
