"""Points of a sweep against runs of their own, the ceiling against its formula, and what is kept of finished points."""

import json
import math
import os
import re
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from fractions import Fraction

import pytest

from ipusim.analysis.fits import Fits
from ipusim.app.render.tables import text_of
from ipusim.app.run_folder.folder import ResultsFolder
from ipusim.app.scenario.load import load_job, load_request
from ipusim.app.sweep import crew as crews
from ipusim.app.sweep import journal as journals
from ipusim.app.sweep.ceiling import ceilings
from ipusim.app.sweep.crew import Crew
from ipusim.app.sweep.journal import Journal, file_hash, key_of
from ipusim.app.sweep.measures import THROUGHPUT, measure_of
from ipusim.app.sweep.outcome import Outcome
from ipusim.app.sweep.report import SweepResult, best_of, modes_of, sweep_table, verdict
from ipusim.app.sweep.sweep import sweep
from ipusim.app.sweep.vary import axes_of
from ipusim.base.errors import OptionError, OutputError
from ipusim.pipeline.plan import Sync
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from tests.effort import sampled, slowest
from tests.scenarios import SCENARIOS

COUNT = "pipeline.gradient_accumulation_count"
FOUR = load_request(SCENARIOS / "schedules_four_ipus.yaml")
ALONE = Crew(workers=1)


def swept(request, varied, **options):
    return sweep(request, axes_of(varied), crew=ALONE, **options)


def test_what_does_not_run_is_a_row_with_its_reason():
    stages = [{"name": "a", "forward": 10, "parameter_bytes": "1 MiB"}, {"name": "b", "forward": 10}]
    request = Request.from_dict({"system": {"name": "m2000"}, "pipeline": {"stages": stages, COUNT.split(".")[1]: 4}})
    found = swept(request, {"pipeline.stages.a.parameter_bytes": ["1 MiB", "1 GiB"], COUNT: [4, 5, "x"]})
    fine, uneven, wrong, *_, large = (found.outcomes[number] for number in (0, 1, 2, 3))
    assert fine.has_run
    assert fine.fits is Fits.YES
    assert "must be a multiple of 2, but it is 5" in uneven.message
    assert wrong.message.startswith(f"{COUNT}: expected ")
    assert large.message.startswith("pipeline.device_mapping: Out of memory on IPU 0: ")
    assert large.fits is Fits.NO
    assert large.peak_bytes == 2**30
    assert [outcome.has_run for outcome in found.outcomes] == [True, False, False, False, False, False]


def test_refusals_of_one_rule_are_one_line():
    found = swept(FOUR, {COUNT: [3, 8, 9]})  # near 3 is one legal count, near 9 are two
    refused = [line for line in verdict(found, (), THROUGHPUT) if "did not run" in line]
    assert len(refused) == 1
    assert refused[0].startswith("2 of 3 did not run, for example gradient_accumulation_count 3: ")


STAGES = ((1000, 2000), (700, 1500), (1200, 2600), (900, 1100))


@pytest.mark.parametrize(
    "varied", [{"pipeline.schedule": ["grouped", "interleaved", "1f1b"]}, {"pipeline.sync": [*Sync]}]
)
def test_points_of_two_sync_modes_are_compared_with_those_of_their_own(varied):
    stages = [{"name": name, "forward": 1000, "backward": 2000, "output_bytes": 65536} for name in "abcd"]
    request = Request.from_dict({"system": {"name": "m2000"}, "pipeline": {"stages": stages, COUNT.split(".")[1]: 8}})
    found = swept(request, varied)
    times = [Fraction(outcome.run_cycles) for outcome in found.outcomes]
    modes = [Sync(outcome.sync) for outcome in found.outcomes]
    assert modes == [assemble(request.replace(found.changes(point))).plan.sync for point, _ in found.finished_points]
    assert modes_of(found) == [*Sync]
    best = {mode: best_of(found, THROUGHPUT, mode)[0][0] for mode in Sync}
    for mode, point in best.items():
        of_mode = [number for number, other in enumerate(modes) if other is mode]
        assert found.points.index(point) == min(of_mode, key=times.__getitem__)
    said = verdict(found, (), THROUGHPUT)
    for mode, words in zip(Sync, said, strict=False):
        assert f" in {mode.words} by throughput: {found.words(best[mode])}, with " in words
    assert said[2].startswith("Point-to-point is an idealised machine: IPUs meet only after weight updates")
    cells = [row[0] for row in sweep_table(found, THROUGHPUT).rows]
    named = [text_of(*point) for point in found.points]
    with_modes = [f"{name} in {mode.words}" for name, mode in zip(named, modes, strict=True)]
    assert cells == (named if "pipeline.sync" in varied else with_modes)
    assert ("sync" in SweepResult(found).rows()[0]) == ("pipeline.schedule" in varied)
    one = swept(request.replace({"pipeline.sync": "lock_step"}), {"pipeline.schedule": ["grouped", "1f1b"]})
    assert "sync" not in SweepResult(one).rows()[0]
    assert not any("idealised" in line for line in verdict(one, (), THROUGHPUT))


@pytest.mark.parametrize("measure", ["time", "makespan"])
def test_the_least_time_of_unequal_work_is_told_beside_the_least_time_of_a_sample(measure):
    """A weight update of 8 micro-batches takes 33,500 cycles of 1.33 GHz, of 16 micro-batches 57,500."""
    found = swept(FOUR, {COUNT: [8, 16]})
    least, of_a_sample, *_ = verdict(found, (), measure_of(measure))
    assert least.startswith(f"Least of 2 points by {measure}: gradient_accumulation_count 8, with a {measure} of 2")
    assert of_a_sample == (
        "But work differs, from 8 to 16 samples per weight update. For each sample gradient_accumulation_count 16 "
        "takes least time: 370,087 samples/s."
    )
    alike = swept(FOUR, {"pipeline.schedule": ["grouped", "interleaved"]})
    best, *others = verdict(alike, (), measure_of(measure))
    assert best.startswith(f"Best of 2 points by {measure}: schedule grouped, with")
    assert not any("work differs" in line for line in others)


def test_a_run_without_time_has_no_throughput_and_the_least_time():
    stages = [{"name": "a", "forward": 0}, {"name": "b", "forward": 0}]
    request = Request.from_dict({"system": {"name": "free"}, "pipeline": {"stages": stages, COUNT.split(".")[1]: 4}})
    found = swept(request, {"pipeline.stages.a.forward": [0, 10]})
    assert [row["samples_per_s"] for row in SweepResult(found).rows()] == [None, 1.33e9 / 10]
    best, still = verdict(found, (), THROUGHPUT)
    assert best.startswith("Best of 2 points by throughput: a.forward 10, with 133,000,000 samples/s")
    assert still == "Without a throughput, because the run takes no time: a.forward 0."
    assert verdict(found, (), measure_of("time")) == ["Best of 2 points by time: a.forward 0, with a time of 0 s."]


def four(schedule, updates=500):
    """Return a pipeline of four uneven stages on the free system."""
    stages = [{"name": f"s{n}", "forward": f, "backward": b, "update": updates} for n, (f, b) in enumerate(STAGES)]
    pipeline = {"schedule": schedule, "gradient_accumulation_count": 8, "micro_batch_size": 3, "stages": stages}
    return Request.from_dict({"system": {"name": "free"}, "pipeline": pipeline})


#: What a full pipeline takes for each further micro-batch, in closed form: the slowest forward and the slowest backward
#: where all meet; the busiest IPU where nobody does; all stages one after the other.
CLOSED = {
    "grouped": max(b for _, b in STAGES) + max(f for f, _ in STAGES),
    "1f1b": max(f + b for f, b in STAGES),
    "sequential": sum(f + b for f, b in STAGES),
}


@sampled(2)
@pytest.mark.parametrize("schedule", CLOSED)
@pytest.mark.parametrize("counts", [[32], pytest.param([32, 64], marks=slowest), [16, 64, 256]])
def test_the_ceiling_is_that_of_the_slowest(schedule, counts):
    request = four(schedule)
    (limit,) = ceilings(swept(request, {COUNT: counts}))
    per_count, clock = CLOSED[schedule], load_job(SCENARIOS / "schedules_four_ipus.yaml").system.ipu.clock_hz
    assert limit.samples_per_s == pytest.approx(3 * clock / per_count, rel=1e-12)
    busiest, mean = max(map(sum, STAGES)), Fraction(sum(map(sum, STAGES)), len(STAGES))
    assert limit.balance == pytest.approx(float(mean / busiest), rel=1e-12)
    assert limit.other_share == pytest.approx(busiest / per_count, rel=1e-12)
    assert limit.share_of_ideal == pytest.approx(float(mean / per_count), rel=1e-12)
    step = 8 if schedule == "grouped" else 1  # more micro-batches are never slower: the least count is told by its edge
    edge = [count for count in (limit.near_count - step, limit.near_count) if count]
    rates = [outcome.samples_per_s for _, outcome in swept(request, {COUNT: edge}).finished_points]
    assert [rate >= 0.95 * limit.samples_per_s for rate in rates] == [False, True][-len(edge) :]
    assert limit.near_samples_per_s == (rates[-1] if limit.near_count <= max(counts) else None)


def test_each_combination_of_other_options_has_its_ceiling_and_other_sweeps_have_none():
    found = swept(FOUR, {"pipeline.schedule": ["grouped", "interleaved"], COUNT: [8, 16, 32]})
    assert [limit.options for limit in ceilings(found)] == [
        {"pipeline.schedule": "grouped"},
        {"pipeline.schedule": "interleaved"},
    ]
    assert ceilings(swept(FOUR, {"pipeline.schedule": ["grouped", "interleaved"]})) == ()
    assert ceilings(swept(FOUR, {COUNT: [8, 16], "seed": [1, 2]}, vary_together=True)) == ()


@contextmanager
def journal_in(folder):
    with ResultsFolder(folder) as results, Journal(results) as journal:
        yield journal


def file_in(folder):
    return folder / ".ipusim" / "sweep.jsonl"


def test_a_journal_gives_back_what_it_took_and_only_that(tmp_path):
    path = file_in(tmp_path)
    with journal_in(tmp_path) as journal:
        first = swept(FOUR, {COUNT: [8, 16]}, journal=journal)
    whole = path.read_bytes()
    assert whole.count(b"\n") == 3
    with journal_in(tmp_path) as journal:
        second = swept(FOUR, {COUNT: [16, 8, 24]}, journal=journal)
    assert (second.reused_count, second.outcomes[:2]) == (2, first.outcomes[::-1])
    other = FOUR.replace({"pipeline.stages.0.forward": 1001})
    with journal_in(tmp_path) as journal:
        third = swept(other, {COUNT: [8, 16]}, journal=journal)
    assert third.reused_count == 0
    assert third.outcomes[0] != first.outcomes[0]


def test_a_journal_gives_back_refusals_of_rules_and_no_other_errors(tmp_path, monkeypatch):
    """Counts 9 and 10 break a rule of the schedule, 1 GiB of parameters exceeds an IPU."""
    stages = [{"name": name, "forward": 10, "parameter_bytes": "1 MiB"} for name in "abcd"]
    system = {"name": "m2000"}
    request = Request.from_dict({"system": system, "pipeline": {"stages": stages, COUNT.split(".")[1]: 8}})
    varied = {COUNT: [8, 9, 10], "pipeline.stages.a.parameter_bytes": ["1 MiB", "1 GiB"]}
    with journal_in(tmp_path) as journal:
        first = swept(request, varied, journal=journal)
    assert [outcome.is_refusal for outcome in first.outcomes] == [False, True, True, True, True, True]
    whole = file_in(tmp_path).read_bytes()
    with monkeypatch.context() as changed, journal_in(tmp_path) as journal:
        changed.setattr(crews, "outcome_of", lambda *_: pytest.fail("a point runs again"))
        second = swept(request, varied, journal=journal)
    assert (second.reused_count, second.outcomes) == (6, first.outcomes)
    assert file_in(tmp_path).read_bytes() == whole
    monkeypatch.setattr(journals, "code_digest", lambda: "of tomorrow")
    with journal_in(tmp_path) as journal:
        assert swept(request, varied, journal=journal).reused_count == 0


def test_an_error_of_a_users_code_is_met_again(tmp_path):
    (tmp_path / "mine.py").write_text("def order(shape):\n    import helper_that_is_not_there\n")
    request = replace(FOUR.replace({"pipeline.sync": "point_to_point"}), folder=tmp_path)
    varied = {"pipeline.schedule": ["1f1b", "mine.py:order"]}
    for count in (0, 1):
        with journal_in(tmp_path / "out") as journal:
            found = swept(request, varied, journal=journal)
        assert "helper_that_is_not_there" in found.outcomes[1].message
        assert (found.reused_count, found.outcomes[1].is_refusal) == (count, False)


def test_a_journal_of_refusals_alone_does_not_stay(tmp_path):
    with pytest.raises(RequestError, match="but it is 7"), journal_in(tmp_path) as journal:
        swept(FOUR, {COUNT: [7, 9]}, journal=journal)
    assert not file_in(tmp_path).exists()


@pytest.mark.parametrize("cut", [1, 20, -1])
def test_a_line_that_was_cut_off_is_made_again(tmp_path, cut):
    path = file_in(tmp_path)
    with journal_in(tmp_path) as journal:
        swept(FOUR, {COUNT: [8, 16]}, journal=journal)
    whole = path.read_bytes()
    start = whole[:-1].rindex(b"\n") + 1
    path.write_bytes(whole[: start + cut] if cut > 0 else whole[:cut])
    with journal_in(tmp_path) as journal:
        assert swept(FOUR, {COUNT: [8, 16]}, journal=journal).reused_count == 1
    assert path.read_bytes() == whole


def test_columns_of_files_keep_their_order():
    times = ["makespan_cycles", "makespan_s", "weight_update_period_s", "samples_per_s", "bubble", "utilisation"]
    assert [*SweepResult(swept(FOUR, {COUNT: [8]})).rows()[0]] == [COUNT, *times, "peak_bytes", "fits", "message"]


KEY, OTHER = "a" * 64, "b" * 64
FIGURES = {
    "memory": Fits.YES,
    "peak": 7,
    "makespan": 1e-9,
    "time_per_weight_update": 2e-9,
    "throughput": 0.1 + 0.2,
    "bubble": 1 / 3,
    "utilisation": 2 / 3,
}
OUTCOME = Outcome(
    sync="lock_step",
    figures=FIGURES,
    makespan_cycles=10,
    run_cycles=2**61,
)


LEARNT = replace(OUTCOME, figures={**FIGURES, "mean_loss": math.inf, "accuracy": 0.5})


@pytest.fixture
def journal(tmp_path):
    """Return the file of a journal with two points, of which one has arithmetic that has come to no finite loss."""
    with journal_in(tmp_path) as journal:
        journal.add(KEY, OUTCOME)
        journal.add(OTHER, LEARNT)
    return file_in(tmp_path)


def test_a_damaged_line_is_told_and_forgotten_and_the_others_stay(tmp_path, journal):
    whole = journal.read_bytes()
    head, first, second = whole.splitlines(keepends=True)
    brackets = b"[" * 100_000 + b"\n"
    for damaged in (
        first.replace(b'"makespan_cycles": 10', b'"makespan_cycles": 11'),
        first.replace(b'"memory": "fits"', b'"memory": null'),
        first.replace(KEY.encode(), OTHER.encode()),
        first.replace(b'"sha256"', b'"sha255"'),
        brackets,
        first[:-2] + b"\n",
        b"\n",
        b"\xff\0\n",
    ):
        assert damaged != first
        journal.write_bytes(head + damaged + second)
        with journal_in(tmp_path) as read:
            assert (set(read.outcomes), read.damaged) == ({OTHER}, 1)
        assert journal.read_bytes() == head + second
    journal.write_bytes(whole)
    with journal_in(tmp_path) as read:
        assert (read.outcomes[KEY], read.damaged) == (OUTCOME, 0)
        assert read.outcomes[OTHER] == LEARNT
    assert journal.read_bytes() == whole


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("makespan_cycles", -1),
        ("makespan_cycles", True),
        ("makespan_cycles", None),
        ("makespan_cycles", 2**63),
        ("throughput", "fast"),
        ("throughput", math.inf),
        ("throughput", math.nan),
        ("throughput", -1.0),
        ("throughput", None),
        ("bubble", 1.5),
        ("executions", 0),
        ("clock_hz", 0),
        ("memory", True),
        ("memory", "perhaps"),
        ("figures", {}),
        ("figures", []),
        ("figures", {**FIGURES, "efficiency": 0.5}),
        ("message", "no"),
        ("message", None),
        ("is_refusal", True),
        ("is_refusal", 0),
        ("mean_loss", "0"),
        ("peak", 1e3),
    ],
)
def test_a_line_with_a_hash_of_its_own_has_values_that_a_run_has(tmp_path, journal, field, value):
    with journal_in(tmp_path) as read:
        known = field in {each.name for each in fields(Outcome)}
        read.add(KEY, replace(OUTCOME, **({field: value} if known else {"figures": {**FIGURES, field: value}})))
    with journal_in(tmp_path) as read:
        assert (read.damaged, read.outcomes[KEY]) == (1, OUTCOME)


@pytest.mark.parametrize(
    "outcome", [["a list"], "[" * 100_000 + "]" * 100_000, {}, {**asdict(OUTCOME), "more": 1}], ids=type
)
def test_a_line_with_a_hash_of_its_own_has_the_fields_that_a_run_has(tmp_path, journal, outcome):
    with journal_in(tmp_path) as read:
        text = json.dumps({"key": KEY, "outcome": outcome}).replace('"[', "[").replace(']"', "]").encode()
        journal.write_bytes(read._head + read._with_hash(text))
    with journal_in(tmp_path) as read:
        assert (read.outcomes, read.damaged) == ({}, 1)


@pytest.mark.parametrize(
    ("field", "value"),
    [("message", ""), ("sync", "lock_step"), ("run_cycles", 1), ("makespan_cycles", 1), ("figures", {"peak": "0"})],
)
def test_a_refusal_has_a_message_and_no_times(tmp_path, journal, field, value):
    refusal = Outcome("no", {"memory": Fits.NO, "peak": 9}, sram_bytes=8, is_refusal=True)
    with journal_in(tmp_path) as read:
        read.add(KEY, refusal)
        read.add("c" * 64, replace(refusal, **{field: value}))
    with journal_in(tmp_path) as read:
        assert (read.damaged, read.outcomes) == (1, {KEY: refusal, OTHER: LEARNT})


def test_a_journal_that_is_no_file_says_so(tmp_path, journal):
    journal.unlink()
    (tmp_path / "notes").write_text("mine")
    for put, kind in (
        (journal.mkdir, "a folder"),
        (lambda: os.mkfifo(journal), "a named pipe"),
        (lambda: journal.symlink_to(tmp_path / "notes"), "a link, which is not followed in a folder of results"),
    ):
        put()
        text = f"{journal}: expected a file, got {kind}: remove it, or name another folder for the results"
        with pytest.raises(OutputError, match=f"^{re.escape(text)}$"), journal_in(tmp_path):
            pass
        journal.rmdir() if journal.is_dir() else journal.unlink()
    journal.touch()
    os.truncate(journal, 2**40)
    large = r"sweep\.jsonl: expected a file of at most 256 MiB, got one of 1 TiB: remove it"
    with pytest.raises(OutputError, match=large), journal_in(tmp_path):
        pass
    assert (tmp_path / "notes").read_text() == "mine"


def test_a_key_knows_what_is_in_the_files_that_options_name_and_no_name_of_its_request(tmp_path):
    (tmp_path / "mine.py").write_text("def order(shape): pass\n")
    (tmp_path / "stages.csv").write_text("stage,forward\n")
    base = FOUR.options.model_dump(exclude_unset=True)

    def key(**pipeline):
        request = Request.from_dict({**base, "pipeline": {**base["pipeline"], **pipeline}}, folder=tmp_path)
        return key_of(request, file_hash)

    plain, own, cycles = key(), key(schedule="mine.py:order"), key(cycles="stages.csv")
    assert len({plain, own, cycles}) == 3
    assert key(schedule="mine.py:order") == own
    (tmp_path / "mine.py").write_text("def order(shape): return None\n")
    assert key(schedule="mine.py:order") != own
    assert key(cycles="stages.csv") == cycles
    (tmp_path / "stages.csv").write_text("stage,forward\n0,1\n")
    assert key(cycles="stages.csv") != cycles
    assert key() == plain == key_of(FOUR.replace({"name": "another"}), file_hash)


@pytest.mark.parametrize(
    ("crew", "told"),
    [
        (Crew(workers=0), "workers: expected a number from 1 up, got 0"),
        (Crew(backend="dusk"), "backend: expected local or dask, got 'dusk'; did you mean dask?"),
        (Crew(address="tcp://x:1"), "address: expected backend dask with this option, got local"),
        (
            Crew(backend="dask"),
            "address: expected the address address of a Dask cluster, such as tcp://10.0.0.1:8786, got none",
        ),
        (
            Crew(backend="dask", address="tcp://x:1", workers=2),
            "workers: expected no number with backend dask, because the workers of the cluster run all points, "
            "got a number",
        ),
    ],
)
def test_what_makes_no_crew_is_refused(crew, told, refused):
    refused(OptionError, told, lambda: sweep(FOUR, axes_of({COUNT: [8]}), crew=crew))
