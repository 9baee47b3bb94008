"""The selection order that a run names as faster, against runs of scenarios in each order."""

from contextlib import suppress
from itertools import pairwise

import pytest

from ipusim.api import Request, RequestError, assemble, execute, hardware
from ipusim.app.render.verdict import verdict_table
from ipusim.app.scenario.load import load_request
from ipusim.runs import faster_order
from tests.scenarios import SCENARIOS


def request(moved, *, ipus=4, stages=4, order="SNAKE", weights=0, **more):
    """Return a pipeline whose stages pass on tensors of ``moved`` bytes each, with ``weights`` bytes of gradients."""
    stage = {"forward": 1000, "backward": 2000, "parameter_bytes": weights, "accumulator_bytes": weights}
    known = [{"name": f"s{number}", **stage} for number in range(stages)]
    for (one, other), size in zip(pairwise(known), moved, strict=True):
        one["output_bytes"] = other["gradient_bytes"] = size
    pipeline = {"gradient_accumulation_count": 8, "repeat_count": 2, "stages": known}
    return Request.from_dict(
        {
            "system": {"name": "m2000", "auto_select_ipus": ipus, "selection_order": order},
            "pipeline": pipeline | more.pop("pipeline", {}),
            **more,
        }
    )


#: Only the copies of the last two stages are large: SNAKE has them on a rung, HOOF on a side of the ladder.
LAST = [1 << 12, 1 << 12, 1 << 17]
ASKED = {
    "large copies": request(LAST),
    "no copies": request([0, 0, 0]),
    "point-to-point": request(LAST, pipeline={"schedule": "1f1b"}),
    "replicas": request([1 << 10], ipus=4, stages=2, weights=1 << 21),
    "disturbed": request(LAST, disturbances=[{"ipu": 1, "slower": 2}]),
    "a dead cable": request(LAST[::-1], disturbances=[{"link": [0, 1], "dead": True}]),
    "a slow cable that ZIGZAG lacks": request(LAST, disturbances=[{"link": [1, 2], "slower": 4}]),
    "inference": request(LAST, training=False),
    "digits": load_request(SCENARIOS / "digits_training.yaml", ["steps=1"]),
    "replicas of a model": load_request(SCENARIOS / "data_parallel_4x4.yaml", ["steps=1"]),
    "two IPUs": load_request(SCENARIOS / "tutorial_step3_pipelining.yaml", ["steps=1"]),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_run_names_the_order_in_which_it_would_be_fastest(name):
    alone = {} if ASKED[name].options.model is None else {"numerics": "off"}
    summary = execute(assemble(ASKED[name])).summary
    cycles = {}
    for order in hardware.ORDERS:
        with suppress(RequestError):  # of an order in which no cable joins the IPUs of a disturbed one
            job = assemble(ASKED[name].replace({**alone, "system.selection_order": order}))
            cycles[order] = execute(job).summary.throughput.run_cycles
    assert [report.order for report in summary.selection_orders] == [*cycles]
    now, least = summary.throughput.run_cycles, min(cycles.values())
    assert now == cycles[summary.selection_order]
    words = dict(verdict_table(summary).rows)
    if 1 - least / now < 0.0005:
        assert summary.faster_order is None
        assert "selection order" not in words
        return
    assert cycles[summary.faster_order.order] == least
    assert summary.faster_order.saved == pytest.approx(1 - least / now, rel=1e-12)
    what = "weight update" if summary.training else "execution"
    assert words["selection order"] == (
        f"{summary.selection_order}; {summary.faster_order.order} takes {1 - least / now:.1%} less time per {what}"
    )


def test_replicas_may_be_faster_by_the_sum_of_gradients_though_copies_take_no_less():
    summary = execute(assemble(ASKED["replicas of a model"].replace({"numerics": "off"}))).summary
    copies = {report.order: report.execution_cycles for report in summary.selection_orders}
    assert (summary.selection_order, summary.faster_order.order) == ("SNAKE", "ZIGZAG")
    assert copies["ZIGZAG"] >= copies["SNAKE"]


def test_orders_of_a_long_run_are_compared_by_an_estimate_which_says_so(monkeypatch):
    """GPipe with stages that hold memory does not repeat itself; in lock-step nothing but copies tells orders apart."""
    held = {"pipeline": {"schedule": "gpipe", "sync": "lock_step"}}
    asked = request(LAST, weights=1024, **held)
    exact = execute(assemble(asked)).summary.faster_order
    monkeypatch.setattr(faster_order, "_MOST_SPANS", 10)
    estimated = execute(assemble(asked)).summary
    assert (exact.is_estimate, estimated.faster_order.is_estimate) == (False, True)
    assert estimated.faster_order.order == exact.order
    assert estimated.faster_order.saved == pytest.approx(exact.saved, rel=1e-9)
    words = dict(verdict_table(estimated).rows)["selection order"]
    assert words.endswith("less time per weight update, estimated only from copies and sums of gradients")
