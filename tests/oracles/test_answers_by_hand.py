"""Verdicts of commands on small programs whose answer is worked out by hand."""

import itertools
from pathlib import Path

import pytest

from ipusim.api import Request, assemble, execute, hardware, timelines
from ipusim.app.compare.compare import ComparedItem, compare
from ipusim.app.compare.comparison import Comparison
from ipusim.app.compare.comparison_files import ComparisonResult
from ipusim.app.compare.comparison_words import row_words, verdict
from ipusim.app.explain.explanation import explain
from ipusim.app.run_folder.export import export_files
from ipusim.app.scenario.load import load_request
from ipusim.app.study.full_pipeline import ceiling_of
from ipusim.app.suggest.limits import Limits
from ipusim.app.suggest.suggestion import suggest
from ipusim.app.sweep.ceiling import ceilings
from ipusim.app.sweep.measures import MEMORY
from ipusim.app.sweep.report import verdict as sweep_verdict
from ipusim.app.sweep.sweep import sweep
from ipusim.app.sweep.vary import axis_of
from ipusim.base.errors import OptionError
from ipusim.timeline.kinds import SpanKind
from tests import scenarios
from tests.drawn_pictures import words

#: Two stages of 3,000 cycles for a micro-batch.
EVEN = [{"forward": 1000, "backward": 2000}] * 2


def request(schedule, *stages, system="free", hosts=None, **options):
    """Return stages known by their cost, four micro-batches in each execution unless more is said."""
    named = [{"name": name, **stage} for name, stage in zip("abcd", stages, strict=False)]
    pipeline = {"schedule": schedule, "gradient_accumulation_count": 4, "stages": named, **options.pop("pipeline", {})}
    on = {"name": system, "auto_select_ipus": 2, **({"host": {"count": hosts}} if hosts else {})}
    return Request.from_dict({"system": on, "pipeline": pipeline, **options})


def explained(asked, **options):
    job = assemble(asked)
    return [*explain(execute(job).timeline, job, **options).words()]


def test_what_only_moves_does_not_fit_where_gpipe_keeps_it_sixteen_times():
    # 17 of 60 MiB are 1,020 MiB, of 897; 1F1B keeps four.
    stages = (
        {"forward": 30_000_000, "backward": 40_000_000, "output_bytes": "60 MiB"},
        {"forward": 30_000_000, "backward": 40_000_000, "gradient_bytes": "60 MiB"},
    )
    pipeline = {"gradient_accumulation_count": 16}
    asked = request("gpipe", *stages, system="m2000", code_bytes=0, memory="report", pipeline=pipeline)
    compared = Comparison(compare(asked, ["gpipe", "1f1b"]))
    assert compared.best.schedule == "1f1b"
    assert next(verdict(compared)).startswith("Best of the runs that fit: 1f1b in point-to-point")


def test_nothing_is_faster_and_fits_where_the_weights_alone_do_not():
    stages = {"forward": 100, "backward": 200, "parameter_bytes": "1 GiB"}, {"forward": 100, "backward": 200}
    words = explained(request("1f1b", *stages, system="m2000", code_bytes=0, memory="report"))
    assert "No single change tried is faster and fits." in words


def compared(*asked):
    return Comparison(compare([ComparedItem(each, f"run {number}") for number, each in enumerate(asked)]))


def test_a_comparison_with_a_run_that_takes_no_time_is_drawn():
    stages = [[{"forward": cycles, "backward": cycles}] * 2 for cycles in (0, 0, 1000)]
    assert "comparison.png" in ComparisonResult(compared(*(request("1f1b", *each) for each in stages))).files()


def test_more_samples_a_second_stand_behind_a_shorter_bar_as_such():
    # 5 x 3,000 cycles for four micro-batches, 9 x 3,000 for eight: 10 / 9 of the samples/s.
    runs = [request("1f1b", *EVEN, pipeline={"gradient_accumulation_count": count}) for count in (4, 8)]
    found = compared(*runs)
    assert not found.is_by_time
    assert "+11.1% samples/s" in row_words(found, found.rows[1])
    found = compared(runs[0], request("gpipe", *EVEN))
    assert "samples/s" not in row_words(found, found.rows[1])


def test_a_wait_for_the_sum_over_hosts_is_of_the_weight_update_as_the_sum_is():
    stages = [{"forward": 1000, "backward": 2000, "update": 10, "parameter_bytes": "1 MiB"}] * 2
    job = assemble(request("1f1b", *stages, system="m2000", hosts=4))
    timeline = execute(job).timeline
    found = explain(timeline, job)
    assert (timeline.kind == SpanKind.HOST_WAIT).any()
    per_ipu = {look.name: cycles.tolist() for look, cycles in found.ipu_time}
    update = int(found.waterfall.cycles[timelines.TimePart.UPDATE])
    assert per_ipu[timelines.TimePart.UPDATE.words] == [update] * 2
    assert per_ipu[timelines.TimePart.HOST.words] == [0, 0]


def test_a_run_that_takes_less_than_the_ideal_one_wastes_nothing():
    stages = [{"forward": forward, "backward": 1000 - forward} for forward in (1000, 0, 1000, 1000)]
    asked = request("hanayo", *stages, pipeline={"device_mapping": [0, 1, 1, 0]})
    words = explained(asked, straggling=True)
    assert not any(".." in sentence for sentence in words)
    assert "S is 0.857: the run does not straggle: S is below 1.1; 0.0% of the IPUs' time is waste." in words
    assert "M_W and M_S are not defined, because the run takes less than the ideal run." in words


def test_of_a_part_that_takes_no_time_nothing_can_be_less():
    stages = {"forward": 0}, {"forward": 1000, "backward": 1000, "update": 1000}
    words = explained(request("1f1b", *stages, pipeline={"gradient_accumulation_count": 1}))
    assert not any("now 0.0%" in sentence for sentence in words)


def test_a_share_of_the_ceiling_holds_for_all_counts_from_the_named_one_on():
    # Of odd counts one micro-batch goes by itself: 5 has 87.5 %, 6 has 93 %, 13 has 94.8 % and 14 has 97 %.
    asked = request("hanayo", *[{"forward": 1000, "backward": 2000, "update": 500}] * 4)
    axis = axis_of("pipeline.gradient_accumulation_count", "1..16+1")
    (limit,) = ceilings(sweep(asked, [axis]))
    assert limit.samples_per_s == pytest.approx(190_000)
    assert (limit.enough_count, limit.near_count) == (6, 14)


@pytest.mark.parametrize(("ipus", "counts"), [(3, [8, 16, 24]), (3, [32]), (8, [16, 24, 32])])
def test_a_ceiling_is_what_a_long_run_comes_to_where_tensors_take_their_time(ipus, counts):
    """Under 1F1B some of so many micro-batches, one for each IPU, take longer than others: 3,378 cycles and 34,150."""
    stages = [{"name": f"s{number}", "forward": 1000, "backward": 2000} for number in range(ipus)]
    for one, other in itertools.pairwise(stages):
        one["output_bytes"] = other["gradient_bytes"] = 40_000
    pipeline = {"schedule": "1f1b", "sync": "point_to_point", "gradient_accumulation_count": 8, "stages": stages}
    asked = Request.from_dict({"system": {"name": "pod16"}, "pipeline": pipeline})
    (limit,) = ceilings(sweep(asked, [axis_of("pipeline.gradient_accumulation_count", counts)]))

    def job(count):
        return assemble(asked.replace({"pipeline.gradient_accumulation_count": count}))

    shorter, longer = (execute(job(count), jump=False).timeline.makespan_cycles for count in (30 * ipus, 50 * ipus))
    slope = (longer - shorter) / (20 * ipus)
    assert limit.samples_per_s == pytest.approx(job(8).system.clock_hz / slope, rel=1e-12)
    suggested = ceiling_of(job(8))
    assert not isinstance(suggested, str)
    assert suggested.full.slope == pytest.approx(slope, rel=1e-12)


def test_a_ceiling_is_not_extrapolated_from_fewer_micro_batches_than_a_period_of_time_steps():
    """zero_bubble_h2 repeats after 5 micro-batches of 27,000 cycles; from 6 to 8 and 10 each takes 5,000 by chance."""
    stages = [{"forward": 3000, "backward": 1500}] * 2 + [{"forward": 500, "backward": 3000}]
    asked = request("zero_bubble_h2", *stages, pipeline={"sync": "lock_step"}).replace({"system.auto_select_ipus": 4})
    (limit,) = ceilings(sweep(asked, [axis_of("pipeline.gradient_accumulation_count", [6, 8, 10])]))
    assert limit.samples_per_s == 1.33e9 / 5400


@pytest.mark.parametrize(
    "disturbance", [{"slower": 3, "from": "1 ms"}, {"slower": 3, "until": "1 ms"}, {"lost": "10 ms"}]
)
def test_disturbances_at_a_time_have_no_ceiling_by_counts_that_end_before_it(disturbance):
    """Counts of 8 to 24 end after at most 0.17 ms, so larger counts take another time for each micro-batch."""
    asked = request("1f1b", *EVEN, disturbances=[{"ipu": 1, **disturbance}])
    assert ceilings(sweep(asked, [axis_of("pipeline.gradient_accumulation_count", [8, 16, 24])])) == ()


def test_a_count_above_the_ceiling_is_named():
    """2 micro-batches take 21,000 cycles of time-steps with few waits, further ones 12,000 each."""
    asked = request(
        "gis",
        pipeline={
            "sync": "lock_step",
            "virtual_stages": 3,
            "stages": [{"name": name, "forward": 1000, "backward": 2000} for name in "abcdef"],
        },
    )
    (limit,) = ceilings(sweep(asked, [axis_of("pipeline.gradient_accumulation_count", [2, 4, 12])]))
    assert limit.words().startswith(
        "Ceiling, the throughput with ever more micro-batches: 110,833 samples/s. A count of 2 exceeds it, with "
        "126,667 samples/s. Counts of 2 and more reach 90% of the ceiling"
    )


@pytest.mark.parametrize("mode", ["RecomputeThenBackpropagate", "RecomputeAndBackpropagateInterleaved"])
def test_one_ipu_computes_nothing_again_wherever_others_do(mode):
    """Sixteen micro-batches of four stages of 300,000 cycles, and updates of 20,000; IPUs compute 16 x 300,000."""
    asked = load_request(scenarios.SCENARIOS / "recomputation.yaml")
    job = assemble(asked.replace({"pipeline.recomputation_mode": mode}))
    run = execute(job)
    assert run.summary.verdict.single_ipu_cycles == 16 * 4 * 300_000 + 4 * 20_000
    parts = {look.name: cycles.tolist() for look, cycles in explain(run.timeline, job).ipu_time}
    assert parts["computes"] == [16 * 300_000] * 4
    again = run.summary.waterfall.cycles[timelines.TimePart.RECOMPUTATION]
    assert parts["recomputation"] == [16 * 100_000] * 3 + [0]  # the last stage's activations are still there
    assert parts["waits for recomputation"] == [again - cycles for cycles in parts["recomputation"]]


def test_stages_known_by_their_cost_say_that_of_one_size_of_micro_batch():
    """Another size would be free: four times as many samples in as many cycles."""
    asked = request("1f1b", *[{"forward": 100, "backward": 200}] * 2)
    size = "pipeline.micro_batch_size"
    with pytest.raises(OptionError, match="expected new cycles of stages with each size"):
        sweep(asked, [axis_of(size, [1, 2])])
    with pytest.raises(OptionError, match="expected 1, the size of the stages' cycles, got 1, 2"):
        suggest(asked, Limits(micro_batch_sizes=(1, 2)))
    with pytest.raises(OptionError, match="expected new cycles of stages with a new size"):
        explained(asked, texts=[f"{size}=2"])
    varied = [axis_of(size, [1, 2]), axis_of("pipeline.stages.a.forward", [100, 180])]
    assert len(sweep(asked, varied, vary_together=True).finished_points) == 2


def test_a_measure_that_no_point_has_is_not_one_that_does_not_fit():
    asked = request("1f1b", *EVEN)
    swept = sweep(asked, [axis_of("pipeline.gradient_accumulation_count", [4, 8])])
    first, *_ = sweep_verdict(swept, (), MEMORY)
    assert first == "None of 2 points that fit has a value of memory."


def test_a_range_of_two_units_says_both():
    rates = {rate.name: rate.plausible_text() for rate in hardware.RATES}
    assert (rates["pytorch_offchip_state"], rates["offchip_state"]) == ("100 ns to 1.9 us", "0 s to 520 ns")
    assert (rates["amp_ceiling"], rates["link"]) == ("0.8 to 0.95 of peak", "16 to 17.18 GB/s")


@pytest.mark.parametrize(("start", "end"), [(5000, 4000), (900_000_000, None), (4000, 4000)])
def test_no_table_of_an_empty_window_is_written_over_another(tmp_path, start, end):
    execute(assemble(request("1f1b", *EVEN))).timeline.save(tmp_path / "timeline.npz")
    with pytest.raises(OptionError, match="start: expected a window of cycles within the run"):
        export_files(tmp_path, Path("spans.csv"), start, end)


LOST = {"ipu": 1, "lost": 25_000, "detect": 100, "restart": 100, "checkpoint": 0}


@pytest.mark.parametrize(("disturbances", "named"), [([], "execution 0 of 3"), ([LOST], "the loss of an IPU")])
def test_the_critical_path_is_drawn_of_what_its_title_says(disturbances, named):
    job = assemble(request("1f1b", *EVEN, pipeline={"repeat_count": 3}, disturbances=disturbances))
    found = explain(execute(job).timeline, job)
    assert any(f"{named}; frames are the critical path" in text for text in words(found.charts()["critical_path"]()))


def test_a_sum_over_copies_of_stages_is_of_the_weight_update():
    stage = {"forward": 1000, "backward": 2000, "parameter_bytes": 4 << 20, "accumulator_bytes": 8 << 20}
    asked = request("chimera", *[stage] * 4, system="m2000", pipeline={"gradient_accumulation_count": 8})
    job = assemble(asked.replace({"system": {"name": "m2000"}}))
    cycles = execute(job).summary.waterfall.cycles
    sum_cycles = job.costs.copy_sum.cost.total_cycles
    assert sum_cycles > 100_000
    assert cycles[timelines.TimePart.UPDATE] >= sum_cycles
    assert cycles[timelines.TimePart.FILL_AND_DRAIN] < 16 * 3000


def test_a_stage_that_computes_again_is_the_slowest_of_equal_ones():
    recomputed = {"allow_recompute": True, "recomputation_mode": "RecomputeThenBackpropagate"}
    found = execute(assemble(request("grouped", *EVEN, pipeline=recomputed | {"gradient_accumulation_count": 8})))
    verdict_ = found.summary.verdict
    assert (verdict_.slowest_stages, verdict_.slowest_ratio) == ((0,), 8 / 7)
    assert verdict_.single_ipu_cycles == 8 * 6000


def test_all_tensors_of_an_execution_are_those_of_its_micro_batches_whatever_copies_there_are():
    found = scenarios.run("chimera", forward=1000, backward=2000, moved=8, system="m2000")
    (used,) = [report for report in found.summary.selection_orders if report.used]
    sends = {key: send.lead_cycles + send.cycles for key, send in found.job.costs.sends.items()}
    assert used.execution_cycles == 4 * sum(sends.values())  # half of the micro-batches are of either copy


def test_a_run_whose_memory_is_unknown_holds_no_less_than_one_that_says_it():
    said, unsaid = ([{"forward": 1000, "backward": 2000, **more}] * 2 for more in ({"stash_bytes": "1 MiB"}, {}))
    found = compared(request("1f1b", *unsaid, system="m2000"), request("1f1b", *said, system="m2000"))
    assert "hold" not in " ".join(verdict(found)).partition("as fast as")[2].partition(".")[0]
    assert len(found.best_rows) == 2


def test_ipus_of_all_hosts_are_counted():
    runs = [request("1f1b", *EVEN, system="m2000", hosts=hosts) for hosts in (None, 2)]
    assert "The runs are on 2 and 4 IPUs." in [*verdict(compared(*runs))]
