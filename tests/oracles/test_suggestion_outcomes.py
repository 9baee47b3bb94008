"""A suggestion's three ends, on models whose answer is known by hand, and its bounds against all cuts of small ones."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_info

import ipusim
from ipusim.analysis.fits import Fits
from ipusim.app.render.fitted_tables import fit_table
from ipusim.app.scenario.load import load_request
from ipusim.app.suggest.baseline import Baseline
from ipusim.app.suggest.budget import Budget, SearchEndedError
from ipusim.app.suggest.limits import Limits
from ipusim.app.suggest.plan_table import plan_rows, plan_table
from ipusim.app.suggest.searched import NEEDS_MEMORY, Searched
from ipusim.app.suggest.suggestion import NothingFoundError, Outcome, suggest
from ipusim.app.suggest.words import searched_lines, verdict
from ipusim.base.errors import OptionError
from ipusim.base.units import parse_quantity
from ipusim.pipeline.plan import Sync
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.request.request import Request
from tests.effort import slowest
from tests.scenarios import SCENARIOS

MIB = 1024 * 1024


def dense(count: int, units: int, **more: Any) -> Request:
    """Return a model of ``count`` equal layers, not trained without an optimizer."""
    layers = [{"name": f"d{number}", "type": "dense", "units": units} for number in range(count)]
    layers += [{"name": "loss", "type": "softmax_cross_entropy"}] if "optimizer" in more else []
    return Request.from_dict(
        {
            "system": {"name": "m2000", "auto_select_ipus": 4},
            "data": {"type": "synthetic", "shape": [units], "classes": 4, "samples": 64},
            "model": {"layers": layers},
            "pipeline": {"schedule": "grouped", "splits": ["d1"], "gradient_accumulation_count": 8},
            "training": False,
            "numerics": "off",
            **more,
        }
    )


def of_stages(schedule: str, *stages: dict[str, Any], system: str = "free", ipus: int = 2, **pipeline: Any) -> Request:
    """Return stages known by their cost on so many IPUs, four micro-batches behind each weight update."""
    named = [{"name": name, **stage} for name, stage in zip("abcd", stages, strict=False)]
    pipeline = {"schedule": schedule, "gradient_accumulation_count": 4, "stages": named, **pipeline}
    free = {"system": {"name": system, "auto_select_ipus": ipus}, "code_bytes": 0, "training": True}
    return Request.from_dict({**free, "pipeline": pipeline})


def equal_stages(schedule: str) -> Request:
    stage = {"forward": 1000, "backward": 2000, "update": 500, "stash_bytes": 1024}
    return of_stages(schedule, *[stage] * 4, ipus=4, gradient_accumulation_count=8)


def test_a_search_has_one_thread_of_arithmetic() -> None:
    """Its matrices are thousands of cuts by a few IPUs: with two threads 19 s of a search went by in waiting, not 3."""
    threads: set[int] = set()

    def progress(_given: Baseline, _searched: Searched) -> None:
        threads.update(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")

    before = threadpool_info()
    suggest(dense(4, 64), Limits(schedules=("grouped",)), progress=progress)
    assert threads == {1}
    assert threadpool_info() == before


def test_weights_larger_than_an_ipu_fit_under_no_plan_which_is_proven() -> None:
    units = 16_384  # a layer has 16,384 x 16,384 weights of 4 bytes: 1,024 MiB, and an IPU has 897
    found = suggest(dense(2, units, memory="report"))
    assert found.outcome is Outcome.NONE_FITS
    assert "which is proven: the fullest IPU of any plan holds at least 1" in found.why_none
    assert "each IPU has 897 MiB" in found.why_none
    assert found.searched.assembled == 0
    assert [*verdict(found)] == [found.why_none]


def test_a_search_cut_short_leaves_no_proof_to_another() -> None:
    none = suggest(dense(2, 16_384, memory="report"))
    cut_short = Searched(open_choices=3)
    cut_short.leave(1000, "the time limit")
    none.searched.leave_with(cut_short)
    assert none.outcome is Outcome.NONE_FOUND
    assert "nor a proof that no plan fits m2000: the time limit ended the search" in none.why_none
    assert "Still open: 3 layouts" in none.why_none


def test_a_model_fits_with_recomputation_alone_and_is_suggested_so() -> None:
    """The first of four stages keeps several micro-batches of 300 MiB, or computes one at a time again."""
    stage = {"forward": 1000, "backward": 2000, "stash_bytes": 300 * MIB, "input_bytes": 1024}
    asked = of_stages("grouped", *[stage] * 4, system="m2000", ipus=4, gradient_accumulation_count=16)
    limits = Limits(ipus=(4,), replicas=(1,), schedules=("grouped",), placements=("straight",))
    assert suggest(asked, replace(limits, recompute=("no",))).outcome is Outcome.NONE_FITS
    found = suggest(asked, limits)
    assert found.outcome is Outcome.PLAN
    assert found.plan is not None
    assert found.plan.choice.recompute
    assert found.gap == 0


LIMITED = Limits(ipus=(8,), replicas=(1,), offload=("no",))


def transformer() -> Request:
    return load_request(SCENARIOS / "transformer_eight_ipus.yaml")


def test_a_search_that_ends_before_it_finds_a_plan_does_not_say_that_none_fits() -> None:
    others = replace(LIMITED, schedules=("gpipe", "1f1b", "interleaved"))  # without the given plan, which is grouped
    found = suggest(transformer(), others, budget=Budget(work=0))
    assert found.outcome is Outcome.NONE_FOUND
    assert "nor a proof that no plan fits pod16: the limit of 0 bounded cuts ended the search" in found.why_none
    assert "Give more time with the option `seconds`" in found.why_none
    assert "Still open: " in found.why_none
    assert "fits m2000" not in found.why_none
    kept = suggest(transformer(), LIMITED, budget=Budget(work=0))
    assert (kept.outcome, kept.plan, kept.trial) == (Outcome.PLAN, None, kept.given_trial)
    with pytest.raises(NothingFoundError):
        _ = found.request


def test_a_plan_is_proven_only_if_the_searches_of_all_numbers_of_ipus_are() -> None:
    ipus = (2, 4, 8)
    limits = replace(LIMITED, ipus=ipus, schedules=("grouped",))
    found = suggest(transformer(), limits, budget=Budget(work=0))
    alone = [suggest(transformer(), replace(limits, ipus=(size,)), budget=Budget(work=0)) for size in ipus]
    assert [*found.by_ipus] == [*ipus]
    assert {size: of.outcome for size, of in found.by_ipus.items() if not isinstance(of, str)} == {
        size: of.outcome for size, of in zip(ipus, alone, strict=True)
    }
    assert found.trial.cycles == alone[-1].trial.cycles  # of the given plan, on 8 IPUs
    bounds = [of.searched.skipped_bound for of in alone]
    assert found.searched.skipped_bound == min(bound for bound in bounds if bound is not None)
    assert found.searched.open_choices > alone[-1].searched.open_choices


@slowest
def test_an_interrupt_gives_the_best_so_far_with_its_gap() -> None:
    seen: list[Searched] = []
    budget = Budget(interrupted=lambda: bool(seen and seen[-1].plans))
    found = suggest(transformer(), LIMITED, budget=budget, progress=lambda _, searched: seen.append(searched))
    assert found.outcome is Outcome.PLAN
    assert found.searched.end_reason == "an interrupt"
    assert 0 < found.gap < 1
    assert f"an interrupt ended the search; another plan could take {found.gap:.1%} less time" in "\n".join(
        searched_lines(found)
    )
    proven = suggest(transformer(), LIMITED, runners_up=0)
    assert found.searched.skipped_bound is not None
    assert found.searched.skipped_bound <= proven.trial.cycles <= found.trial.cycles  # type: ignore[operator]


@pytest.mark.parametrize("seconds", [-1, 0, math.nan])
def test_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(OptionError, match="seconds: expected a time above 0, got "):
        Budget(seconds)


def test_time_ends_a_search_in_the_middle_of_a_loop() -> None:
    budget = Budget(1e-9)
    with pytest.raises(SearchEndedError, match="the time limit"):
        budget.spend(1)


def test_python_gets_the_same_ends_as_values() -> None:
    none = ipusim.suggest(dense(2, 16_384, memory="report"))
    assert (none.outcome, none.why_none[:26]) == ("none fits", "No plan in the search fits")
    assert "No plan in the search fits" in repr(none)
    assert "No plan in the search fits" in none._repr_html_()
    plan = ipusim.suggest(dense(3, 64), schedules=["grouped"], seconds=None)
    assert (plan.outcome, plan.why_none, plan.gap) == ("plan", "", 0.0)


def test_counts_that_a_schedule_of_ones_own_refuses_are_left_out_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        """from ipusim.base.errors import CountError
from ipusim.pipeline.order import Order

def gpipe(shape):
    if shape.micro_batches != 16:
        raise CountError("mine wants 16 micro-batches")
    passes = {
        ipu: [f"{kind}{stage}.{number}" for kind in "FB" for number in range(shape.micro_batches)]
        for stage, ipu in enumerate(shape.mapping)
    }
    return Order.from_passes("mine", shape, passes)
"""
    )
    text = (SCENARIOS / "tutorial_step3_pipelining.yaml").read_text()
    (tmp_path / "s.yaml").write_text(text)
    request = load_request(tmp_path / "s.yaml", ["pipeline.schedule=mine.py:gpipe"])
    found = suggest(request, Limits(schedules=("mine.py:gpipe",), ipus=(2,), replicas=(1,), placements=("straight",)))
    assert found.outcome is Outcome.PLAN
    said = "\n".join(verdict(found))
    assert "the given plan is not known, because its schedule refuses the counts needed for the ceiling: " in said
    assert "mine wants 16 micro-batches" in said


def test_a_given_plan_that_a_limited_search_finds_again_is_kept() -> None:
    found = suggest(equal_stages("grouped"), Limits(replicas=(1,)))
    assert next(verdict(found)) == (
        "Keep the given plan: grouped in lock-step, 4 stages on 4 IPUs, 8 micro-batches of 1. Nothing faster is in "
        "the search, which is proven."
    )
    names = [row[0] for row in plan_table(found).rows]
    assert names == ["other"] * (len(names) - 1) + ["given"]


def test_a_suggestion_states_the_time_of_a_run_to_the_last_bit() -> None:
    stage = {"forward": 1217, "backward": 2000}
    asked = of_stages("1f1b", stage, stage, system="m2000", repeat_count=7).replace({"infeed.element_bytes": 4096})
    asked = asked.replace({"system.host.infeed": "1 GB/s"})  # seven updates take 250,392 cycles
    (given,) = (row for row in plan_rows(suggest(asked, Limits(replicas=(1,)))) if row["plan"] == "given")
    assert given["weight_update_period_s"] == execute(assemble(asked)).summary.throughput.weight_update_period_s


def test_no_two_rows_of_the_table_read_the_same() -> None:
    """Two replicas of two IPUs may hold four stages around the IPUs, or there and back."""
    stage = {"forward": 1000, "backward": 2000, "stash_bytes": 1024}
    request = of_stages("grouped", *[stage] * 4, gradient_accumulation_count=24)
    found = suggest(request, Limits(replicas=(1,), ipus=(2,), schedules=("grouped",)))
    table, rows = plan_table(found), plan_rows(found)
    header = ("plan", "schedule", "stages", "placement", "IPUs", "count", "recompute")
    assert table.header[:7] == header
    (part,) = fit_table(table, 100)
    assert part.table.header == table.header, "a table, and no records"
    others = [row[1:7] for row in table.rows if row[0] != "given"]
    assert len(set(others)) == len(others) > 1
    assert {row["placement"] for row in rows} >= {"around", "there_and_back"}
    legend = next(line for line in searched_lines(found) if line.startswith("Rows named other"))
    assert "another schedule, placement, number of IPUs or recomputation. Column placement: " in legend


def test_the_given_schedule_stays_where_others_are_as_fast() -> None:
    # Four replicas of one IPU each take 2 x 4 x 3,000 cycles and four updates of 500, in whatever order.
    limits = Limits(schedules=("sequential", "grouped", "1f1b"), sync=("lock_step", "point_to_point"))
    found = suggest(equal_stages("1f1b"), limits)
    assert found.trial.cycles == 26_000
    assert found.changes["pipeline.schedule"] == "1f1b"
    rows = [row for row in plan_table(found).rows if row[-1] == "1.000"]
    assert rows[0][:2] == ("best", "1f1b in point-to-point")
    assert {row[0] for row in rows[1:]} == {"other"}
    assert len({row[1] for row in rows}) == len(rows)
    note = (
        "Point-to-point is an idealised machine: IPUs meet only after weight updates, and each tensor is copied "
        "separately."
    )
    assert note in [*verdict(found)]
    alone = suggest(equal_stages("1f1b"), Limits(schedules=("sequential", "grouped", "1f1b")))
    assert {
        trial.accepted_job.plan.sync for trial in (alone.given_trial, *(plan.trial for plan in alone.searched.plans))
    } == {Sync.POINT_TO_POINT}
    assert note not in [*verdict(alone)]


def test_stages_that_do_not_say_what_they_hold_are_not_put_together_unless_it_is_asked_for() -> None:
    """Four replicas of one IPU each would be the fastest: nobody knows whether they fit there."""
    stages = ({"forward": 1000 * (1 + (number == 1)), "backward": 2000} for number in range(4))
    asked = of_stages("grouped", *stages, system="pod16", ipus=4, gradient_accumulation_count=8)
    found = suggest(asked, Limits())
    assert found.trial.fits is Fits.UNKNOWN
    assert {len(set(plan.choice.mapping)) for plan in found.searched.plans} <= {4}
    assert len(set(found.job.program.shape.mapping)) == 4
    assert "Memory: not known: the scenario states no memory of its stages." in [*verdict(found)]
    (said,) = (line for line in searched_lines(found) if line.startswith("Left out: "))
    layouts = found.searched.refused[NEEDS_MEMORY]
    assert f"Left out: {layouts} layouts that put several stages on an IPU, because " in said
    placed = suggest(asked, Limits(placements=("straight",)))
    assert set(placed.job.program.shape.mapping) == {0}
    assert placed.trial.cycles < found.trial.cycles
    # With 8 micro-batches the sum over replicas would take longer than the ramps of a pipeline.
    many = {"pipeline.stages.0.parameter_bytes": 1024, "pipeline.gradient_accumulation_count": 64}
    held = suggest(asked.replace(many), Limits())
    assert (set(held.job.program.shape.mapping), held.trial.fits) == ({0}, Fits.YES)


@pytest.mark.parametrize("size", [1, 2])
def test_a_layer_that_is_too_large_by_itself_is_named_with_its_excess(size: int) -> None:
    """Its weights and their accumulators are 2 x 4 bytes each of 897 MiB, on whichever IPU."""
    layers = [
        {"name": "small", "type": "dense", "units": 2048},
        {"name": "large", "type": "dense", "units": 65_536},
        {"name": "last", "type": "dense", "units": 2},
        {"name": "loss", "type": "softmax_cross_entropy"},
    ]
    data = {"type": "synthetic", "shape": [8], "classes": 2, "samples": 64}
    asked = Request.from_dict(
        {
            "system": {"name": "m2000"},
            "numerics": "off",
            "data": data,
            "model": {"layers": layers},
            "optimizer": {"type": "sgd", "learning_rate": 0.1},
            "pipeline": {"splits": ["large"], "micro_batch_size": size, "gradient_accumulation_count": 4},
        }
    )
    found = suggest(asked, Limits(replicas=(1,), schedules=("grouped",), recompute=("no",), offload=("no",)))
    assert found.outcome is Outcome.NONE_FITS
    weights = 2048 * 65_536 + 65_536
    named = re.search(r"large with its ([\d,]+) weights \((.+?) at least, (.+?) too much\)", found.why_none)
    assert named is not None
    assert int(named[1].replace(",", "")) == weights
    least, excess = (float(parse_quantity(text, "bytes")) for text in (named[2], named[3]))
    assert least >= 2 * 4 * weights
    assert excess == pytest.approx(least - 897 * MIB, abs=MIB)
    assert "small with" not in found.why_none
    assert found.why_none.endswith("smaller micro-batches may.") == (size > 1)


UNEVEN = {"forward": 1000, "backward": 1000}, {"forward": 3000, "backward": 3000}


@pytest.mark.parametrize(
    "limits", [Limits(replicas=(1,)), Limits(ipus=(2,), stages=(2,)), Limits(sync=("point_to_point",))]
)
def test_a_given_plan_that_no_search_looks_at_is_kept_where_the_limits_leave_it(limits: Limits) -> None:
    # Of Chimera each IPU runs both stages for half of the micro-batches: 2 x 2,000 + 2 x 6,000 cycles.
    found = suggest(of_stages("chimera", *UNEVEN), limits)
    assert (found.plan, found.trial.cycles) == (None, 16_000)
    assert next(verdict(found)).startswith("Keep the given plan: chimera in point-to-point, 2 stages on 2 IPUs")
    assert not isinstance(found.ceiling, str)
    assert [*found.ceiling.parts.values()] == [1, 0, 0]  # both IPUs work all the time


def test_a_slower_plan_is_said_to_be_taken_because_the_limits_leave_the_given_one_out() -> None:
    found = suggest(of_stages("chimera", *UNEVEN), Limits(schedules=("grouped",)))
    # Four micro-batches of the longer stage behind the first of the other, there and back.
    assert found.trial.cycles == 4 * 6000 + 2000
    text = "The plan is 0.62 times as fast as the given plan, which takes 12.03 us. "
    assert text + "The options exclude the given plan from the search." in [*verdict(found)]
    assert Limits(schedules=("all",)).leave(found.baseline)


def test_sums_of_other_numbers_of_gradients_are_said_to_be_other_steps() -> None:
    request = dense(3, 8, optimizer={"type": "sgd", "learning_rate": 0.1}, training=True)
    found = suggest(request, Limits(replicas=(4,)))
    text = (
        "The plan learns in other steps: a weight update adds up the gradients of 4 micro-batches, under the given "
        "plan of 8 (reduction_method SUM). With MEAN, the steps are equal."
    )
    assert text in [*verdict(found)]
    averaged = suggest(request.replace({"pipeline.reduction_method": "MEAN"}), Limits(replicas=(4,)))
    assert not [line for line in verdict(averaged) if "other steps" in line]


def test_a_good_plan_is_found_early_in_a_search_of_many_kinds() -> None:
    """A quarter of the time is at hand: one IPU runs a micro-batch of 8 in hardly more time than a micro-batch of 1."""
    steps: list[int] = []
    sizes = Limits(micro_batch_sizes=(1, 2, 4, 8))
    found = suggest(dense(3, 8), sizes, progress=lambda _, searched: steps.append(searched.simulated), runners_up=0)
    assert steps.index(1) < 20 < len(steps)
    assert found.trial.period * 2 < found.given_trial.period


def test_a_plan_of_more_samples_is_compared_with_the_given_one_at_as_many() -> None:
    """Grouped on two IPUs, one micro-batch behind the other: (m + 1) times 2,000 cycles of the even stages."""
    even = {"forward": 1000, "backward": 1000}
    request = of_stages("grouped", even, even)
    found = suggest(request, Limits(global_batch=16, schedules=("grouped",), ipus=(2,), stages=(2,)))
    assert (found.given_trial.cycles, found.trial.cycles) == (5 * 2000, 17 * 2000)
    equal = found.given_with_equal_samples
    assert equal is not None
    assert equal.cycles == found.trial.cycles
    (text,) = [line for line in verdict(found) if line.startswith("Per sample, ")]
    assert "Per sample, the plan is 1.18 times as fast as the given plan" in text  # 4 x 5 / 17
    assert "With 16 micro-batches, for as many samples, the given plan takes " in text
    assert text.endswith("the plan is 1.00 times as fast as that.")
    times = {row["plan"]: row["times_best"] for row in plan_rows(found)}
    assert times["given"] == pytest.approx(20 / 17, rel=0.01)  # per sample


def test_segments_are_parts_of_a_micro_batch_and_no_samples() -> None:
    found = suggest(of_stages("seq_1f1b", *[{"forward": 1000, "backward": 2000}] * 2), Limits(replicas=(1,)))
    # 3,000 cycles a micro-batch, and half of that in the ramps, as each is in two segments.
    assert (found.plan, found.trial.cycles, found.trial.samples) == (None, 4 * 3000 + 1500, 4)
    assert "Against one IPU: 1.78 times as fast: one IPU takes 18.05 us for the same number of samples." in [
        *verdict(found)
    ]
    assert not isinstance(found.ceiling, str)
    assert [*found.ceiling.parts.values()] == [1, 0, 0]
    assert "4 micro-batches reach 88.9% of this ceiling, 5 are enough for 90 %." in "\n".join(verdict(found))


def test_a_count_too_small_to_fill_the_pipeline_is_simulated_before_it_is_enough() -> None:
    """One micro-batch takes 3,900 cycles, and two take 6,000, as each further one takes 3,000."""
    stages = {"forward": 1000, "backward": 2000}, {"forward": 300, "backward": 600}
    found = suggest(of_stages("1f1b", *stages, gradient_accumulation_count=1), Limits(schedules=("1f1b",)))
    assert "1 micro-batch reaches 76.9% of this ceiling, 2 are enough for 90 %." in "\n".join(verdict(found))


def test_a_program_that_takes_no_time_has_a_verdict() -> None:
    words = [*verdict(suggest(of_stages("grouped", *[{"forward": 0, "backward": 0}] * 2)))]
    assert words[1] == "Time per weight update: 0 s; no throughput."
    assert "Against one IPU: as fast: one IPU takes 0 s for the same number of samples." in words


def test_of_plans_that_take_as_long_the_one_that_holds_least_is_taken() -> None:
    stages = ({"forward": 100_000, "backward": 200_000, "stash_bytes": size * MIB} for size in (299, 10))
    found = suggest(of_stages("grouped", *stages, system="m2000"), Limits(schedules=("gpipe", "1f1b", "single")))
    tied = {plan.choice.schedule: plan for plan in found.searched.best_plans if plan.cycles == found.trial.cycles}
    held = {name: plan.trial.accepted_job.memory.fullest.bytes for name, plan in tied.items()}
    assert held == {"1f1b": 309 * MIB, "single": 309 * MIB, "gpipe": 618 * MIB}
    assert found.changes["pipeline.schedule"] != "gpipe"


def test_where_nothing_fits_the_option_is_named_with_which_the_given_plan_does() -> None:
    """Weights, state and accumulators of 300 MiB each lie on an IPU of 897 MiB, or the state on the host."""
    stage = {"forward": 100_000, "backward": 200_000, "parameter_bytes": 300 * MIB, "state_bytes": 300 * MIB}
    found = suggest(of_stages("grouped", stage, stage, system="m2000"))
    assert found.outcome is Outcome.NONE_FITS
    assert found.why_none.endswith(
        "The given plan fits with optimizer state and update on the host: --set pipeline.variables_on_host=true"
    )
