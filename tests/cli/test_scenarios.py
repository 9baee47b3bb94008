"""What scenarios promise that takes several runs or a second calculation; `ipusim test` holds the figures of one."""

import math
from collections import Counter
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from ipusim.app.fidelity.throughput_rows import MODELS
from ipusim.app.scenario import load_job
from ipusim.pipeline.ops import Pass
from ipusim.pricing.passes import leaves
from ipusim.pricing.planner.rates import PlannerRates
from ipusim.pricing.products import plans
from ipusim.pricing.terms import terms_of
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind
from tests.machine_costs import fixed_cycles, sync_cycles
from tests.scenarios import SCENARIOS


@cache
def run(name, *overrides):
    """Run a scenario with changes, once: results are read only."""
    return execute(load_job(SCENARIOS / f"{name}.yaml", overrides))


def copy_cycles(order, sizes, clock_hz):
    """The merged copy of a chain of 16 stages on the ladder, from the rules alone: no code of ipusim's."""
    places = {
        "ZIGZAG": list(range(16)),
        "SNAKE": [0, 1, 3, 2, 4, 5, 7, 6, 8, 9, 11, 10, 12, 13, 15, 14],
        "HOOF": [0, 2, 4, 6, 8, 10, 12, 14, 15, 13, 11, 9, 7, 5, 3, 1],
    }[order]
    link = Fraction(128 * 2**30 * 85, 8 * 100)  # bytes a second, one IPU-Link, one direction
    load: dict[tuple[int, int, str], int] = {}
    longest = 0
    for stage, size in enumerate(sizes):
        for source, target in ((places[stage], places[stage + 1]), (places[stage + 1], places[stage])):
            at, hops = source, 0
            if source % 2 != target % 2:
                same_rung = source // 2 == target // 2
                load[at, at ^ 1, "rung" if same_rung else "crossing"] = (
                    load.get((at, at ^ 1, "rung" if same_rung else "crossing"), 0) + size
                )
                at, hops = at ^ 1, hops + 1
            while at != target:
                step = at + 2 if target > at else at - 2
                load[at, step, "rail"] = load.get((at, step, "rail"), 0) + size
                at, hops = step, hops + 1
            longest = max(longest, hops)
    transfer = max(
        math.ceil(size * clock_hz / (link * (4 if channel == "rung" else 2))) for (_, _, channel), size in load.items()
    )
    latency = math.ceil(longest * Fraction(15 * clock_hz, 10**9))
    return sync_cycles(16, clock_hz) + fixed_cycles(16, clock_hz) + latency + transfer, longest


@pytest.mark.parametrize("order", ["ZIGZAG", "SNAKE", "HOOF"])
def test_copy_times_and_routes_of_the_selection_orders(order):
    result = run("selection_orders", f"system.selection_order={order}")
    program, system = result.job.program, result.job.system
    sizes = [profile.output_bytes for profile in program.stages[:-1]]
    assert len(set(sizes)) > 3, "boundaries are meant to be unequal"
    right, longest = copy_cycles(order, sizes, system.clock_hz)
    report = next(report for report in result.summary.selection_orders if report.order == order)
    assert report.used
    assert report.copy_cycles == right
    assert report.most_links == longest == (2 if order == "ZIGZAG" else 1)
    assert (report.direct_routes == len(report.routes)) == (order != "ZIGZAG")
    timeline = result.timeline
    syncs, post_copies = timeline.rows(SpanKind.SYNC), timeline.rows(SpanKind.POST_COPY)
    assert set((timeline.end[post_copies] - timeline.start[syncs]).tolist()) == {right}
    assert {len(route.ipus) for route in report.routes} == ({2, 3} if order == "ZIGZAG" else {2})


def test_inference_gives_the_networks_outputs():
    result = run("inference")
    workload = result.job.workload(0)
    count = result.job.program.shape.micro_batches
    assert result.learning.losses == ()
    assert len(result.learning.outputs["outputs"]) == count
    for index in (0, count - 1):
        x, _ = workload.feed.element(index)
        for stage, parameters in enumerate(map(workload.initial_parameters, range(len(workload.stages)))):
            x, _ = workload.stages[stage].bind(parameters).forward(x, None)
        np.testing.assert_allclose(result.learning.outputs["outputs"][index], x, rtol=1e-3, atol=1e-5)


def test_models_of_the_package_are_the_scenarios_of_the_same_name():
    both = [path for path in MODELS.glob("*.yaml") if (SCENARIOS / path.name).exists()]
    assert "bert_large.yaml" in {path.name for path in both}
    for path in both:
        assert path.read_bytes() == (SCENARIOS / path.name).read_bytes()


def test_resnet50_has_the_parameters_and_products_of_its_authors():
    """As many parameters as torchvision's, of which a page says 4.09 billion multiply-accumulates an image."""
    stages = run("resnet50").job.program.stages
    assert sum(stage.parameter_bytes for stage in stages) // 2 == 25_557_032
    macs = sum(work.macs for stage in stages for work in stage.forward)
    assert macs / 20 == pytest.approx(4.09e9, rel=0.005)


def test_swin_has_the_parameters_and_products_of_its_authors():
    """Its paper has 29 M parameters and 4.5 G multiply-accumulates (arXiv 2103.14030, table 1), timm 28,288,354."""
    stages = run("swin_tiny").job.program.stages
    assert sum(stage.parameter_bytes for stage in stages) // 4 == 28_288_354
    macs = sum(work.macs for stage in stages for work in stage.forward)
    assert macs / 4 == pytest.approx(4.5e9, rel=0.01)


def test_the_conformers_third_ipu_sets_its_pace():
    """It has five blocks, more than any other; published are 4.9 ms for a micro-batch, with what is left out."""
    result = run("conformer", "pipeline.gradient_accumulation_count=4032", "system.host.framework=pytorch")
    assert 1 < result.summary.throughput.samples_per_s / 819 < 1.4
    costs = result.job.costs.passes
    for kind in (Pass.FORWARD, Pass.BACKWARD):
        assert max(costs[kind, stage] for stage in range(4)) == costs[kind, 2]
        block = costs[kind, 2] - costs[kind, 1]  # the fifth
        assert costs[kind, 1] == pytest.approx(4 * block, rel=1e-3)
    busiest = 2 * costs[Pass.FORWARD, 2] + costs[Pass.BACKWARD, 2]  # activations are computed again
    assert 0.6 < busiest / result.summary.clock_hz / (4 / 819) < 1


def test_launches_of_the_small_network_take_as_long_as_its_products():
    result = run("small_cnn")
    found = Counter()
    for term in terms_of(result.job.costs, result.job.plan, result.job.program, result.job.system):
        found[term.law.name] += term.cycles
    assert result.summary.throughput.micro_batches_per_s > 1 / 342e-6  # as published, with calls of the host
    assert found["launches"] == pytest.approx(found["matrix"], rel=0.3)


@pytest.mark.parametrize("name", sorted(path.stem for path in SCENARIOS.glob("tutorial_*.yaml")))
def test_no_pass_of_the_tutorial_is_below_the_floor_of_its_products(name):
    """1,900 cycles are the least that a product costs of those measured on hardware, whatever its size."""
    job = load_job(SCENARIOS / f"{name}.yaml", ("steps=1", "numerics=off"))
    rates = PlannerRates.from_rates(job.system.rates)
    for kind in (Pass.FORWARD, Pass.BACKWARD):
        for stage, profile in enumerate(job.program.stages):
            works = list(leaves(profile.forward if kind is Pass.FORWARD else profile.backward))
            products = sum(planned.times for work in works for planned in plans(work, job.system.ipu, rates))
            peak = job.system.ipu.tiles * job.system.ipu.fp32_macs_per_cycle_per_tile
            macs = sum(work.macs for work in works)
            assert products
            assert job.costs.passes[kind, stage] >= max(1900 * products, macs / peak)
