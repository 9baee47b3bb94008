"""Long runs whose Plan is laid out for fewer micro-batches are described as their whole Plan would be."""

import pytest

from ipusim.app.regression.expectations import judged_before
from ipusim.base.errors import IpusimError
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.request.request import Request
from ipusim.schedules.registry import find, names
from tests.effort import runs_slowest, sampled, slowest
from tests.properties.test_jump import flight
from tests.schedules import FREE, mapping_of


@slowest
def test_what_repeats_is_not_counted_against_memory_and_what_does_not_is() -> None:
    """A million micro-batches under 1F1B are kept in part; under GPipe 20,000 that hold memory are refused at once."""
    million = flight(8, 1_000_000)
    assert million.plan.shape.micro_batches < 200
    data = flight(8, 20_000).request.to_dict()
    data["pipeline"]["schedule"] = "gpipe"
    data["pipeline"]["stages"][0]["stash_bytes"] = 1
    with pytest.raises(IpusimError, match="expected a run that takes at most 2 GiB of memory"):
        assemble(Request.from_dict(data, name="gpipe"))


@sampled(4)
@pytest.mark.parametrize("schedule", [name for name in FREE if find(name).period is not None])
def test_lock_step_of_an_order_without_time_steps_is_told_as_of_the_whole_plan(schedule: str) -> None:
    """Its time-steps repeat themselves in other periods than its passes: their number, and what their copies take."""
    data = flight(4, 96).request.to_dict()
    data["pipeline"] |= {"schedule": schedule, "sync": "lock_step"}
    data["pipeline"]["device_mapping"] = list(mapping_of(schedule, 4))
    data["expect"] = {"time_steps": "at least 1"}
    job = assemble(Request.from_dict(data, name="lock-step"))
    assert job.plan.shape.micro_batches < 96
    whole, again = (execute(each, jump=False).summary for each in (job.whole, job))
    summary = whole.to_dict()
    assert execute(job).summary.to_dict() == summary
    assert again.times_dict() == whole.times_dict()
    if runs_slowest():  # with the parts of the time, for which the run is simulated without each
        assert again.to_dict() == summary
    told, _ = judged_before(job.whole)
    assert [each.value for each in told] == [summary["time_steps"]]
    assert not judged_before(job)[0]


PERIODIC = [name for name in names() if find(name).period is not None and not find(name).in_phases]


@sampled(2)
@pytest.mark.parametrize("schedule", PERIODIC)
def test_peaks_are_told_by_the_passes_of_the_whole_run(schedule: str) -> None:
    """Also where memory is fullest behind all that repeats itself, as in the cool-down of zbv and v_half."""
    stage = {"forward": 100, "backward": 200, "stash_bytes": 600, "gradient_bytes": 700, "output_bytes": 400}
    stages = [{"name": f"s{number}", **stage} for number in range(4)]
    pipeline = {"schedule": schedule, "gradient_accumulation_count": 400, "stages": stages}
    job = assemble(Request.from_dict({"system": {"name": "m2000"}, "pipeline": pipeline}, name="peaks"))
    assert job.plan.shape.micro_batches < 400
    assert [peak.op for peak in job.memory.peaks] == [peak.op for peak in job.whole.memory.peaks]
