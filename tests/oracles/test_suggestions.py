"""The suggested plan is the best there is: by brute force on small models, and against the scenarios' own plans."""

import functools
import random
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from ipusim.analysis.executions import executions_of
from ipusim.app.scenario.load import load_job, load_request
from ipusim.app.study.full_pipeline import COUNT, Ceiling, ceiling_of
from ipusim.app.study.trial import change_request, try_request
from ipusim.app.suggest import search
from ipusim.app.suggest.limits import Limits
from ipusim.app.suggest.suggestion import NothingFitsError, Outcome, Suggestion, suggest
from ipusim.app.suggest.words import searched_lines, verdict
from ipusim.app.suggest.writing import write_suggested
from ipusim.base.errors import OptionError
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from tests.effort import sampled, seeds, slowest
from tests.scenarios import SCENARIOS
from tests.schedules import SCHEDULES

SRAM = 1472 * 624 * 1024


def small_model(seed: int) -> tuple[Request, Limits]:
    """Return a random model of a few layers on two IPUs, and what its search is limited to."""
    draw = random.Random(seed)
    layers = [{"name": "flat", "type": "flatten"}] if draw.random() < 0.3 else []
    for number in range(draw.randint(1, 2)):
        activation = draw.choice([{}, {"activation": "relu"}])
        layers.append(
            {"name": f"dense{number}", "type": "dense", "units": draw.choice([8, 64, 512, 2048]), **activation}
        )
    training = draw.random() < 0.8
    layers += [{"name": "logits", "type": "dense", "units": 4}] + [
        {"name": "loss", "type": "softmax_cross_entropy"}
    ] * training
    optimizer = draw.choice([{"type": "sgd", "learning_rate": 0.1}, {"type": "adam", "learning_rate": 0.1}])
    shape = [draw.choice([8, 300, 1024])]
    data = {
        "system": {"name": "m2000", "auto_select_ipus": 2},
        "data": {"type": "synthetic", "shape": shape, "classes": 4, "samples": 64},
        "model": {"layers": layers},
        "pipeline": {
            "schedule": "grouped",
            "splits": ["logits"],
            "micro_batch_size": draw.choice([1, 4, 32]),
            "gradient_accumulation_count": 4,
        },
        "numerics": "off",
        **(
            {"code_bytes": draw.choice([0, 0, SRAM - draw.choice([100_000, 1_000_000, 8_000_000])])}
            if draw.random() < 0.7
            else {"rates": {"program_code": SRAM // 1472 - draw.choice([70, 700, 7_000, 600_000])}}
        ),
        **({"optimizer": optimizer} if training else {}),
    }
    schedules = tuple(draw.sample(["grouped", "interleaved", "sequential", "sharded", "single", "1f1b", "gpipe"], 2))
    sync = draw.choice([None, ("lock_step",), ("point_to_point",)])
    recompute = draw.choice([("no",), ("no", "yes"), ("yes",)]) if training else ("no",)
    if draw.random() < 0.4:
        data["pipeline"]["variables_on_host"] = True
    if draw.random() < 0.4:
        data["system"]["host"] = {"data_rate": draw.choice(["3 MB/s", "100 MB/s", "1 GB/s"])}
    return Request.from_dict(data), Limits(schedules=schedules, sync=sync, recompute=recompute, offload=("no",))


def brute_force(request: Request, limits: Limits) -> int | None:
    """Return the least cycles of every plan within ``limits`` that assembles and fits; None where none does."""
    options = request.options
    names = [layer.name for layer in options.model.layers]
    batch = options.pipeline.micro_batch_size * options.pipeline.gradient_accumulation_count
    mappings = [(0,), (0, 0), (0, 1), (0, 1, 0), (0, 1, 0, 1), (0, 1, 1, 0)]
    best = None
    own = assemble(request.replace({"memory": "report"})).plan.sync.value  # the mode of the plans beside it
    modes = {"no": [{}], "yes": [{"pipeline.allow_recompute": True, "pipeline.recomputation_mode": mode} for mode in (
        "RecomputeThenBackpropagate", "RecomputeAndBackpropagateInterleaved")]}  # fmt: skip
    again = [each for word in limits.recompute or ("no", "yes") for each in modes[word]]
    for ipus, mapping in product((1, 2), mappings):
        replicas = ipus // (max(mapping) + 1)
        count, rest = divmod(batch, options.pipeline.micro_batch_size * max(replicas, 1))
        if not replicas or rest or len(mapping) > len(names):
            continue
        for cuts in combinations(names[1:], len(mapping) - 1):
            for schedule, sync, mode in product(limits.schedules, limits.sync or (own,), again):
                plan = {
                    "system.auto_select_ipus": ipus,
                    "pipeline.schedule": schedule,
                    "pipeline.sync": sync,
                    "pipeline.splits": list(cuts),
                    "pipeline.device_mapping": list(mapping),
                    "pipeline.gradient_accumulation_count": count,
                    **mode,
                }
                try:
                    job = assemble(request.replace(plan))
                except RequestError:
                    continue
                if job.memory.excess_peaks:  # with the code that is assumed
                    continue
                cycles = execute(job).summary.execution_cycles
                best = cycles if best is None else min(best, cycles)
    return best


@sampled(2)
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[slowest] * (seed % 2)) for seed in seeds(50)])
def test_brute_force_finds_nothing_faster(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    request, limits = small_model(seed)
    best = brute_force(request, limits)
    for many in (search._COSTLY_CUTS, 0):  # without prices and a good cut at once, and with them
        monkeypatch.setattr(search, "_COSTLY_CUTS", many)
        if best is None:
            with pytest.raises((RequestError, OptionError, NothingFitsError)):
                suggest(request, limits).raise_if_none()
            continue
        found = suggest(request, limits, runners_up=0)
        assert found.trial.cycles == best
        assert found.outcome is Outcome.PLAN
        assert found.searched.skipped_bound is None


@sampled(2)
@pytest.mark.parametrize(
    "name",
    [
        "digits_training",
        "inference",
        "small_cnn",
        "tutorial_step1_single_ipu",
        pytest.param("tutorial_step2_sharding", marks=slowest),
        pytest.param("tutorial_step3_pipelining", marks=slowest),
        pytest.param("tutorial_step4_configurable_stages", marks=slowest),
    ],
)
def test_no_scenario_beats_its_suggestion_which_runs_as_said(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS / f"{name}.yaml"
    found = suggested_digits() if name == "digits_training" else suggest(load_request(scenario))
    own = execute(load_job(scenario, ["numerics=off", "steps=1"] if name == "digits_training" else ["numerics=off"]))
    assert found.trial.cycles is not None
    assert found.trial.cycles / found.trial.samples <= own.summary.execution_cycles / found.given_trial.samples
    if found.plan is not None:
        out = tmp_path / "suggested.yaml"
        write_suggested(found, scenario, [], out)
        again = execute(load_job(out, ["numerics=off"]))
        assert again.summary.execution_cycles == found.trial.cycles
        assert again.summary.throughput.effective_batch_size == found.trial.samples


def test_streaming_memory_is_found_faster_than_a_host_that_updates(tmp_path: Path) -> None:
    """The given plan fits, as its optimizer's state is on the host, and waits for that."""
    scenario = SCENARIOS / "variables_on_host.yaml"
    found = suggest(load_request(scenario), Limits(schedules=("grouped",)), simulations=10)
    assert found.trial.job is not None
    assert found.trial.job.program.offload.weight_update_variables
    assert not found.trial.job.program.offload.variables_on_host
    assert found.given_trial.job is not None
    assert found.given_trial.job.program.offload.variables_on_host
    assert found.trial.period < 0.4 * found.given_trial.period
    assert "; its host updates the weights." in "\n".join(verdict(found))
    write_suggested(found, scenario, [], tmp_path / "out.yaml")
    said = "  variables_on_host: false # was true: Streaming Memory replaces the host, and the IPUs update"
    assert said in (tmp_path / "out.yaml").read_text()


def digits(*changes: str) -> Request:
    return load_request(SCENARIOS / "digits_training.yaml", changes)


@functools.cache
def suggested_digits() -> Suggestion:
    """Return what a whole search finds for them, once for all that look at it."""
    return suggest(digits())


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"orders": ("SNAK",)}, "orders: expected ZIGZAG, SNAKE or HOOF, got 'SNAK'; did you mean SNAKE?"),
        ({"recompute": ("maybe",)}, "recompute: expected yes or no, got 'maybe'"),
        ({"schedules": ("gruped",)},
         f"schedules: got 'gruped'; did you mean 'grouped'? Expected a schedule out of {SCHEDULES}"),
        ({"placements": ("strait",)},
         "placements: expected straight, returning, around or there_and_back, got 'strait'; did you mean straight?"),
        ({"ipus": (3,)}, "ipus: expected 1, 2 or 4, sizes of a device of m2000, got 3"),
        ({"stages": (3,), "replicas": (4,)}, "stages: expected 1 or 2 with the other options, got 3"),
        ({"stages": (0,)}, "stages: expected a whole number from 1 up, got 0"),
        ({"stages": ()}, "stages: expected at least one value to search, got none"),
        ({"global_batch": 100, "ipus": (1,)},
         "global_batch: expected a number of samples that some plan divides, got 100; the nearest are 96 and 112"),
    ],
)  # fmt: skip
def test_limits_that_leave_nothing_say_what_would_be_right(limits: dict[str, object], text: str) -> None:
    with pytest.raises(OptionError) as raised:
        suggest(digits(), Limits(**limits))  # type: ignore[arg-type]
    assert str(raised.value) == text


def test_the_written_scenario_keeps_comments_and_says_why(tmp_path: Path) -> None:
    scenario = SCENARIOS / "digits_training.yaml"
    write_suggested(suggested_digits(), scenario, [], tmp_path / "out.yaml")
    text = (tmp_path / "out.yaml").read_text()
    assert text.startswith("# Real data: a classifier")
    assert "gradient_accumulation_count: 2" in text
    assert "# was 8: x 4 replicas x 16 samples is the global batch" in text
    assert "# 11 x 8 x 16 samples: nearly one epoch a step" in text


def test_no_option_of_the_given_plan_goes_without_a_word(tmp_path: Path) -> None:
    scenario = tmp_path / "given.yaml"
    given = """pipeline:
  allow_recompute: true
  recomputation_mode: RecomputeThenBackpropagate
  device_mapping: [0, 1, 2, 3]
  stages: [[flatten, dense256], [dense128], [dense64], [logits, cel]]
"""
    text = (SCENARIOS / "digits_training.yaml").read_text().replace("  splits: [dense128, dense64, logits]\n", "")
    scenario.write_text(text.replace("pipeline:\n", given).replace("  auto", "  selection_order: SNAKE\n  auto"))
    limits = Limits(ipus=(2,), replicas=(1,), stages=(2,), recompute=("no",), schedules=("grouped",))
    suggestion = suggest(load_request(scenario), limits, runners_up=0)
    assert next(verdict(suggestion)).endswith(f", IPUs selected in {suggestion.job.system.selection_order} order.")
    write_suggested(suggestion, scenario, [], tmp_path / "out.yaml")
    lines = [" ".join(line.split()) for line in (tmp_path / "out.yaml").read_text().splitlines()]
    assert "selection_order: AUTO # was SNAKE: the fastest copies between these IPUs" in lines
    assert "allow_recompute: false # was true: kept activations fit" in lines
    assert "recomputation_mode: Auto # was RecomputeThenBackpropagate: no recomputation" in lines
    assert "splits: [dense64] # in place of stages: the most even stages that fit, copies included" in lines


@pytest.mark.parametrize("serialized", [1, 4])
def test_what_a_ceiling_is_made_of_does_not_depend_on_how_many_micro_batches_are_laid_out(serialized: int) -> None:
    """Of 4,000 micro-batches a run of time alone lays out some dozen."""
    request = change_request(
        load_request(SCENARIOS / "tutorial_step4_configurable_stages.yaml"),
        {"numerics": "off", "pipeline.batch_serialization_iterations": serialized, "memory": "report"}
        | ({"pipeline.schedule": "sequential"} if serialized > 1 else {}),
    )
    counts = "pipeline.gradient_accumulation_count"
    jobs = [assemble(change_request(request, {counts: count})) for count in (8, 4000)]
    assert jobs[1].plan.shape.micro_batches < 4000 <= jobs[1].program.shape.micro_batches
    ceilings = [ceiling_of(job) for job in jobs]
    assert all(isinstance(ceiling, Ceiling) for ceiling in ceilings)
    assert ceilings[0].parts == ceilings[1].parts  # type: ignore[union-attr]


def test_activations_that_move_may_fill_the_links_later_so_no_ceiling_is_known() -> None:
    """Three counts up to 16 grow evenly by half of the cycles that a micro-batch takes from a count of 128 on."""
    moved = {"pipeline.schedule": "gpipe", "pipeline.offload_activations": {"to": "partner"}}
    request = load_request(SCENARIOS / "memory_by_schedule.yaml")
    assert isinstance(ceiling_of(assemble(change_request(request, {"pipeline.schedule": "gpipe"}))), Ceiling)
    assert ceiling_of(assemble(change_request(request, moved))) == ""


def test_state_that_stays_on_its_ipus_is_said_where_it_would_not_by_default(tmp_path: Path) -> None:
    scenario = tmp_path / "offload.yaml"
    text = (SCENARIOS / "optimizer_state_offload.yaml").read_text()
    scenario.write_text(text.replace("  offload_weight_update_variables: true\n", ""))
    found = suggest(load_request(scenario), runners_up=0)
    write_suggested(found, scenario, [], tmp_path / "out.yaml")
    assert (
        "  offload_weight_update_variables: false # the state fits on its IPUs" in (tmp_path / "out.yaml").read_text()
    )


def test_its_time_is_what_a_run_of_it_says_the_host_between_session_runs_too() -> None:
    request = load_request(
        SCENARIOS / "tutorial_step3_pipelining.yaml", ["system.host.framework=popart", "pipeline.repeat_count=4"]
    )
    found = suggest(request, Limits(ipus=(2,), replicas=(1,), schedules=("grouped",)))
    run = execute(assemble(change_request(found.request, {"numerics": "off"}))).summary
    host = found.job.costs.host.state + Fraction(found.job.costs.host.call, 4)
    assert host > 0
    period = float(found.trial.period) / run.clock_hz
    assert period == pytest.approx(run.throughput.weight_update_period_s, rel=1e-9)
    assert found.ceiling is not None
    assert isinstance(found.ceiling, Ceiling)
    enough = {COUNT: found.ceiling.count_for(Fraction(9, 10))}
    rate = try_request(found.request, enough).throughput.samples_per_s
    assert rate >= 0.9 * found.ceiling.samples_per_s


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(
    "feeds",
    [
        {"outfeed": {"element_bytes": 100_000, "mode": "LAST"}},
        {"outfeed": {"element_bytes": 1_000_000}},
        {"infeed": {"element_bytes": 1_000_000}, "outfeed": {"element_bytes": 1_000_000}},
    ],
    ids=["results once a session run", "outfeed that fills up", "both feeds"],
)
def test_its_time_is_that_of_a_run_whose_weight_updates_take_unequally_long(feeds: dict[str, Any], steps: int) -> None:
    stages = [{"name": name, "forward": 1000, "backward": 2000, "update": 500} for name in ("first", "last")]
    pipeline = {"gradient_accumulation_count": 4, "repeat_count": 10, "micro_batch_size": 4, "stages": stages}
    request = Request.from_dict({"system": {"name": "m2000"}, "pipeline": pipeline, "steps": steps, **feeds})
    found = suggest(request, Limits(ipus=(2,), schedules=("grouped",)), runners_up=0)
    run = execute(assemble(found.request)).summary
    assert len({each.execution_cycles for each in executions_of(execute(found.job).timeline)}) > 1
    for trial in (found.trial, found.given_trial):
        assert float(trial.period) / run.clock_hz == pytest.approx(run.throughput.weight_update_period_s, rel=1e-9)


def test_a_global_batch_is_that_of_all_hosts(tmp_path: Path) -> None:
    name, hosts = SCENARIOS / "tutorial_step3_pipelining.yaml", ["system.host.count=2", "pipeline.repeat_count=1"]
    limits = {"ipus": (2,), "replicas": (1,), "stages": (2,), "schedules": ("grouped",), "recompute": ("no",)}
    found = suggest(load_request(name, hosts), Limits(global_batch=768, **limits), runners_up=0)
    run = execute(assemble(change_request(found.request, {"numerics": "off", "steps": 1}))).summary
    assert (found.given_trial.samples, found.baseline.global_batch) == (1024, 1024)
    assert found.trial.samples == run.throughput.effective_batch_size == 768
    assert found.ceiling is not None
    assert found.ceiling.samples * run.count == 768
    assert f"Against one IPU: {run.verdict.speed_up:.2f} times as fast:" in "\n".join(verdict(found))
    write_suggested(found, name, hosts, tmp_path / "out.yaml")
    assert "count: 12 # was 16: x 1 replicas x 2 hosts x 32 samples is the" in (tmp_path / "out.yaml").read_text()
    with pytest.raises(OptionError, match="got 1001; the nearest are 768 and 1024"):
        suggest(load_request(name, hosts), Limits(global_batch=1001, **limits))


def test_stages_that_run_at_the_same_time_stay_as_they_are_and_nothing_is_said_to_be_proven() -> None:
    request = load_request(SCENARIOS / "concurrent_stages.yaml")
    found = suggest(request)
    assert found.plan is None
    assert found.changes == {}
    run = execute(assemble(change_request(request, {"numerics": "off", "evaluate": None, "steps": 1}))).summary
    assert found.trial.cycles == run.execution_cycles
    said = "\n".join([*verdict(found), *searched_lines(found)])
    assert "Nothing faster was searched for, because concurrent stages are not changed." in said
    assert "roven" not in said


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"pipeline.gradient_accumulation_count": 7}, "must be a multiple of 8, but it is 7"),
        ({"pipeline.stages.0.stash_bytes": "400 MiB"}, "pipeline.allow_recompute: Out of memory on IPU 0"),
        ({"pipeline.device_mapping": [0, 1, 2, 3]}, "device mapping must also be a list of device IDs"),
        ({"pipeline.device_mapping": [0, [1, 2], [0, 1, 2, 3], 3]}, "expected one IPU for a stage that is no single"),
    ],
)
def test_stages_that_run_at_the_same_time_are_refused_as_a_run_of_them_is(changes: dict[str, Any], text: str) -> None:
    request = change_request(load_request(SCENARIOS / "concurrent_stages.yaml"), changes)
    for refused in (assemble, suggest):
        with pytest.raises(RequestError, match=text):
            refused(request)


def test_no_limit_is_good_where_nothing_is_searched() -> None:
    with pytest.raises(OptionError) as error:
        suggest(load_request(SCENARIOS / "concurrent_stages.yaml"), Limits(ipus=(2,), global_batch=32))
    assert error.value.worded(lambda name: f"--{name}") == (
        "--global_batch: expected no limits of a search for concurrent stages, which are not changed, got "
        "--global_batch and --ipus"
    )
