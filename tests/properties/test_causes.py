"""Why a run takes as long as it does: the critical path and idle causes add up, whatever is run."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from ipusim.analysis.causes import CAUSES, idle_causes
from ipusim.analysis.critical_path import WAITS, critical_path, path_parts
from ipusim.analysis.executions import executions
from ipusim.analysis.run_times import run_times
from ipusim.analysis.utilisation import cycles_by_kind
from ipusim.lowering.lower import lower
from ipusim.pipeline.plan import Sync
from ipusim.runs.session import Session
from ipusim.study.what_if import what_if
from ipusim.timeline.kind_row import Idle
from ipusim.timeline.kinds import COMPUTE_KINDS, SpanKind
from tests.price_and_run import price_and_run
from tests.properties.test_machine_invariants import drawn
from tests.properties.test_option_combinations import scenarios
from tests.scenario_data import job_from


def check(timeline):
    run_cycles = run_times(timeline).throughput.run_cycles
    path = critical_path(timeline)
    rows = [(int(timeline.start[row]), int(timeline.end[row])) for row in path]
    assert rows[0][0] == 0
    assert rows[-1][1] == run_cycles
    assert all(before[1] == after[0] for before, after in pairwise(rows))
    assert not np.isin(timeline.kind[path], WAITS).any()
    assert sum(part.cycles for part in path_parts(timeline, path)) == run_cycles
    for execution in (None, *(each.index for each in executions(timeline))):
        found = idle_causes(timeline, execution)
        assert ((found.busy + found.cycles.sum(axis=1)) == found.window_cycles).all()
        same = found.ipu[1:] == found.ipu[:-1]
        assert (found.start < found.end).all()
        assert (found.start[1:] >= found.end[:-1])[same].all()
    whole = idle_causes(timeline)
    by_kind = cycles_by_kind(timeline)
    assert whole.window_cycles == run_cycles
    assert (whole.busy == by_kind[:, COMPUTE_KINDS].sum(axis=1)).all()
    holders = sorted(timeline.info.stages_of_ipu)
    # What nobody waits for but in its own span is counted nowhere else.
    sync = whole.cycles[holders, CAUSES.index(Idle.SYNC)]
    assert (sync == by_kind[holders, SpanKind.SYNC]).all()
    assert (whole.cycles[holders, CAUSES.index(Idle.NO_STAGE)] == 0).all()
    return whole


@pytest.mark.parametrize("sync", list(Sync))
@pytest.mark.parametrize("seed", range(15))
def test_random_orders_are_explained_to_the_cycle(seed, sync):
    program, order, system = drawn(seed)
    found = check(price_and_run(lower(order, sync), program, system))
    if sync is Sync.POINT_TO_POINT:
        assert not found.cycles[:, CAUSES.index(Idle.NO_PASS)].any()


@settings(max_examples=40, deadline=None)
@given(scenarios())
def test_scenarios_of_random_options_are_explained_to_the_cycle(scenario):
    job = job_from(scenario | {"numerics": "off"})
    check(Session(job).run(job.executions))


@settings(max_examples=25, deadline=None)
@given(scenarios())
def test_no_change_makes_a_run_shorter_than_its_critical_path_then_is(scenario):
    job = job_from(scenario | {"numerics": "off"})
    shares = job.costs.pass_streams or job.costs.update_streams or job.costs.sends
    for found in what_if(job):
        assert found.path <= found.after or (shares and found.said_by_path == "estimate"), found
        assert (found.said_by_path == "exact") == (found.path == found.after)
