"""An instruction that has a law is priced, listed and counted by it: nothing else of pricing knows it."""

from fractions import Fraction

import pytest

from ipusim.app.cli.figures import cost_tables
from ipusim.app.scenario import load_job
from ipusim.hardware.formulas import Cycles, product
from ipusim.machine.extent import most_cycles, most_spans
from ipusim.pipeline.instructions import Code
from ipusim.pricing import laws
from ipusim.pricing.laws import Law
from ipusim.pricing.price import price_plan
from ipusim.pricing.terms import terms_of
from tests.scenarios import SCENARIOS


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
