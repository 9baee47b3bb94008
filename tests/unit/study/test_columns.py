"""The columns of exported spans, where the host has tracks of its own."""

import pytest

from ipusim.app.run_folder.columns import span_columns
from ipusim.app.scenario.load import load_job
from ipusim.machine.simulate import simulate
from ipusim.timeline.host_track import HostTrack
from tests.scenarios import SCENARIOS

RUNS = {
    "variables_on_host": ("system.auto_select_ipus=4", "system.host.count=2"),
    "host_embedding": ("system.auto_select_ipus=4",),
}


@pytest.mark.parametrize("scenario", RUNS)
def test_each_track_of_the_host_has_its_name(scenario):
    """Those of a replica say which; the network and the variables are the host's, whatever the replicas."""
    job = load_job(SCENARIOS / f"{scenario}.yaml", ("pipeline.gradient_accumulation_count=4", *RUNS[scenario]))
    columns = span_columns(simulate(job.plan, job.program, job.system, costs=job.costs))
    found = {text for text in columns["track"].names if text.startswith("host ")}
    own = {f"host {track.word} of replica {replica}" for track in HostTrack for replica in (0, 1)}
    assert found <= own | {"host network", "host variables"}
    assert {"variables_on_host": "host variables", "host_embedding": "host tables of replica 1"}[scenario] in found
