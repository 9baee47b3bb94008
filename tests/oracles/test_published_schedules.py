"""The search of zero bubble's authors, against what their own code reaches, and the memory that it may take."""

from dataclasses import replace

import pytest

from ipusim.api import Request
from ipusim.app.published.case_runs import job_of, run_case
from ipusim.app.published.figures import SCALE, case_of
from ipusim.app.published.rows import read_published
from ipusim.app.synthesize.synthesis import synthesize
from ipusim.pipeline.ops import Pass
from tests.effort import rarest, sampled, slowest

#: Costs in microseconds of the orders that their code gives for the rows of table 5, timed as soon as possible, by the
#: most micro-batches of an IPU in parts of the number of IPUs; of the second ones their makespans too.
COSTS = {
    1: "1310405 1678164 3154286 2187537 2814376 5348572 1714461 2202008 4175516 3171569 4075091 7715640",
    2: "1152599 1475535 2949221 1903596 2525780 5057708 1484721 1972943 3946061 2731004 3634724 7270432",
}
MAKESPANS = "1236567 1603733 3076852 2109851 2732973 5265706 1650756 2137658 4110521 3056373 3959616 7593810"
#: Cycles in a microsecond.
MICRO = SCALE // 1000


def searched(limit):
    rows = [row for row in read_published() if row.table == "zero bubble, table 5"]
    return [case_of(row) for row in rows if row.name == f"ZB-{limit}p"]


def most_halves(job, ipus):
    """Return the most halves of micro-batches that an IPU holds."""
    held, most = dict.fromkeys(range(ipus), 0), 0
    for ipu, kind, *_ in job.plan.order.passes.tolist():
        held[ipu] += {Pass.FORWARD: 2, Pass.BACKWARD: -2, Pass.INPUT_GRADIENT: -1, Pass.WEIGHT_GRADIENT: -1}[kind]
        most = max(most, held[ipu])
    assert set(held.values()) == {0}
    return most


@sampled(2)
@pytest.mark.parametrize("limit", COSTS)
@pytest.mark.parametrize("row", [pytest.param(row, marks=slowest if row > 8 else ()) for row in range(12)])
def test_the_search_in_turns_reaches_what_its_authors_reach(row, limit):
    run = run_case(searched(limit)[row])
    assert run.cost == int(COSTS[limit].split()[row]) * MICRO
    if limit == 2:
        assert run.makespan == int(MAKESPANS.split()[row]) * MICRO


@pytest.mark.parametrize("limit", COSTS)
@pytest.mark.parametrize("row", [0, 4])
def test_the_search_in_turns_keeps_within_its_memory(row, limit):
    """A micro-batch counts as a whole until its input half has ended, and as a half from there on."""
    case = searched(limit)[row]
    for cap in (case.cap, case.cap - 3):
        assert most_halves(job_of(replace(case, cap=cap)), case.ipus) <= 2 * cap


def scenario_of(case):
    """Return a scenario of a machine whose cables take as long as the copies of a case: fixed parts, a hop, a byte."""
    (forward, backward), (first, second) = case.cycles, case.halves
    times = {"forward": forward, "backward": backward, "backward_input": first, "backward_weights": second}
    stages = [{"name": f"s{ipu}", **times, "output_bytes": 1, "gradient_bytes": 1} for ipu in range(case.ipus)]
    del stages[0]["gradient_bytes"], stages[-1]["output_bytes"]
    overhead = f"{case.copy - 15 - 1} ns"
    return Request.from_dict(
        {
            "system": {"name": "pod64", "auto_select_ipus": case.ipus, "clock": "1 GHz", "overhead": overhead},
            "use_synthetic_data": True,
            "pipeline": {
                "schedule": "1f1b",
                "sync": "point_to_point",
                "gradient_accumulation_count": case.micro_batches,
                "stages": stages,
            },
        }
    )


@pytest.mark.parametrize("limit", COSTS)
@pytest.mark.parametrize("row", [pytest.param(row, marks=rarest if row else ()) for row in range(12)])
def test_an_order_searched_in_a_limit_of_micro_batches_costs_no_more_than_its_authors_order(row, limit):
    """What `suggest --order --memory "N micro-batches"` searches, in less than its authors' minute."""
    case = searched(limit)[row]
    found = synthesize(scenario_of(case), ["zero_bubble_h1", "zero_bubble_h2"], seconds=1, micro_batches=case.cap)
    times, job = found.best.times, found.best.result.job.whole
    assert times.bubble.rank_cost_cycles <= int(COSTS[limit].split()[row]) * MICRO
    assert found.bound.cycles <= times.makespan_cycles
    if limit == 2:
        assert times.makespan_cycles <= int(MAKESPANS.split()[row]) * MICRO
    sends = {send.lead_cycles + send.cycles for send in job.costs.sends.values()}
    assert sends == {case.copy}
    assert most_halves(job, case.ipus) <= 2 * case.cap
