"""What changes free of an IPU's memory, and cost: each row is what a scenario with these options comes to by itself."""

import re
import shlex
from collections import ChainMap
from dataclasses import replace
from itertools import combinations

import pytest

from ipusim.analysis.fits import fits_or_unknown
from ipusim.analysis.throughput import throughput_of
from ipusim.app.explain.memory_candidates import products_in_half
from ipusim.app.explain.memory_moves import memory_moves
from ipusim.app.explain.memory_words import move_words, moves_table, options_of
from ipusim.app.scenario import load_job, load_request
from ipusim.app.study.trial import time_alone, try_request
from ipusim.app.suggest.budget import Budget
from ipusim.app.suggest.limits import Limits
from ipusim.app.suggest.suggestion import Outcome, suggest
from ipusim.app.suggest.words import searched_lines, so_far, verdict, with_less_memory
from ipusim.app.suggest.writing import write_suggested
from ipusim.base.units import format_bytes, format_seconds, parse_quantity
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from tests.cli.commands import ipusim
from tests.effort import sampled, slowest
from tests.scenarios import SCENARIOS

BY_SCHEDULE = SCENARIOS / "memory_by_schedule.yaml"
COUNT = "pipeline.gradient_accumulation_count"
MIB = 2**20


def period(job):
    return throughput_of(execute(job).timeline).weight_update_period_s


@sampled(2)
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("memory_by_schedule", ()),
        ("memory_by_schedule", ("pipeline.schedule=1f1b",)),
        ("digits_training", ("numerics=off", "pipeline.repeat_count=2", "steps=1", "evaluate=null")),
        ("optimizer_state_offload", ("numerics=off", "steps=1", "pipeline.repeat_count=2", "evaluate=null")),
        pytest.param(
            "transformer_eight_ipus",
            ("numerics=off", "steps=1", "pipeline.repeat_count=1", "evaluate=null"),
            marks=slowest,
        ),
        ("data_parallel_4x4", ("numerics=off", "steps=1", "pipeline.repeat_count=1", "evaluate=null")),
    ],
)
def test_each_move_is_the_scenario_with_its_options(name, changes):
    path = SCENARIOS / f"{name}.yaml"
    job = load_job(path, (*changes, "memory=report", "expect=null"))
    moves = memory_moves(job)
    assert moves.moves
    fullest = job.memory.fullest
    assert (moves.ipu, moves.peak_bytes) == (fullest.ipu, fullest.bytes)
    assert moves.period_s == pytest.approx(period(job), rel=1e-12)
    for move in moves.moves:
        options = shlex.split(options_of(move.changes))[1::2]  # as a shell reads them
        other = load_job(path, (*changes, "memory=report", "expect=null", *options))
        assert move.peak_bytes == other.memory.fullest.bytes
        assert move.freed_bytes == fullest.bytes - next(p.bytes for p in other.memory.peaks if p.ipu == fullest.ipu) > 0
        assert (move.fits == "fits") == (not other.memory.excess_peaks)
        assert move.period_s == pytest.approx(period(other), rel=1e-12)
    fitting = [move.period_s for move in moves.moves if move.fits == "fits"]
    assert fitting == sorted(fitting)
    assert all(move.fits == "fits" for move in moves.moves[: len(fitting)])


def test_what_recomputation_and_half_as_many_activations_free_and_take_is_as_by_hand():
    """Grouped keeps six micro-batches of 96 MiB on IPU 0; with recomputation it is six inputs of 4 MiB."""
    moves = memory_moves(load_job(BY_SCHEDULE))
    rows = {move.words: move for move in moves.moves}
    apart, inside = (
        rows["activations recomputed before each backward pass"],
        rows["activations recomputed within each backward pass"],
    )
    interleaved = rows["schedule interleaved, half as many activations kept"]
    assert apart.freed_bytes == inside.freed_bytes == 6 * (96 - 4) * MIB
    assert interleaved.freed_bytes == 3 * 96 * MIB
    assert rows["optimizer state and update on the host"].freed_bytes == 192 * MIB
    # A forward pass of 200,000 cycles again for each of 16 micro-batches, at 1.33 GHz.
    ((words, seconds),) = apart.paid
    assert (words, seconds) == ("recomputation", pytest.approx(16 * 200_000 / 1.33e9))
    assert [words for words, _ in inside.paid] == ["recomputation"]
    assert {*dict(interleaved.paid)} == {"copies and sync", "gaps in main"}
    assert sum(seconds for _, seconds in interleaved.paid) > 0.9 * (interleaved.period_s - moves.period_s)


STAGES = """\
system: {name: m2000}
memory: report
pipeline:
  gradient_accumulation_count: 8
  stages:
    - name: a
      forward: 100000
      backward: 200000
      parameter_bytes: 100 MiB
      state_bytes: 600 MiB
      stash_bytes: 300 MiB
      output_bytes: 1 MiB
    - {name: b, forward: 100000, backward: 200000, parameter_bytes: 100 MiB, gradient_bytes: 1 MiB}
infeed: {element_bytes: 1 MiB}
"""
A = "pipeline.stages.a"


def test_where_nothing_fits_what_frees_most_is_told(load):
    moves = memory_moves(load(STAGES.replace("100 MiB", "800 MiB")))
    assert not any(move.fits == "fits" for move in moves.moves)
    assert [move.freed_bytes for move in moves.moves] == sorted((m.freed_bytes for m in moves.moves), reverse=True)
    # The change that frees most on the fullest IPU can leave another IPU fuller than other changes do.
    leaves_less = replace(moves.moves[1], peak_bytes=moves.moves[0].peak_bytes - MIB)
    for lowest, found in (moves.moves[0], moves), (leaves_less, replace(moves, moves=(moves.moves[0], leaves_less))):
        assert move_words(found)[0].startswith(
            "No option tried makes the program fit, alone or combined. The largest reduction, to "
            f"{format_bytes(lowest.peak_bytes)} on the fullest IPU: {lowest.words}, --set "
        )
        assert move_words(found)[1].startswith("`ipusim suggest` also searches other stages")


def test_a_change_that_moves_the_optimizer_state_too_says_so(load):
    def moved(*changes):
        rows = [move.words for move in memory_moves(load(STAGES, *changes)).moves]
        return [words for words in rows if words.endswith("in Streaming Memory, with the optimizer state")]

    assert moved() == ["gradient accumulators in Streaming Memory, with the optimizer state"]
    assert moved("pipeline.offload_weight_update_variables=false") == []


def test_of_a_program_that_fits_what_costs_least_is_told(load):
    moves = memory_moves(load(STAGES, f"{A}.state_bytes=1 MiB", f"{A}.stash_bytes=30 MiB"))
    assert move_words(moves)[0].startswith(f"The change with the least cost in time: {moves.moves[0].words}")


def test_what_leaves_another_ipu_as_full_is_no_advice(load):
    # Of 8.75 MiB on either IPU the last holds all in its backward pass, with accumulators in Streaming Memory too.
    stage = "forward: 100000, backward: 200000, update: 5000, parameter_bytes: 4 MiB"
    stages = f"[{{name: a, {stage}, output_bytes: 256 KiB}}, {{name: b, {stage}, gradient_bytes: 256 KiB}}]"
    pipeline = f"pipeline: {{schedule: grouped, gradient_accumulation_count: 8, stages: {stages}}}"
    moves = memory_moves(load(f"system: {{name: m2000, auto_select_ipus: 2}}\n{pipeline}\n"))
    assert moves.peak_bytes == 8.75 * MIB
    assert [(move.freed_bytes, move.peak_bytes) for move in moves.moves] == [(MIB / 4, 8.75 * MIB)]
    assert move_words(moves)[0] == (
        "No option tried lowers the memory of the fullest IPU; another schedule may, and more stages on more IPUs "
        "would."
    )


def test_without_a_limit_nothing_is_said_to_fit(load):
    moves = memory_moves(load(STAGES, "memory=off"))
    assert moves.sram_bytes is None
    assert "fits" not in moves_table(moves).header


def test_a_suggestion_says_where_the_given_plan_would_fit_and_be_faster(tmp_path):
    """What a search is limited to is slower than the given plan under Interleaved, whose FIFOs are half as deep."""
    (tmp_path / "s.yaml").write_text(STAGES)
    small = f"{A}.state_bytes=1 MiB"
    request = load_request(tmp_path / "s.yaml", [small])
    limited = suggest(request, Limits(schedules=("sequential",), recompute=("no",), replicas=(1,)), runners_up=0)
    assert limited.given_trial.fits == "does not fit"
    best = load_job(tmp_path / "s.yaml", [small, "pipeline.schedule=interleaved", "memory=error"])
    assert [*with_less_memory(limited)] == [
        "The given plan with schedule interleaved, half as many activations kept is faster and fits: "
        f"{format_seconds(period(best))} for a weight update. Search again from this plan: --set "
        "pipeline.schedule=interleaved"
    ]
    found = suggest(request, Limits(replicas=(1,)), runners_up=0)
    assert [*with_less_memory(found)] == []


def test_check_tries_changes_of_long_runs_and_of_programs_that_fit_only_where_it_is_asked(tmp_path):
    (tmp_path / "s.yaml").write_text(STAGES)
    long = ("--set", "pipeline.schedule=gpipe", "--set", "pipeline.gradient_accumulation_count=20000")
    done = ipusim("check", "s.yaml", *long, cwd=tmp_path)
    assert "each needs a full simulation of this run: --memory tries them." in " ".join(done.stdout.split())
    fits = ("--set", f"{A}.state_bytes=0", "--set", f"{A}.stash_bytes=0")
    assert "Changes that take less memory" not in ipusim("check", "s.yaml", *fits, cwd=tmp_path).stdout
    assert "Changes that take less memory" in ipusim("check", "s.yaml", *fits, "--memory", cwd=tmp_path).stdout


def test_run_advises_the_two_changes_that_check_found_and_that_really_fit(tmp_path):
    """Neither recomputation nor the state in Streaming Memory suffices: each alone leaves more than 897 MiB."""
    (tmp_path / "s.yaml").write_text(STAGES.replace("memory: report\n", ""))
    recompute = "--set pipeline.allow_recompute=true"
    offload = "--set system.enable_remote_buffers=true --set pipeline.offload_weight_update_variables=true"
    for alone in (recompute, offload):
        assert ipusim("check", "s.yaml", *alone.split(), cwd=tmp_path).returncode == 2
    checked, ran = (ipusim(command, "s.yaml", cwd=tmp_path) for command in ("check", "run"))
    (advice,) = (line for line in checked.stdout.splitlines() if line.startswith("The fastest that fits: "))
    assert f"{advice}. With memory: report" in ran.stderr
    assert checked.stderr == ran.stderr
    options = re.findall(r"--set \S+", advice)
    assert len(options) > 2
    done = ipusim("check", "s.yaml", *" ".join(options).split(), cwd=tmp_path)
    assert done.returncode == 0
    assert "Memory: every IPU fits; " in done.stdout


def test_what_is_so_already_and_what_was_tried_in_vain_is_said():
    """BERT-Large computes activations again, and keeps parts of its state in Streaming Memory."""
    *_, already, in_vain = move_words(memory_moves(load_job(BY_SCHEDULE.with_name("bert_large.yaml"), [f"{COUNT}=20"])))
    assert already == (
        "Already in use: activations recomputed, optimizer state in Streaming Memory, sharded over replicas."
    )
    assert in_vain.startswith(
        "Tried alone, but freed no memory: schedule interleaved, half as many activations kept "
        "(pipeline.device_mapping: "
    )
    assert "gradient accumulators in Streaming Memory (frees nothing on IPU 1); " in in_vain


TRANSFORMER = SCENARIOS / "transformer_eight_ipus.yaml"


def of_size(*changes, blocks=6, width=768, vocabulary=16384, length=256):
    """Return overrides of the transformer: on two IPUs, by default of a size that fits with smaller products alone."""
    block = "model.layers.2"
    return [
        "system.auto_select_ipus=2",
        f"data={{type: synthetic_tokens, length: {length}, vocabulary: {vocabulary}, samples: 1000000}}",
        f"model.layers.0.input_dim={vocabulary}",
        f"model.layers.0.output_dim={width}",
        f"{block}.repeat={blocks}",
        f"{block}.layers.0.layers.1.num_heads={width // 64}",
        f"{block}.layers.1.layers.1.units={4 * width}",
        f"{block}.layers.1.layers.2.units={width}",
        f"model.layers.4.units={vocabulary}",
        f"pipeline.splits=[attention{blocks // 2}]",
        "pipeline.micro_batch_size=4",
        "pipeline.gradient_accumulation_count=8",
        *("pipeline.repeat_count=1", "precision=float16", "numerics=off", "steps=1", "evaluate=null", "expect=null"),
        *changes,
    ]


def test_products_have_half_of_what_each_kind_and_each_stage_gives_them():
    share = "poplar_options.availableMemoryProportion"
    forward = "pipeline.forward_propagation_stages_poplar_options"
    given = [f"system.matmuls.{share}=0.4", f"system.convolutions.{share}=0.2"]
    stages = f"{forward}=[{{}}, {{matmul_options: {{availableMemoryProportion: 0.5}}}}]"
    job = load_job(TRANSFORMER, of_size("memory=report", *given, stages))
    found = products_in_half(job.request.options, job.program.stages)
    own = f"{forward}.1.matmul_options.availableMemoryProportion"
    assert found == {f"system.matmuls.{share}": 0.2, f"system.convolutions.{share}": 0.1, own: 0.25}
    (move,) = (move for move in memory_moves(job).moves if move.changes == found)
    assert f"--set {own}=0.25" in options_of(move.changes)
    after = load_job(TRANSFORMER, of_size("memory=report", stages, *(f"{key}={to}" for key, to in found.items())))
    assert after.memory.fullest.bytes == move.peak_bytes


@pytest.mark.parametrize(
    ("blocks", "vocabulary", "number"),
    [
        pytest.param(12, 16384, 2, id="faster than the state in Streaming Memory, which fits alone"),
        pytest.param(16, 24576, 3, id="faster than activations in Streaming Memory and smaller products"),
    ],
)
def test_the_fastest_of_all_sets_of_changes_is_found(blocks, vocabulary, number):
    counts = "pipeline.micro_batch_size=1", "pipeline.gradient_accumulation_count=32", "pipeline.allow_recompute=false"
    size = {"blocks": blocks, "vocabulary": vocabulary, "length": 512}
    job = load_job(TRANSFORMER, of_size("memory=report", *counts, **size))
    best = memory_moves(job).moves[0]
    changes = [
        {"pipeline.allow_recompute": True},
        {"system.enable_remote_buffers": True, "pipeline.offload_weight_update_variables": True},
        {"system.enable_remote_buffers": True, "pipeline.offload_activations": {"to": "streaming_memory"}},
        products_in_half(job.request.options, job.program.stages),
    ]
    sets = [chosen for size in range(1, 5) for chosen in combinations(changes, size)]
    trials = [try_request(job.request, {**ChainMap(*chosen)}) for chosen in sets]
    fitting = [trial for trial in trials if trial.fits is not None and fits_or_unknown(trial.fits)]
    assert best.period_s == min(trial.throughput.weight_update_period_s for trial in fitting)
    assert len([words for words in ("recomputed", "state", "products") if words in best.words]) == number


@pytest.mark.parametrize("recompute", [None, pytest.param(("yes",), marks=slowest)], ids=["any plan", "recomputing"])
def test_where_products_are_too_large_plans_with_smaller_ones_are_searched_too(tmp_path, recompute, monkeypatch):
    best = tmp_path / "best.yaml"
    limits = Limits(replicas=(1,), stages=(2,), schedules=("grouped",), recompute=recompute)
    found = suggest(load_request(TRANSFORMER, of_size()), limits, runners_up=0)
    assert found.given_trial.fits == "does not fit"
    given = found.given_trial.job
    assert found.added_options == products_in_half(given.request.options, given.program.stages)
    assert found.gap == 0.0
    assert found.runner_up.best == found.searched.best  # without them nothing is faster
    assert [*with_less_memory(found)] == []
    first = next(verdict(found))
    if recompute is None:
        assert first.endswith(", with matrix products in half their temporary memory.")
    else:  # which the given plan does already
        assert first.startswith(
            "Best plan: the given plan with matrix products in half their temporary memory, grouped in lock-step, "
            "2 stages"
        )
    write_suggested(found, TRANSFORMER, of_size(), best)
    job = load_job(best)
    assert not job.memory.excess_peaks
    assert period(job) == pytest.approx(float(found.trial.period / job.system.clock_hz), rel=1e-9)
    monkeypatch.setattr("ipusim.app.suggest.suggestion.products_in_half", lambda *_: {})
    without = suggest(load_request(TRANSFORMER, of_size()), limits, runners_up=0)
    assert without.searched.best is None or without.searched.best > found.searched.best


def test_where_no_plan_fits_smaller_products_are_searched_before_that_is_said():
    """The given plan has nearly all layers on one IPU, where smaller products do not help."""
    request = load_request(TRANSFORMER, of_size("pipeline.splits=[attention1]"))
    limits = Limits(replicas=(1,), stages=(2,), schedules=("grouped",), recompute=("no",), offload=("no",))
    found = suggest(request, limits, runners_up=0)
    given = found.given_trial.job
    assert found.outcome is Outcome.PLAN
    assert found.added_options == products_in_half(given.request.options, given.program.stages)
    assert not fits_or_unknown(
        assemble(time_alone(given.request, found.added_options, allow_oversized=True)).memory.fits
    )
    assert (found.moved_baseline, found.runner_up.simulated, found.gap) == (None, 0, 0.0)
    assert not assemble(found.request).memory.excess_peaks


def test_a_search_that_ends_unproven_says_how_to_narrow_it():
    changes = ["pipeline.micro_batch_size=1", "pipeline.gradient_accumulation_count=128", "system.auto_select_ipus=8"]
    changes += ["pipeline.allow_recompute=false", "pipeline.splits=[attention2, attention4, attention6]"]
    request = load_request(TRANSFORMER, of_size(*changes, blocks=8, width=1024, vocabulary=32000, length=512))
    steps: list[int | None] = []
    budget = Budget(interrupted=lambda: bool(steps) and steps[-1] is not None)
    found = suggest(request, runners_up=0, budget=budget, progress=lambda _, searched: steps.append(searched.best))
    assert found.given_trial.fits == "does not fit"
    assert found.outcome is Outcome.PLAN
    assert [*searched_lines(found)][-1].endswith(
        "More `--seconds`, or a search limited by `--replicas`, `--ipus` or `--schedules`, may find a faster plan."
    )
    found.searched.end_reason = "the limit of 400000 cuts at once"  # which more time does not lift
    assert [*searched_lines(found)][-1].endswith(
        "less time at most. A search limited by `--replicas`, `--ipus` or `--schedules` may find a faster plan."
    )
    kinds = ("matmuls", "convolutions")
    half = " ".join(f"--set system.{kind}.poplar_options.availableMemoryProportion=0.3" for kind in kinds)
    assert [*searched_lines(found)][-2].endswith(f"may allow a faster plan: search again with {half}")
    found.searched.too_large = found.searched.misfits = 0  # memory has ruled out no plan
    assert not any("search again" in line for line in searched_lines(found))


def test_a_proof_that_no_plan_fits_names_the_products_for_which_it_holds():
    limits = Limits(ipus=(1,), schedules=("single",), recompute=("no",), offload=("no",))
    found = suggest(load_request(TRANSFORMER, of_size()), limits)
    assert found.outcome is Outcome.NONE_FITS
    assert "fits pod16, also with matrix products in half their temporary memory, which is proven: " in found.why_none


def test_the_printed_bound_never_falls_and_gives_way_to_the_proof():
    """Two searches, with smaller products and without, have one bound; plans of other kinds have none."""
    lines = []

    def progress(given, searched):
        lines.append(so_far(given, searched, 0))

    suggest(
        load_request(TRANSFORMER, of_size()),
        Limits(stages=(2,), schedules=("grouped", "gpipe")),
        runners_up=2,
        progress=progress,
    )
    said = [found for line in lines if (found := re.search(r"at least ([\d.]+ \w+)", line))]
    bounds = [parse_quantity(found[1], "seconds") for found in said]
    assert len(set(bounds)) > 1
    assert bounds == sorted(bounds)
    assert "takes at least" not in lines[-1]
    assert ", proven; plans of other kinds" in lines[-1]
