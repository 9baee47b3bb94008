"""Runs against each other: which is best, by how much, what is on the front, and in which words."""

import json
import re
import shutil
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipusim.analysis.figures import SCHEMA_VERSION
from ipusim.analysis.fits import Fits
from ipusim.app.compare.alternatives import alternatives
from ipusim.app.compare.compare import ComparedItem, Row, compare
from ipusim.app.compare.comparison import Comparison
from ipusim.app.compare.comparison_files import ComparisonResult
from ipusim.app.compare.comparison_words import comparison_table, reasons, row_words, time_words, verdict
from ipusim.app.render.window import part_window
from ipusim.app.run_folder.folder import ResultsFolder
from ipusim.app.run_folder.report import run_files
from ipusim.app.run_folder.stored import StoredRun, read_run
from ipusim.base.errors import FileError, OptionError, ProgramError
from ipusim.pipeline.holders import Holder
from ipusim.pipeline.plan import Sync
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from ipusim.schedules import registry as schedules
from tests.cli.commands import leave_charts_out
from tests.effort import share
from tests.properties.test_disturbed_runs import LEARNING
from tests.timelines import timeline_by_hand

STAGES = [{"name": name, "forward": 1000, "backward": 2000, "output_bytes": 4096} for name in "abcd"]
FOUR = Request.from_dict(
    {"name": "four", "system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 8, "stages": STAGES}}
)
HELD = [stage | {"parameter_bytes": 1 << 20, "stash_bytes": 100 << 20} for stage in STAGES]
LARGE = Request.from_dict(
    {
        "name": "large",
        "system": {"name": "m2000", "auto_select_ipus": 4},
        "memory": "report",
        "pipeline": {"gradient_accumulation_count": 8, "stages": [HELD[0] | {"stash_bytes": 150 << 20}, *HELD[1:]]},
    }
)
#: What is said of the throughputs of stages known by their cost.
UNKNOWN = "Error of throughputs: not known: no training of a model of this kind is published."


def labels(asked, *how, **more):
    return Comparison(compare(asked, *how, **more)).labels


def said(found):
    return list(verdict(found))


def error(kind, *how, **more):
    with pytest.raises(kind) as caught:
        compare(*how, **more)
    return str(caught.value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    run = execute(assemble(LARGE.replace({"pipeline.schedule": "interleaved"})))
    place = tmp_path_factory.mktemp("runs") / "kept"
    with ResultsFolder(place) as results, pytest.MonkeyPatch.context() as patch:
        leave_charts_out(patch)
        results.write(run_files(run, part_window(run.timeline), place))
    return place


def test_one_alone_is_compared_under_graphcores_schedules_and_named_by_what_differs():
    assert labels(FOUR) == ("grouped", "interleaved", "sequential", "sharded")
    assert labels(FOUR, ["1f1b"]) == ("1f1b",)
    assert labels(FOUR, None, ["lock_step", "POINT_TO_POINT"]) == ("lock-step", "point-to-point")
    assert labels(FOUR, ["1f1b", "gpipe"], ["lock_step", "point_to_point"]) == (
        "1f1b in lock-step",
        "1f1b in point-to-point",
        "gpipe in lock-step",
        "gpipe in point-to-point",
    )
    assert labels(FOUR, ["1f1b", "grouped"]) == ("1f1b in point-to-point", "grouped in lock-step")
    assert labels(LARGE, None, (), ["snake", "AUTO", "HOOF"]) == ("SNAKE", "AUTO (SNAKE)", "HOOF")
    assert labels(LARGE, ["grouped", "sharded"], (), ["ZIGZAG", "HOOF"]) == (
        "ZIGZAG, grouped",
        "HOOF, grouped",
        "ZIGZAG, sharded",
        "HOOF, sharded",
    )


def test_several_run_as_they_are_or_crossed():
    both = [
        ComparedItem(FOUR, "a/four.yaml"),
        ComparedItem(LARGE.replace({"pipeline.schedule": "sharded"}), "large.yaml"),
    ]
    assert labels(both) == ("four", "large")
    found = Comparison(compare(both))
    assert found.titles == ("four, grouped in lock-step", "large, sharded in lock-step")
    assert found.title == "2 runs and scenarios"
    pipeline = {"schedule": "gpipe", "gradient_accumulation_count": 8, "stages": STAGES}
    same = Request.from_dict({"name": "gpipe", "system": {"name": "free"}, "pipeline": pipeline})
    assert Comparison(compare([ComparedItem(same, "gpipe.yaml"), both[1]])).titles == (
        "gpipe in point-to-point",
        "large, sharded in lock-step",
    )
    assert labels(both, ["grouped", "interleaved"]) == (
        "four, grouped",
        "four, interleaved",
        "large, grouped",
        "large, interleaved",
    )


def test_those_of_one_name_go_by_their_files_or_else_their_paths(folder):
    assert labels([ComparedItem(FOUR, "a/x.yaml"), ComparedItem(FOUR, "a/y.yaml")]) == ("x.yaml", "y.yaml")
    assert labels([ComparedItem(FOUR, "a/x.yaml"), ComparedItem(FOUR, "b/x.yaml")]) == ("a/x.yaml", "b/x.yaml")
    assert labels([ComparedItem(LARGE, "large.yaml"), ComparedItem(read_run(folder), str(folder))]) == (
        "large.yaml",
        "kept",
    )


def test_what_makes_no_comparison_is_refused(folder):
    run = ComparedItem(read_run(folder), "kept")
    assert error(FileError, [run]) == (
        "kept: expected a second run to compare with, got only one run folder: name another run, or its scenario"
    )
    with pytest.raises(OptionError) as caught:
        compare([run, ComparedItem(run.source, "other")], ["grouped"])
    assert caught.value.worded(lambda name: f"--{name}") == (
        "--schedules: expected a scenario to vary, got run folders, which cannot vary: leave --orders and --sync out"
    )
    assert error(ProgramError, [ComparedItem(FOUR, "four.yaml"), ComparedItem(FOUR, "four.yaml")]) == (
        "four.yaml: expected each run once, got this run a second time"
    )
    assert error(OptionError, FOUR, ["grouped", "Grouped"]) == (
        "schedules: expected each schedule once, got 'grouped' a second time"
    )
    assert error(OptionError, FOUR, None, ["lock_step", "lock_step"]) == (
        "sync: expected each sync mode once, got 'lock_step' a second time"
    )
    assert error(OptionError, FOUR, None, (), ["HOOF", "hoof"]) == (
        "orders: expected each selection order once, got 'HOOF' a second time"
    )
    assert error(OptionError, FOUR, None, (), ["SNAK"]) == (
        "orders: expected a selection order out of AUTO, ZIGZAG, SNAKE, HOOF, got 'SNAK'; did you mean 'SNAKE'?"
    )
    assert "must be a multiple of 8, but it is 9" in error(
        RequestError, FOUR.replace({"pipeline.gradient_accumulation_count": 9}), ["grouped", "interleaved"]
    )


def test_a_summary_that_says_no_memory_is_refused(folder):
    stored = read_run(folder)
    memory = stored.summary["memory"] | {"ipus": [{"ipu": 0}]}
    broken = StoredRun(folder, stored.timeline, stored.summary | {"memory": memory})
    assert error(FileError, [ComparedItem(broken, "kept"), ComparedItem(FOUR, "four")]) == (
        f"{folder / 'summary.json'}: expected the memory of each IPU in the format of a run, got KeyError('peak_bytes')"
    )


def test_the_verdict_on_time_alone():
    """Grouped takes 11 x 3000 cycles, interleaved 4 x 3000 + 14 x 2000, and one stage at a time 8 x 4 x 3000."""
    found = Comparison(compare(FOUR))
    rows = [row.times.execution_cycles for row in found.rows]
    assert rows == [33_000, 40_000, 96_000, 96_000]
    assert said(found) == [
        "Best: grouped in lock-step, 24.81 us per weight update; 17.5% less time than the next, interleaved."
    ]
    assert list(reasons(found)) == [
        UNKNOWN,
        "Memory: not known: the scenario states no memory of its stages.",
        "Most micro-batches that a stage keeps for its backward passes: grouped 7, interleaved 4, sequential 1 and "
        "sharded 1.",
    ]
    table = comparison_table(found)
    assert table.title == "Comparison of four in lock-step"
    assert table.header == ("run", "time per weight update", "samples per s", "against the first", "bubble", "mark")
    assert table.rows[0] == ("grouped", "24.81 us", "322,424", "0%", "27.3%", "best")
    assert table.rows[2] == ("sequential", "72.18 us", "110,833", "+191%", "75.0%", "")


def test_of_equally_fast_runs_behind_the_best_all_are_named():
    """The first of them is the first run too: it is told of once."""
    found = Comparison(compare(FOUR, ("gpipe", "1f1b", "zero_bubble_h1")))
    less = 1 - found.cost(found.rows[2]) / found.cost(found.rows[0])
    assert said(found)[1].endswith(f" per weight update; {less:.1%} less time than the next, gpipe and 1f1b.")
    four = Comparison(compare(FOUR, ("sequential", "gpipe", "1f1b", "zero_bubble_h1"), ["point_to_point"]))
    assert " less time than the next, gpipe and 1f1b, and " in said(four)[0]
    assert said(four)[0].endswith(" less time than the first row, sequential.")


def test_runs_of_two_sync_modes_are_compared_with_those_of_their_own():
    """Of 8 micro-batches and 3 ramps of 3,000 cycles all take 33,000 in point-to-point, Grouped in lock-step too."""
    found = Comparison(compare(FOUR, ("interleaved", "gpipe", "grouped", "1f1b")))
    assert said(found) == [
        "Best in lock-step: grouped, 24.81 us per weight update; 17.5% less time than the next, interleaved.",
        "Best in point-to-point: 1f1b, 24.81 us per weight update; as fast as gpipe, which keeps more micro-batches.",
        "Point-to-point is an idealised machine: IPUs meet only after weight updates, and each tensor is copied "
        "separately. So each run is compared only with runs of its sync mode.",
    ]
    assert [row[3:] for row in comparison_table(found).rows] == [
        ("0%", "40.0%", ""), ("0%", "27.3%", ""), ("-17.5%", "27.3%", "best"), ("0%", "27.3%", "best")
    ]  # fmt: skip
    assert [row["difference"] for row in ComparisonResult(found).data()] == pytest.approx([0, 0, 33 / 40 - 1, 0])
    assert (found.best, [group.best for group in found.groups]) == (None, [found.rows[2], found.rows[3]])
    slow = Comparison(compare(FOUR, ("sequential", "interleaved", "grouped"), ["lock_step", "point_to_point"]))
    assert said(slow)[0].endswith(" less time than the first row of this mode, sequential.")
    assert time_words(found) == "time per weight update, each sync mode by itself"
    assert [row_words(found, row).split(", ")[1] for row in found.rows] == ["reference", "reference", "-17.5%", "0%"]


OWN = """
from ipusim.pipeline.order import Order


def mine(shape):
    count = range(shape.micro_batches)
    passes = {
        ipu: [f"F{stage}.{n}" for n in count] + [f"B{stage}.{n}" for n in reversed(count)]
        for stage, ipu in enumerate(shape.mapping)
    }
    return Order.from_passes("mine", shape, passes)
"""


def test_a_function_that_states_no_sync_mode_runs_in_that_of_the_others_and_says_so(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    asked = replace(FOUR, folder=tmp_path)

    def modes(*schedules, syncs=(), request=asked):
        rows = compare(request, schedules, syncs)
        return [(row.sync.value, row.times.sync.value, row.note) for row in rows]

    note = (
        "the schedule states no sync mode, and runs in the sync mode of the other runs; without other runs the "
        "mode is lock-step."
    )
    lock_step, free = ("lock_step", "lock_step", ""), ("point_to_point", "point_to_point", "")
    assert modes("mine.py:mine", "gpipe", "1f1b") == [(*free[:2], note), free, free]
    assert modes("mine.py:mine") == [lock_step]
    assert modes("mine.py:mine", "grouped") == [lock_step, lock_step]
    assert modes("mine.py:mine", "grouped", "gpipe") == [lock_step, lock_step, free]
    assert modes("mine.py:mine", "gpipe", syncs=["lock_step"]) == [lock_step, lock_step]
    set_by_hand = asked.replace({"pipeline.sync": "lock_step"})
    assert modes("mine.py:mine", "gpipe", request=set_by_hand) == [lock_step, lock_step]
    own, other = asked.replace({"pipeline.schedule": "mine.py:mine"}), asked.replace({"pipeline.schedule": "1f1b"})
    beside = compare([ComparedItem(own, "mine.yaml"), ComparedItem(other, "1f1b.yaml")])
    assert [row.sync for row in beside] == [Sync.POINT_TO_POINT] * 2
    assert f"mine.yaml (mine.py:mine in point-to-point): {note}" in [*reasons(Comparison(beside))]
    assert beside[0].times.makespan_cycles == beside[1].times.makespan_cycles == 33_000


def test_schedules_in_another_sync_mode_than_their_scenario_say_so_first():
    def first(*schedules, syncs=(), request=FOUR):
        return said(Comparison(compare(request, schedules, syncs)))[0]

    assert first("gpipe", "1f1b") == (
        "Sync mode: point-to-point, the default of these schedules. The scenario four itself uses lock-step; --sync "
        "lock_step compares in that mode."
    )
    for stated in (
        first("gpipe", "1f1b", syncs=["point_to_point"]),
        first("gpipe", "1f1b", request=FOUR.replace({"pipeline.sync": "point_to_point"})),
        first("gpipe", "1f1b", request=FOUR.replace({"pipeline.schedule": "1f1b"})),
        first("grouped", "1f1b"),
    ):
        assert stated.startswith("Best")


@pytest.mark.parametrize("count", [8, 10, 500])
def test_interleaved_1f1b_with_one_stage_on_each_ipu_is_named_as_1f1b(count):
    request = FOUR.replace({"pipeline.gradient_accumulation_count": count})
    names = ("gpipe", "1f1b", "interleaved_1f1b")
    rows = compare(request, names, ["point_to_point", "lock_step"])
    note = (
        "the same passes in the same order as 1f1b, because each IPU has one stage: pipeline.virtual_stages puts "
        "several on each."
    )
    assert [row.note for row in rows] == [*[""] * 4, note, note]
    assert not any(row.note for row in compare(request.replace({"pipeline.virtual_stages": 2}), names))
    assert not any(row.note for row in compare(request, ("sequential", "sharded")))


def test_of_equally_fast_runs_the_best_holds_least():
    # Of 4 stages GPipe stashes 8 micro-batches on each IPU, 1F1B 4 on the first, eager 1F1B 7: of a MiB each.
    stages = [{"name": name, "forward": 100_000, "backward": 200_000, "stash_bytes": 1 << 20} for name in "abcd"]
    pipeline = {"gradient_accumulation_count": 8, "stages": stages}
    request = Request.from_dict(
        {"name": "held", "system": {"name": "m2000", "auto_select_ipus": 4}, "pipeline": pipeline}
    )
    found = Comparison(compare(request, ("gpipe", "1f1b", "eager_1f1b")))
    assert said(found)[1] == (
        "Best: 1f1b in point-to-point, 2.481 ms per weight update; as fast as gpipe and eager_1f1b, which hold more "
        "memory."
    )
    assert [(row[-2], row[-1]) for row in comparison_table(found).rows] == [
        ("8 MiB", "fits"), ("4 MiB", "best"), ("7 MiB", "fits")
    ]  # fmt: skip


def test_a_faster_one_that_does_not_fit_is_not_best_and_the_verdict_says_why():
    found = Comparison(compare(LARGE))
    grouped, interleaved, *slow = found.rows
    assert [row.fits for row in found.rows] == [Fits.NO, Fits.YES, Fits.YES, Fits.YES]
    assert found.best is interleaved
    first, second, front = said(found)
    less = 1 - found.cost(interleaved) / found.cost(found.in_order(slow)[0])
    more = found.cost(interleaved) / found.cost(grouped) - 1
    assert first.startswith("Best of the runs that fit: interleaved in lock-step, ")
    assert first.endswith(
        f"; {less:.1%} less time than the next, sharded, and {more:.1%} more time than the first row, "
        "grouped, which does not fit."
    )
    would = 1 - found.cost(grouped) / found.cost(interleaved)
    assert second.startswith(
        f"grouped in lock-step would take {would:.1%} less time than the best, but does not fit: Out of memory"
    )
    assert second.endswith(grouped.memory.verdict.removeprefix("Memory: "))
    assert front.startswith("Best trade-offs of time and memory (the front): interleaved (")
    assert front.endswith(". Each of these runs needs less memory than every faster run.")
    marks = {row[0]: row[-1] for row in comparison_table(found).rows}
    assert (marks["grouped"], marks["interleaved"]) == ("does not fit", "best, front")
    assert list(reasons(found)) == [UNKNOWN]


def test_where_none_fits_the_verdict_says_so():
    found = Comparison(compare(LARGE.replace({"pipeline.stages.0.parameter_bytes": 1 << 30})))
    assert found.best is None
    assert found.front == ()
    fastest = found.in_order(found.completed)[0]
    (words,) = said(found)
    assert words.startswith(f"None of them fits its IPUs. The fastest is {found.label(fastest)} in lock-step: ")
    assert len(list(reasons(found))) == 5


def test_a_refused_one_is_a_row_with_its_reason():
    found = Comparison(compare(FOUR.replace({"pipeline.gradient_accumulation_count": 9}), ["grouped", "sharded"]))
    assert found.first_completed is found.rows[1]
    table = comparison_table(found)
    assert table.title == "Comparison of four in lock-step; the first that ran is sharded"
    assert table.rows[0] == ("grouped", "-", "-", "-", "-", "refused")
    assert said(found)[0].startswith("Best of those that run: sharded in lock-step, ")
    why, *_ = reasons(found)
    assert why.startswith("grouped in lock-step: refused: The number of iterations of the pipeline must be a multiple")
    four = ("grouped", "sequential", "gpipe", "1f1b")
    found = Comparison(compare(FOUR.replace({"pipeline.gradient_accumulation_count": 9}), four, ["lock_step"]))
    assert said(found)[0].endswith(" less time than the first row that ran, sequential.")
    refused = Comparison(compare(LARGE.replace({"memory": "error"})))
    assert refused.rows[0].memory == compare(LARGE)[0].memory
    assert said(refused)[0].startswith("Best of the runs that fit: interleaved")


def test_labels_with_commas_are_listed_with_semicolons():
    """Four and five are equal, and each schedule has a time of its own."""
    both = [ComparedItem(FOUR, "four.yaml"), ComparedItem(FOUR, "five.yaml")]
    best, *_ = said(Comparison(compare(both, ["grouped", "sequential"])))
    assert "; as fast as five.yaml, grouped, and " in best
    assert best.endswith(" less time than the next, four.yaml, sequential; and five.yaml, sequential.")


def test_equal_runs_are_no_trade_off():
    equal = [ComparedItem(LARGE, name) for name in ("a.yaml", "b.yaml")]
    assert said(Comparison(compare(equal, ["interleaved"]))) == [
        "Best: a.yaml (interleaved in lock-step), 151.8 us per weight update; as fast as b.yaml."
    ]


@pytest.mark.parametrize("mapping", [[0, 1, 0, 1], [0, 1, 2, 0]], ids=["rounds", "three_ipus"])
def test_other_schedules_for_the_stages_of_a_refused_one_are_those_that_run(mapping):
    """Three IPUs have no two ends for the copies of schedules with two copies of a stage."""
    returning = FOUR.replace({"pipeline.device_mapping": mapping})
    (said_of_others,) = alternatives(Comparison(compare(returning, ["grouped", "1f1b"])))
    named = re.findall(r"[a-z0-9_]+", said_of_others.partition(": ")[2].replace(" and ", ", "))
    others = [name for name in schedules.names() if name not in ("grouped", "1f1b")]
    rows = {name: compare(returning, ["grouped", name])[-1] for name in others}
    assert named == [name for name in others if rows[name].times is not None]
    assert not [*alternatives(Comparison(compare(returning, ["grouped", *named])))]
    assert not [*alternatives(Comparison(compare(LARGE.replace({"memory": "error"}))))]


def test_a_run_alone_in_its_sync_mode_comes_with_the_option_that_compares_all_in_one():
    advice = "To compare all runs in one mode, use `--sync lock_step`, in Python `syncs`."
    alone = compare(FOUR, ["grouped", "sharded", "1f1b"])
    assert advice in said(Comparison(alone))
    assert advice not in said(Comparison(compare(FOUR, ["grouped", "1f1b"], ["lock_step"])))
    assert advice not in said(Comparison(compare(FOUR, ["grouped", "1f1b"], ["lock_step", "point_to_point"])))


def test_where_work_differs_throughput_decides():
    twice = FOUR.replace({"name": "twice", "pipeline.gradient_accumulation_count": 16})
    found = Comparison(compare([ComparedItem(FOUR, "four"), ComparedItem(twice, "twice")]))
    rates = [row.times.throughput.samples_per_s for row in found.rows]
    assert not found.is_by_time
    assert found.best is found.rows[1]
    assert found.difference(found.rows[1], found.first_completed) == pytest.approx(rates[1] / rates[0] - 1)
    assert said(found) == [
        f"Best: twice (grouped in lock-step), {rates[1]:,.0f} samples/s; {rates[1] / rates[0] - 1:.1%} more samples/s "
        "than the next, four.",
        "Work per weight update differs, from 8 to 16 samples: throughput decides, in samples/s.",
    ]
    assert list(reasons(found)) == [UNKNOWN, "Memory: not known: no scenario states the memory of its stages."]
    still = FOUR.replace({"name": "still", "pipeline.stages": [{"name": name, "forward": 0} for name in "abcd"]})
    items = [ComparedItem(still, "still"), ComparedItem(FOUR, "four"), ComparedItem(twice, "twice")]
    found = Comparison(compare(items))
    assert found.best is found.rows[2]
    assert [*map(found.to_first, found.rows)] == [None] * 3
    assert [row["samples_per_s"] for row in ComparisonResult(found).rows()] == [None, *rates]
    assert said(found)[0].startswith("Best: twice (grouped in lock-step), ")
    assert "still (grouped in lock-step): the run takes no time, so it has no throughput to compare." in reasons(found)
    assert row_words(found, found.rows[0]) == "no throughput"


def test_models_training_and_ipus_that_differ_are_said():
    alone, layers = LEARNING | {"system": {"name": "m2000"}}, LEARNING["model"]["layers"]
    other = alone | {"model": {"layers": [layers[0] | {"units": 9}, *layers[1:]]}}
    inference = {key: value for key, value in alone.items() if key != "optimizer"}
    named = {"learning": alone, "other": other, "forward": inference, "replicas": LEARNING}
    asked = [ComparedItem(Request.from_dict(each | {"name": name}), name) for name, each in named.items()]
    _, why, ipus, *_ = said(Comparison(compare(asked)))
    assert why == (
        "Work per weight update differs, from 8 to 16 samples; some runs train, and others do not; models differ, so "
        "a sample is different work: throughput decides, in samples/s."
    )
    assert ipus == "The runs are on 2 and 4 IPUs."
    assert comparison_table(Comparison(compare(asked))).header[1:3] == ("IPUs", "time per update or execution")
    alone = Comparison(compare(asked[2].source, ["grouped"]))
    assert comparison_table(alone).header[1] == "time per execution"
    assert said(alone)[0].endswith(" per execution.")


@pytest.fixture
def older(folder, tmp_path):
    """Return a copy of the folder, what its summary says, and a function that writes another summary into the copy."""
    copied = tmp_path / "older"
    shutil.copytree(folder, copied)
    path = copied / "summary.json"
    return copied, json.loads(path.read_text()), lambda summary: path.write_text(json.dumps(summary))


def test_a_folder_of_an_older_version_is_read_and_says_what_is_different(folder, older):
    older, said, write = older
    assert read_run(older).version_note == ""
    assert said["schema_version"] == SCHEMA_VERSION
    holders = [ipu["holders"] for ipu in said["memory"]["ipus"]]
    for ipu in said["memory"]["ipus"]:
        ipu["holders"] = {str(holder): ipu["holders"][holder.key] for holder in Holder}
    write(said | {"schema_version": 2})
    run = read_run(older)
    assert [ipu["holders"] for ipu in run.summary["memory"]["ipus"]] == holders
    assert run.version_note == (
        "An older version of ipusim wrote the folder: summary.json, of schema version 2, calls holders of memory and "
        "options by their words, numbers no time-steps with -1, says only true or false about whether a program "
        "fits, takes the speed-up from the bare arithmetic on one IPU, and counts gaps in main as fill and drain; its "
        "parts of the time are therefore left out."
    )
    found = Comparison(compare([ComparedItem(read_run(folder), "a"), ComparedItem(run, "b")]))
    assert any(line.endswith(run.version_note) for line in reasons(found))
    for version in (SCHEMA_VERSION + 1, 0, "3", None, True):
        write(said | {"schema_version": version})
        with pytest.raises(FileError, match=f"expected a schema_version from 1 to {SCHEMA_VERSION}, got "):
            read_run(older)


def memory_of(fits, peak):
    """The memory in ``summary.json`` of a run on one IPU."""
    ipu = {"ipu": 0, "peak_bytes": peak, "peak_pass": "F0.0", "excess_bytes": 0}
    return {"sram_bytes": 3, "fits": fits, "verdict": "", "ipus": [ipu]}


RUN = st.tuples(st.integers(1, 5), st.integers(1, 5), st.sampled_from([*Fits][:3]), st.sampled_from(Sync))
RUNS = st.lists(RUN, min_size=1, max_size=6)


@settings(max_examples=share(40))
@given(RUNS)
def test_best_and_front_are_of_those_of_a_sync_mode_that_fit(runs):
    rows = [
        Row(
            f"run {number}",
            "grouped",
            sync,
            "AUTO",
            folder_run=StoredRun(None, timeline_by_hand("grouped", count=4, forward=100 * cycles), {}),
            summary={"memory": memory_of(fits, peak)},
        )
        for number, (cycles, peak, fits, sync) in enumerate(runs)
    ]
    found = Comparison(tuple(rows))
    marks = [row[-1] for row in comparison_table(found).rows]
    words = (str(Fits.NO), str(Fits.WITHOUT_CODE))
    assert [mark in words for mark in marks] == [fits in words for _, _, fits, _ in runs]
    best, on_front = [], []
    for mode in {sync for *_, sync in runs}:
        fitting = [
            (cycles, peak, row)
            for row, (cycles, peak, fits, sync) in zip(rows, runs, strict=True)
            if fits is Fits.YES and sync is mode
        ]
        least = min(((cycles, peak) for cycles, peak, _ in fitting), default=None)
        tied = [row for cycles, peak, row in fitting if (cycles, peak) == least]
        (group,) = [group for group in found.groups if group.rows[0].sync is mode]
        assert group.best is next(iter(tied), None)
        assert group.best is None or group.best in group.front
        beaten = [
            any(a <= cycles and b <= peak and (a, b) != (cycles, peak) for a, b, _ in fitting)
            for cycles, peak, _ in fitting
        ]
        assert list(group.front) == [row for (*_, row), off in zip(fitting, beaten, strict=True) if not off]
        first = next(row for row in rows if row.sync is mode)
        assert [found.to_first(row) for row in group.rows] == [group.difference(row, first) for row in group.rows]
        best += tied
        on_front += group.front
    assert {*found.best_rows} == {*best}
    assert {*found.front} == {*on_front}
    assert ["best" in mark for mark in marks] == [row in best for row in rows]
    assert all(said(found))
    assert any("idealised" in line for line in said(found)) == (len(found.groups) == 2)


@pytest.mark.parametrize("answer", Fits)
def test_an_older_folder_that_says_true_or_false_is_read_with_the_answer_of_its_bytes(older, answer):
    older, said, write = older
    memory = said["memory"] | {
        "fits": answer is not Fits.NO,
        "verdict": "Memory: every IPU fits; the fullest is IPU 0.",
    }
    if answer is Fits.NO:
        memory["verdict"] = "Out of memory on IPU 0: 1 GiB in pass F0.0."
    if answer is Fits.WITHOUT_CODE:
        memory["sram_bytes"] = min(ipu["peak_bytes"] for ipu in memory["ipus"]) - 1
        memory["verdict"] = "Memory: every IPU fits without code; with the assumed 9 MiB of code IPU 0 needs."
    if answer is Fits.UNKNOWN:
        memory["ipus"] = [ipu | {"holders": dict.fromkeys(ipu["holders"], 0)} for ipu in memory["ipus"]]
        memory["stages"] = [stage | {"kept_bytes": 0} for stage in memory["stages"]]
    write(said | {"schema_version": 3, "memory": memory})
    run = read_run(older)
    assert run.fits is answer
    if answer is not Fits.YES:
        assert run.summary["memory"]["verdict"].startswith(f"Memory: {answer}: ")
    assert " says only true or false about whether a program fits, " in run.version_note
    for wrong in (True, "perhaps", None):
        write(said | {"memory": memory | {"fits": wrong}})
        with pytest.raises(FileError, match="expected the summary of a run, got "):
            read_run(older)
