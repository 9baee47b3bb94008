"""What is told of a run before it begins holds for whatever is run: it records no more spans, and takes no longer."""

from hypothesis import given, settings

from ipusim.machine.extent import most_cycles, most_spans
from ipusim.runs.session import Session
from tests.properties.test_option_combinations import scenarios
from tests.scenario_data import job_from


@settings(max_examples=60, deadline=None)
@given(scenarios())
def test_a_run_is_no_larger_than_was_told(scenario):
    job = job_from(scenario | {"numerics": "off"})
    timeline = Session(job).run(job.executions)
    assert len(timeline) <= most_spans(job.plan, job.system, job.costs, job.executions)
    assert timeline.makespan_cycles <= most_cycles(job.plan, job.system, job.costs, job.executions)
