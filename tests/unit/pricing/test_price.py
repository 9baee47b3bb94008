"""A run prices its Plan once, whatever wants to know a price reads it, and laws price their instructions."""

import sys
from dataclasses import replace
from fractions import Fraction

import pytest

from ipusim.app.cli.figures import cost_tables
from ipusim.app.scenario import load_job
from ipusim.hardware.formulas import Cycles, product
from ipusim.machine.extent import most_cycles, most_spans
from ipusim.pipeline.instructions import Code
from ipusim.pricing import collectives, copies, laws, price
from ipusim.pricing.laws import Law
from ipusim.pricing.price import price_plan
from ipusim.pricing.terms import terms_of
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


def adding(_program, system, stage):
    return Cycles(product, system.rates.compute_set_cycles * 5, stage + 2)


#: Results of micro-batches are added up in no time otherwise, and by an instruction of no stage.
LAW = Law(
    "adding results", "compute_set_cycles x 5", ("compute_set_cycles",), instruction=Code.ADD_RESULTS, cycles=adding
)


@pytest.fixture
def job(monkeypatch):
    """Return a run whose Plan adds up results, priced before and with a law for that."""
    job = load_job(SCENARIOS / "tutorial_step3_pipelining.yaml", ("numerics=off", "pipeline.accumulate_outfeed=true"))
    monkeypatch.setattr(laws, "LAWS", (*laws.LAWS, LAW))
    monkeypatch.setattr(laws, "INSTRUCTION_LAWS", {Code.ADD_RESULTS: LAW})
    return job, price_plan(job.plan, job.program, job.system)


def test_it_is_priced_listed_and_counted(job):
    job, costs = job
    cycles = job.system.rates.compute_set_cycles * 5
    assert Fraction(cycles).denominator == 1
    assert costs.instructions == {(Code.ADD_RESULTS, -1): cycles}
    before, now = (terms_of(each, job.plan, job.program, job.system) for each in (job.costs, costs))
    (row,) = now[len(before) :]
    assert now[: len(before)] == before
    assert (row.label, row.law.name, row.cycles, row.formula()) == (
        "add-results",
        "adding results",
        cycles,
        f"{int(cycles)} * 1",
    )
    tables = {table.title: table.rows for table in cost_tables(costs, job.plan, job.program, job.system)}
    assert ("adding results", "compute_set_cycles x 5", "assumed") in tables["Formulas"]
    count = job.program.shape.micro_batches
    for most, each in ((most_spans, 1), (most_cycles, cycles + 1)):
        more, less = (most(job.plan, job.system, each, 3) for each in (costs, job.costs))
        assert more - less == 3 * count * each
