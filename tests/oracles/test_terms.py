"""Every cycle of Costs is the value of a term, whose text gives it in exact arithmetic."""

import math
import re
from collections import Counter
from copy import copy
from dataclasses import fields, replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from ipusim.app.cli.figures import cost_tables, machine_tables
from ipusim.app.scenario import load_job
from ipusim.hardware.formulas import addends, formula_text
from ipusim.hardware.machines import MACHINES
from ipusim.hardware.rates import RATES
from ipusim.model.host_call import HostCall
from ipusim.model.work import MeasuredWork, Product, VectorWork, Work
from ipusim.pipeline.ops import Pass
from ipusim.pricing import laws
from ipusim.pricing.costs import HostCosts
from ipusim.pricing.laws import Term
from ipusim.pricing.passes import pass_costs, pass_cycles
from ipusim.pricing.price import price_plan
from ipusim.pricing.terms import terms_of
from tests.effort import sampled
from tests.scenarios import SCENARIOS

#: What hosts do between session runs of a program is no part of what its Plan costs.
BETWEEN_RUNS = {laws.NETWORK_GATHER, laws.NETWORK_BROADCAST}
LAWS = [law for law in laws.LAWS if law not in BETWEEN_RUNS]
#: Between them of every kind of term.
RUNS = {
    "tutorial": ("tutorial_step3_pipelining", ("system.host.framework=tensorflow1",)),
    "host data": ("tutorial_step3_pipelining", ("use_synthetic_data=false", "system.host.data_rate=1 GB/s")),
    "measured": ("schedules_four_ipus", ("system.name=m2000", "pipeline.schedule=interleaved")),
    "free": ("tutorial_step3_pipelining", ("numerics=off", "system.name=free")),
    "sends": ("gpu_schedules", ()),
    "sends in one slot": (
        "gpu_schedules",
        ("pipeline.schedule=dualpipe_v", "pipeline.overlapped=max", "pipeline.device_mapping=v"),
    ),
    "sends of halves": ("zero_bubble", ("numerics=off",)),
    "sends of replicas": (
        "gpu_schedules",
        ("system.name=pod16", "system.auto_select_ipus=8", "system.selection_order=ZIGZAG"),
    ),
    "recomputed": ("recomputation", ()),
    "recomputed inside": ("recomputation", ("pipeline.recomputation_mode=RecomputeAndBackpropagateInterleaved",)),
    "replicas": ("data_parallel_4x4", ("numerics=off",)),
    "replicas alone": ("data_parallel_4x4", ("numerics=off", "system.sync_replicas_independently=true")),
    "two pods": ("data_parallel_4x4", ("numerics=off", "system.name=pod128", "system.auto_select_ipus=128")),
    "offload": ("optimizer_state_offload", ("numerics=off", "system.host.framework=pytorch")),
    "tables": ("host_embedding", ()),
    "hosts": ("host_embedding", ("system.host.count=3",)),
    "hosts over links": (
        "data_parallel_4x4",
        ("numerics=off", "system.name=pod64", "system.host.count=3", "system.host.sum_over=links"),
    ),
    "variables on the host": ("tutorial_step3_pipelining", ("pipeline.variables_on_host=true",)),
    "variables on hosts": (
        "host_embedding",
        ("system.host.count=3", "pipeline.variables_on_host=true"),
    ),
    "other rates": (
        "tutorial_step3_pipelining",
        (
            "rates={amp_ceiling: 0.3, compute_set_cycles: 300.7, exchange_efficiency: 0.9, vector_slowdown: 5, "
            "transcendental_operations: 2.5, sync_skew_cycles: 10.5, pre_copy_cycles: 100.3, pair_exchange: 1.1 us, "
            "post_copy_cycles: 0}",
        ),
    ),
    "transformer": ("transformer_eight_ipus", ("numerics=off",)),
    "parts of weights": (
        "optimizer_state_offload",
        (
            "numerics=off",
            "system.name=pod16",
            "system.auto_select_ipus=8",
            "pipeline.replicated_weight_sharding=true",
            "pipeline.offload_weights=true",
        ),
    ),
}


#: What a stage of these runs has its host do, for no scenario says it.
OUTSIDE = {
    "other rates": {
        "forward_host_calls": (
            HostCall("first", (MeasuredWork(cycles=7), Work((Product(2, 3, 4),), VectorWork(5, 1, 1, 1))), 96, 40),
            HostCall("second", sent_bytes=96),
        ),
        "backward_host_calls": (HostCall("first", returned_bytes=8),),
    }
}


@cache
def told(name):
    scenario, changes = RUNS[name]
    experiment = load_job(SCENARIOS / f"{scenario}.yaml", changes)
    plan, program, system = experiment.plan, experiment.program, experiment.system
    if name in OUTSIDE:
        program = replace(program, stages=(replace(program.stages[0], **OUTSIDE[name]), *program.stages[1:]))
        experiment = replace(experiment, program=program, costs=price_plan(plan, program, system))
    return experiment, terms_of(experiment.costs, plan, program, system)


def value_of(formula):
    """Return what a formula comes to, in fractions."""
    assert re.fullmatch(r"(?:ceil|max|[\d .+*/(),-])+", formula)
    exact = re.sub(r"\d+(?:\.\d+)?", lambda number: f"Fraction('{number[0]}')", formula)
    return eval(exact, {"Fraction": Fraction, "ceil": math.ceil, "max": max})  # of numbers alone, as seen above


@sampled(2)
@pytest.mark.parametrize("name", RUNS)
def test_every_formula_gives_its_cycles(name):
    _, found = told(name)
    for term in found:
        assert term.cycles > 0
        assert value_of(term.formula()) == term.cycles, (term.label, term.law.name)


@pytest.mark.parametrize("name", RUNS)
def test_costs_are_made_of_terms(name):
    """Whatever the machine takes as cycles is the value of terms, down to the last cycle."""
    job, _ = told(name)
    costs = job.costs
    told_by = [
        *costs.passes.values(),
        *costs.updates.values(),
        *(getattr(costs.host, field.name) or 0 for field in fields(HostCosts)),
    ]
    told_by += [
        getattr(table, name)
        for table in costs.tables.values()
        for name in ("ids", "gather", "rows", "gradients", "apply")
    ]
    told_by += [part for send in costs.sends.values() for part in (send.lead_cycles, send.cycles)]
    told_by += [
        part for calls in costs.host_calls.values() for each in calls for part in (each.send, each.host, each.read)
    ]
    for each in (costs.host_sum, costs.host_update):
        told_by += [] if each is None else [each.write, each.read]
    for cycles in told_by:
        parts = list(addends(cycles))
        assert all(isinstance(term, Term) for term, _ in parts) or not cycles
        assert sum(term * times for term, times in parts) == cycles
        assert all(
            value_of(formula_text(part).text) == part for term, _ in parts if term for part, _ in addends(term.cycles)
        )


@pytest.mark.parametrize("name", RUNS)
def test_what_a_thing_costs_is_listed(name):
    job, found = told(name)
    costs, program = job.costs, job.program
    of = Counter()
    for term in found:
        if term.law not in (laws.LOAD, laws.STORE):
            of[term.label] += term.cycles
    for (kind, stage), cycles in costs.passes.items():
        words = Pass(kind).name.lower().replace("_", " ")
        assert of[f"{words} of {program.stages[stage].name}"] == cycles * (kind in job.plan.kind)
    for ipu, cycles in costs.updates.items():
        assert of[f"update on IPU {ipu}"] == cycles * program.shape.training
    copies = [copy.total_cycles for meeting in costs.copies.by_group for copy in meeting if copy.total_cycles]
    assert [cycles for subject, cycles in of.items() if "copy" in subject] == copies
    sends = [send.lead_cycles + send.cycles for send in costs.sends.values()]
    assert [cycles for subject, cycles in of.items() if subject.startswith("send ")] == sends
    assert bool(sends) == name.startswith("sends")
    together = [costs.gradient_sum] if costs.gradient_sum else []
    together += [costs.host_sum.over_links] if costs.host_sum and costs.host_sum.over_links else []
    together += [*costs.weight_gathers.values(), *costs.update_gathers.values()]
    assert [cycles for subject, cycles in of.items() if subject.startswith("all-")] == [
        each.cost.total_cycles for each in together
    ]


def test_a_formula_tells_vector_work_by_kind():
    experiment, found = told("other rates")
    work = experiment.program.stages[-1].forward[-1]
    vector = work.vector
    assert all((vector.elementwise, vector.reductions, vector.quotients, vector.transcendentals))
    kinds = f"({vector.elementwise} + {vector.reductions} + {vector.quotients} + 2.5 * {vector.transcendentals})"
    (term,) = [each for each in found if each.law is laws.VECTOR and each.label == "forward of stage1"]
    assert f"ceil({kinds} * {work.itemsize} * 5 / (1472 * 8))" in [addend.text for addend, _ in term.addends]


def test_calls_of_a_pass_are_told_by_their_numbers_where_there_are_several():
    calls = {term.label for term in told("other rates")[1] if term.label.startswith(("first", "second"))}
    assert calls == {"first 1 in forward of stage0", "second 2 in forward of stage0", "first in backward of stage0"}


@pytest.mark.parametrize("name", ["recomputed inside", "measured"])
def test_what_runs_again_inside_a_backward_pass_in_halves_runs_in_the_first_one(name):
    job, _ = told(name)
    program, ipu, plan = job.program, job.system.ipu, copy(job.plan)
    stages = range(len(program.stages))
    plan.kind, plan.stage = np.repeat([Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT], len(stages)), np.tile(stages, 2)
    costs = price_plan(plan, program, job.system)
    for stage in stages:
        again = sum(pass_cycles(cost, ipu) for cost in pass_costs(program, Pass.BACKWARD, stage)[1:])
        first, _ = program.stages[stage].halves
        assert costs.passes[Pass.INPUT_GRADIENT, stage] == pass_cycles(first, ipu) + again
        assert (again > 0) == (name == "recomputed inside" and stage < len(stages) - 1)


def test_the_runs_above_have_terms_of_every_kind():
    seen = {term.law for name in RUNS for term in told(name)[1]}
    assert {law.name for law in LAWS} - {law.name for law in seen} == set()


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_laws_name_rates_and_figures_that_there_are(law):
    assert law.source
    assert set(law.rates) <= {rate.attribute for rate in RATES}
    machine = MACHINES["m2000"]
    host = machine.host.with_rates({"data_rate_bytes_per_s": Fraction(10**9)})  # no machine has a limit of its own
    assert set(law.figures) <= {*machine.ipu.sources, *host.sources, *machine.streaming.sources}


def test_every_rate_of_time_is_in_some_law():
    assert {rate.attribute for rate in RATES if rate.part != "memory"} == {name for law in LAWS for name in law.rates}


@pytest.mark.parametrize("name", ["tutorial", "offload", "replicas"])
def test_tables_have_a_source_for_all_that_was_used(name):
    experiment, found = told(name)
    tables = {
        table.title: table.rows
        for table in cost_tables(experiment.costs, experiment.plan, experiment.program, experiment.system)
    }
    assert len(tables["Costs"]) == len(found)
    assert {row[1] for row in tables["Costs"]} == {row[0] for row in tables["Formulas"]}
    for rows in (tables["Formulas"], tables["Sources of the rates"], tables["Figures"]):
        assert all(row[-1] for row in rows)
    assert [row[0] for row in tables["Rates"]] == [row[0] for row in tables["Sources of the rates"]]


def test_a_table_of_many_addends_says_how_many_are_left():
    (term, *_) = [term for term in told("transformer")[1] if len(term.addends) > 5]
    text = term.formula(3)
    assert text.endswith(f" + {len(term.addends) - 3} more")
    assert value_of(term.formula()) == term.cycles


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
def test_every_figure_of_a_machine_has_a_source(machine):
    tables = {table.title: table.rows for table in machine_tables(machine)}
    assert all(row[-1] for rows in tables.values() for row in rows)
    assert [row[0] for row in tables["Rates"]] == [rate.name for rate in RATES]
    assert ("Figures of the Streaming Memory of every four IPUs" in tables) == (machine.streaming is not None)
    assert dict(row[:2] for row in tables[f"Figures of {machine.ipu.name}"])["tiles"] == f"{machine.ipu.tiles:,}"
