"""A run prices its Plan once, and whatever else wants to know a price reads it."""

import sys
from dataclasses import replace

import pytest

from ipusim.app.scenario import load_job
from ipusim.pricing import collectives, copies, price
from ipusim.runs.execute import execute
from ipusim.schedules import registry
from tests.scenarios import SCENARIOS


@pytest.fixture
def calls(monkeypatch):
    """Count the calls of what prices, wherever it was imported."""
    counts = {}
    for module, name in (
        (price, "price_plan"),
        (collectives, "gradient_sum"),
        (collectives, "weight_gathers"),
        (collectives, "update_gathers"),
        (copies, "copy_costs"),
    ):
        original = getattr(module, name)
        counts[name] = 0

        def counted(*arguments, original=original, name=name, **options):
            counts[name] += 1
            return original(*arguments, **options)

        for user in [each for key, each in sys.modules.items() if key.startswith("ipusim.")]:
            if getattr(user, name, None) is original:
                monkeypatch.setattr(user, name, counted)
    return counts


@pytest.mark.parametrize("independent", ["false", "true"])
def test_a_run_is_priced_once(calls, independent):
    changes = ("steps=1", "numerics=off", f"system.sync_replicas_independently={independent}")
    experiment = load_job(SCENARIOS / "data_parallel_4x4.yaml", changes)
    summary = execute(experiment).summary.to_dict()
    assert summary["gradient_sum"]["cycles"] == experiment.costs.gradient_sum.cost.total_cycles
    # The run, and the run on one IPU that it is compared with.
    twice = dict.fromkeys(("price_plan", "gradient_sum", "weight_gathers", "update_gathers"), 2)
    # Copies also of the two selection orders that the run does not use.
    assert calls == {**twice, "copy_costs": 4}


@pytest.fixture
def laid_out(monkeypatch):
    """Every shape that Grouped has laid out."""
    shapes, grouped = [], registry.find("grouped")

    def order(shape):
        shapes.append(shape)
        return grouped.order(shape)

    monkeypatch.setitem(registry._SCHEDULES, "grouped", replace(grouped, order=order))
    return shapes


@pytest.mark.parametrize("door", ["scenario", "program"])
def test_a_run_lays_out_one_plan(laid_out, door, request):
    if door == "program":  # its modules are imported before what counts calls looks for them
        run = request.getfixturevalue("run")
    calls = request.getfixturevalue("calls")
    if door == "scenario":
        execute(load_job(SCENARIOS / "tutorial_step3_pipelining.yaml", ("steps=1", "numerics=off")))
    else:
        run()
    assert len(laid_out) == 1
    assert (calls["price_plan"], calls["gradient_sum"]) == (1, 1)


def test_replicas_that_do_not_wait_for_each_other_have_copies_of_their_own():
    path = SCENARIOS / "data_parallel_4x4.yaml"
    together, alone = (
        load_job(path, ("numerics=off", f"system.sync_replicas_independently={independent}"))
        for independent in ("false", "true")
    )
    replicas = alone.system.replicas
    assert len(together.costs.copies.by_group) == 1
    assert len(alone.costs.copies.by_group) == replicas > 1
    assert sum(copies[0].bytes for copies in alone.costs.copies.by_group) == together.costs.copies.by_group[0][0].bytes
    assert set(alone.costs.copies.links) == set(together.costs.copies.links)
