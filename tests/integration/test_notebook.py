"""What ``import ipusim`` offers: the same requests, runs and numbers as through YAML, shown and framed."""

import ast
import builtins
import json
import re
import shutil
from base64 import b64decode
from dataclasses import FrozenInstanceError, fields
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.figure import Figure

import ipusim
from ipusim.analysis.figures import known_figures
from ipusim.analysis.run_times import run_times_of
from ipusim.app.page.page import report_page
from ipusim.app.run_folder.report import RESULT_FILES
from ipusim.app.scenario import ScenarioError, load_request
from ipusim.base.errors import FileError, MissingPackageError, OptionError, OutputError, TimelineError
from ipusim.pipeline.holders import Holder
from ipusim.timeline.kinds import USES
from ipusim.timeline.timeline import Span, Timeline
from tests import schedules
from tests.effort import slowest
from tests.scenarios import plain_data

pytestmark = pytest.mark.usefixtures("coarse")

SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").glob("*.yaml"))
STAGES = [{"name": f"s{n}", "forward": 1000, "backward": 2000} for n in range(4)]
TIMED = {"system": {"name": "free"}, "pipeline": {"stages": STAGES, "gradient_accumulation_count": 8}}
LEARNING = {
    "name": "small",
    "system": {"name": "m2000", "auto_select_ipus": 2},
    "data": {"type": "synthetic", "shape": [6], "classes": 3, "samples": 64},
    "model": {
        "layers": [
            {"name": "hidden", "type": "dense", "units": 5, "activation": "relu"},
            {"name": "logits", "type": "dense", "units": 3},
            {"name": "cel", "type": "softmax_cross_entropy"},
        ]
    },
    "pipeline": {"splits": ["logits"], "micro_batch_size": 4, "gradient_accumulation_count": 4},
    "optimizer": {"type": "sgd", "learning_rate": 0.01},
    "steps": 2,
}


@pytest.fixture(scope="module")
def timed():
    return ipusim.run(TIMED)


@pytest.fixture(scope="module")
def learnt():
    return ipusim.run(LEARNING)


@pytest.fixture(scope="module")
def folder(learnt, tmp_path_factory):
    return learnt.save(tmp_path_factory.mktemp("runs") / "small")


def refused(kind, action, *words, **named):
    with pytest.raises(kind) as caught:
        action(*words, **named)
    assert isinstance(caught.value, ipusim.IpusimError)
    return str(caught.value)


def test_what_is_public():
    assert ipusim.__all__ == [
        "Comparison",
        "IpusimError",
        "Order",
        "Picture",
        "Request",
        "RequestError",
        "Run",
        "RunFolder",
        "Shape",
        "Suggestion",
        "Sweep",
        "__version__",
        "compare",
        "load",
        "report",
        "request",
        "run",
        "schedule",
        "show",
        "suggest",
        "sweep",
    ]
    for name in ipusim.__all__:
        found = getattr(ipusim, name)
        called = "PlanShape" if name == "Shape" else name  # beside layers' shapes inside the package
        assert name == "__version__" or (found.__name__, bool(found.__doc__)) == (called, True)
    assert set(ipusim.__all__) <= set(dir(ipusim))
    with pytest.raises(AttributeError, match=r"^module 'ipusim' has no attribute 'nothing'$"):
        ipusim.nothing  # noqa: B018


def test_type_checkers_are_told_what_is_given():
    """Each public name comes from where the imports for type checkers say; they are all that those see."""
    tree = ast.parse(Path(ipusim.__file__).read_text())
    (checking,) = [node for node in tree.body if isinstance(node, ast.If)]
    imported = [(each.asname or each.name, node.module, each.name) for node in checking.body for each in node.names]
    assert {name for name, _, _ in imported} | {"__version__"} == set(ipusim.__all__)
    for name, module, called in imported:
        assert getattr(ipusim, name) is getattr(import_module(module), called)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_as_a_dict_asks_for_the_same(path):
    """Of all that is asked for follows the run, whoever asks."""
    request, there = ipusim.request(plain_data(path), folder=path.parent), load_request(path)
    assert (request.options, request.folder) == (there.options, there.folder)


CHANGES = {"pipeline.gradient_accumulation_count": 16, "pipeline": {"stages": {"s1": {"forward": 1500}}}, "steps": None}


def test_every_verb_takes_changes_of_a_scenario_in_any_form(tmp_path):
    """Dotted names and nested mappings change the same options of a path, a mapping, a Request and a Job."""
    path = tmp_path / "timed.yaml"
    path.write_text(json.dumps(TIMED | {"steps": 3}))
    stages = [dict(stage, forward=1500) if stage["name"] == "s1" else stage for stage in STAGES]
    expected = ipusim.run(TIMED | {"pipeline": {"stages": stages, "gradient_accumulation_count": 16}})
    sources = [path, str(path), TIMED | {"steps": 3}, load_request(path), ipusim.run(path).result.job]
    for source in sources:
        ran = ipusim.run(source, changes=CHANGES)
        assert ran.request.options == expected.request.options
        assert np.array_equal(ran.timeline.end, expected.timeline.end)
        compared = ipusim.compare(source, ["grouped"], changes=CHANGES).runs
        assert [one.summary.makespan_cycles for one in compared.values()] == [expected.summary.makespan_cycles]
        swept = ipusim.sweep(source, {"steps": [1]}, changes=CHANGES, workers=1)
        assert [outcome.figures["makespan"] for outcome in swept.outcomes] == [
            expected.summary.makespan_cycles / expected.timeline.info.clock_hz
        ]
        best = ipusim.suggest(source, changes=CHANGES, schedules=["grouped"], replicas=1, ipus=[4], stages=[4])
        assert best.result.given_trial.cycles == expected.summary.execution_cycles


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"steps": 0}, "{}: expected a whole number from 1 to 1000000, got 0"),
        ({"pipeline": {"stages": {"9": {"forward": 1}}}}, "expected an index of pipeline.stages from 0 to 3, got 9"),
        ({"steps.x": 1}, "expected steps to be a mapping or a list"),
        ({"pipeline.repeat_count": 1, "pipeline": {"repeat_count": 2}}, "expected each option once"),
    ],
)
def test_a_wrong_change_is_named_without_a_line_of_the_file(tmp_path, changes, text):
    path = tmp_path / "timed.yaml"
    path.write_text(json.dumps(TIMED | {"steps": 3}))
    said = refused(ipusim.IpusimError, ipusim.run, path, changes=changes)
    assert text.format("changes steps: steps") in said or text.format("changes steps") in said
    assert str(path) not in said


def test_a_run_folder_takes_no_changes(folder):
    text = f"changes: expected scenarios to change, got the run folder {folder}"
    assert refused(ipusim.IpusimError, ipusim.compare, [folder], changes={"steps": 2}) == text


def test_a_request_takes_keys_one_by_one_and_what_python_has_for_lists_and_numbers():
    request = ipusim.request(LEARNING)
    assert ipusim.request(**LEARNING) == request
    assert ipusim.request({"name": "small"}, **{key: LEARNING[key] for key in LEARNING if key != "name"}) == request
    data = dict(LEARNING["data"], shape=(np.int64(6),), samples=np.array(64))
    assert ipusim.request(LEARNING | {"data": data, "steps": np.int32(2)}) == request
    assert isinstance(request, ipusim.Request)
    assert request.replace({"steps": np.int64(2), "data.shape": np.array([6])}) == request
    longer = request.replace({"steps": 3, "pipeline.schedule": "interleaved"})
    assert longer == ipusim.request(
        LEARNING | {"steps": 3, "pipeline": LEARNING["pipeline"] | {"schedule": "interleaved"}}
    )


def test_files_in_options_are_relative_to_a_folder(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(64, 6)), np.arange(64) % 3
    np.savez(tmp_path / "mine.npz", x=x, y=y)
    options = LEARNING | {"data": {"type": "npz", "file": Path("mine.npz")}}
    assert len(ipusim.run(ipusim.request(options, folder=tmp_path)).losses()) == 8
    assert refused(ipusim.RequestError, ipusim.run, options).startswith("data.file: ")


@pytest.mark.parametrize("path", SCENARIOS[::15], ids=lambda path: path.stem)
def test_a_summary_is_printed_on_a_page_of_the_screen(path):
    """80 x 24, with every figure that the summary has."""
    ran = ipusim.run(path, changes={"numerics": "off", "evaluate": None, "expect": None, "memory": "report"})
    of_folder = run_times_of(ran.timeline)
    for times, data in ((ran.summary, ran.summary.to_dict()), (of_folder, of_folder.times_dict())):
        heading, *lines = repr(times).splitlines()
        assert heading.startswith(f"{type(times).__name__} of {ran.summary.name}: ")
        assert [line.split()[0] for line in lines] == list(known_figures(data))
        assert len(lines) < 23
        assert max(map(len, lines)) <= 80, lines


def test_each_printed_figure_is_found_by_its_name():
    summary = ipusim.run(LEARNING).summary
    printed = [line.split()[0] for line in repr(summary).splitlines()[1:]]
    assert len(printed) > 10
    assert [summary[name] for name in printed] == [*known_figures(summary.to_dict()).values()]
    assert summary["time_per_weight_update"] == summary.to_dict()["throughput"]["weight_update_period_s"]
    with pytest.raises(KeyError, match=r"got 'time_per_weight'; did you mean time_per_weight_update\?"):
        summary["time_per_weight"]


def test_a_summary_is_frozen_comparable_and_says_all_that_is_compared():
    one, other = (ipusim.run(LEARNING, changes={"system.auto_select_ipus": 4}).summary for _ in range(2))
    assert one == other
    with pytest.raises(FrozenInstanceError):
        one.steps = 2
    names = {field.name for field in fields(one) if field.compare} | {"waterfall", "verdict"}
    assert names <= one.to_dict().keys()
    assert one.gradient_sum.cycles * one.executions == one.run_use[0].cycles["all_reduce"]


def test_a_run_shows_a_verdict_a_summary_and_its_trace(timed):
    html = timed._repr_html_()
    cycles = (8 + 4 - 1) * 3000
    period_us = cycles / 1.33e9 * 1e6
    verdict = f"{period_us:.4g} us per weight update, {8 / period_us * 1e6:,.0f} samples/s, bubble {3 / 11:.1%}"
    assert html.index(verdict) < html.index("<table>") < html.index("<img ")
    assert verdict in repr(timed)
    assert re.search(r">makespan</td><td[^>]*>33,000 cycles, ", html)
    (png,) = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    assert b64decode(png) == timed._repr_png_() == timed.figure()._repr_png_()


def test_ipython_shows_a_run_as_a_summary_and_a_picture_and_a_figure_as_a_picture(timed):
    shown, figure = (DisplayFormatter().format(each)[0] for each in (timed, timed.figure()))
    assert (shown["text/html"], shown["image/png"]) == (timed._repr_html_(), timed._repr_png_())
    assert figure["image/png"] == shown["image/png"]


def test_what_a_run_shows_is_escaped_and_says_what_does_not_fit():
    said = ipusim.request(LEARNING | {"memory": "report", "code_bytes": "900 MiB"}, description="<b> & more")
    html = ipusim.run(said)._repr_html_()
    assert "&lt;b&gt; &amp; more" in html
    assert "<p>Memory: does not fit: Out of memory on IPU " in html


def test_figures_of_a_run(timed, learnt):
    assert isinstance(timed.figure(), Figure)
    assert timed.figure(phase="ramp-up")._repr_png_() != timed.figure()._repr_png_()
    assert isinstance(learnt.memory_figure(execution=1), Figure)
    assert learnt.figure(start=5, end=900)._repr_png_().startswith(b"\x89PNG")
    assert refused(OutputError, timed.memory_figure) == (
        "expected stages with known memory, got stages with only cycles"
    )
    assert refused(OutputError, timed.figure, phase="main", start=3) == (
        "expected either a phase or cycles from start to end, got both"
    )
    assert refused(OptionError, timed.figure, start=7, end=7) == (
        "start: expected a window of cycles within the run (0 to 33000), got 7 to 7"
    )
    assert "execution" in refused(TimelineError, timed.figure, execution=1)


def test_tracks_are_named_by_what_works_or_is_sent_on_them(learnt):
    """Those of the host are in ``test_columns``, also where they are of replicas."""
    links = (f"link {it}" for it in learnt.timeline.info.links)
    host = ("host infeed", "host outfeed")
    assert set(learnt.spans()["track"]) == {"IPU 0", "IPU 1", "all IPUs", *host, *links}
    overlapped = SCENARIOS[0].with_name("overlapped_io.yaml")
    tracks = ipusim.run(overlapped, changes={"steps": 1, "numerics": "off"}).spans()["track"]
    assert {"IPU 0", "I/O tiles of IPU 0"} <= set(tracks)


def test_stages_and_links_of_one_name_are_no_matter(timed):
    """A saved Timeline may say so, though no run of ours does."""
    columns = np.stack([getattr(timed.timeline, name) for name in Span._fields], axis=1)
    info = timed.timeline.info.__class__(**{**vars(timed.timeline.info), "stages": ("a", "b", "a", "b")})
    shown = ipusim.Run(timed.result)
    shown.timeline = Timeline(info, columns)
    stages = shown.spans()["stage"]
    assert sorted(stages.dropna().unique()) == ["a", "b"]
    np.testing.assert_array_equal(stages == "a", np.isin(columns[:, Span._fields.index("stage")], (0, 2)))


def test_frames_of_ipus_memory_and_losses(learnt, timed):
    ipus = timed.ipus()
    assert ipus["compute_cycles"].tolist() == [8 * 3000] * 4
    assert ipus["stages"].tolist() == ["s0", "s1", "s2", "s3"]
    np.testing.assert_allclose(ipus["utilisation"], 24 / 33)
    memory = learnt.memory()
    assert memory["ipu"].tolist() == [0, 1]
    assert memory["peak_bytes"].tolist() == [peak.bytes for peak in learnt.result.memory.peaks]
    assert memory["parameters_bytes"].tolist() == [(6 * 5 + 5) * 4, (5 * 3 + 3) * 4]
    losses = learnt.losses()
    assert list(losses) == ["step", "execution", "micro_batch", "loss"]
    assert losses["loss"].tolist() == [loss.loss for loss in learnt.result.learning.losses]
    assert (len(timed.losses()), list(timed.losses())) == (0, list(losses))
    assert timed.weights == {}
    assert learnt.weights["hidden/W"].shape == (6, 5)


def test_a_suggestion_for_several_numbers_of_ipus_has_one_for_each():
    found = ipusim.suggest(LEARNING, replicas=2, ipus=[1, 2])
    assert found.by_ipus[1] == "replicas: expected 1 with the other options, got 2"
    assert found.by_ipus[2].request == found.request
    assert found.by_ipus[2].outcome == "plan"


def test_every_column_of_a_frame_is_in_the_docstring_of_its_method(learnt, timed, folder):
    """A column of a use of an IPU or of a holder of memory is there as ``USE_cycles`` or ``HOLDER_bytes``."""
    replicas = ipusim.run(LEARNING, changes={"system.auto_select_ipus": 4})
    summed = ipusim.run(LEARNING, changes={"pipeline.accumulate_outfeed": True})
    swept = ipusim.sweep(LEARNING, {"steps": [1], "pipeline.sync": ["lock_step", "point_to_point"]}, losses=True)
    uses = {f"{use.name}_cycles" for use in USES}
    holders = {f"{holder.key}_bytes" for holder in Holder}
    wrong = []
    compared, explained = ipusim.compare(LEARNING, ["grouped"]), timed.explain()
    suggested = ipusim.suggest(TIMED, schedules=["grouped"], replicas=1)
    for shown in (learnt, ipusim.load(folder), replicas, summed, swept, compared, explained, suggested):
        for method in ("spans", "ipus", "memory", "memory_over_time", "losses", "frame"):
            if hasattr(shown, method):
                docs = (vars(kind)[method].__doc__ for kind in type(shown).__mro__ if method in vars(kind))
                words = set(re.findall(r"\w+", " ".join(docs)))
                columns = set(getattr(shown, method)().columns) - {"steps", "pipeline.sync"}
                families = {"USE_cycles": uses, "HOLDER_bytes": holders}
                columns -= set().union(*(names for family, names in families.items() if family in words))
                wrong += [(type(shown).__name__, method, column) for column in sorted(columns - words)]
    assert wrong == []


def test_a_comparison_in_a_frame_a_figure_and_a_cell():
    found = ipusim.compare(TIMED | {"name": "four"}, ["grouped", "sharded", "single"])
    frame = found.frame().set_index("schedule")
    assert frame.loc["grouped", "makespan_cycles"] == 33_000
    assert frame.loc["sharded", "makespan_cycles"] == 96_000
    assert frame.loc["sharded", "bubble"] == pytest.approx(0.75)
    assert list(found.runs) == [name for name in frame.index if pd.isna(frame.loc[name, "refusal"])]
    assert frame["best"].tolist() == [True, False, False]
    assert frame.loc["sharded", "difference"] == pytest.approx(96 / 33 - 1)
    assert frame["name"].tolist() == ["grouped", "sharded", "single"]
    assert found.verdict().startswith("Best: grouped in lock-step, 24.81 us per weight update; ")
    assert found.verdict().endswith("\nThe runs are on 1 and 4 IPUs.")
    html = found._repr_html_()
    best, ipus = found.verdict().splitlines()
    assert html.startswith(f"<div><p>{best}</p><p>{ipus}</p><table>")
    cells = ("sharded", "4", "72.18 us", r"[\d,]+", r"\+191%")
    assert re.search("</td>".join(f"<td[^>]*>{cell}" for cell in cells), html)
    (png,) = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    assert b64decode(png) == found._repr_png_() == found.figure()._repr_png_()
    assert repr(found).startswith("<Comparison of grouped in lock-step, sharded in lock-step, ")


def test_a_sweep_of_which_no_point_has_the_measure_is_shown_without_a_picture():
    found = ipusim.sweep(TIMED, {"steps": [1, 2]}, measure="accuracy", losses=True, workers=1)
    assert found._repr_png_() is None
    assert found._repr_html_().startswith("<div><p>None of 2 points that fit")
    assert "<img" not in found._repr_html_()


def test_requests_paths_and_folders_are_compared(folder, tmp_path, learnt):
    kept = ipusim.load(folder)
    path = tmp_path / "timed.yaml"
    path.write_text(json.dumps(TIMED))
    for run in (folder, str(folder), kept):
        found = ipusim.compare([TIMED | {"name": "mine"}, path, run])
        assert found.frame()["name"].tolist() == ["mine", "timed", kept.times.name]
        assert list(found.runs) == ["mine", "timed"]
        assert found.rows[2].folder_run.timeline == learnt.timeline
        assert found.frame()["mean_loss"].isna().tolist() == [True, True, False]
    assert ipusim.compare(TIMED, orders="HOOF").rows[0].order == "HOOF"
    assert refused(FileError, ipusim.compare, folder).startswith(f"{folder}: expected a second run to compare with")
    path.write_text(json.dumps(TIMED | {"steps": 0}))
    assert refused(ScenarioError, ipusim.compare, [TIMED, path]).startswith(f"{path}:1:")
    assert refused(ScenarioError, ipusim.run, path) == (
        f"{path}:1:{path.read_text().index(' 0') + 2}: steps: expected a whole number from 1 to 1000000, got 0"
    )


def test_a_comparison_names_what_is_refused(tmp_path, without_pictures):
    odd = TIMED | {"pipeline": TIMED["pipeline"] | {"gradient_accumulation_count": 9}}
    found = ipusim.compare(odd, ["grouped", "sharded"])
    assert list(found.runs) == ["sharded"]
    refusal = found.frame()["refusal"]
    assert refusal[0].endswith("The nearest counts of grouped: 8 or 16.")
    assert pd.isna(refusal[1])
    assert f"grouped in lock-step: refused: {refusal[0]}" in found._repr_html_().replace("&#x27;", "'")
    assert repr(found) == "<Comparison of grouped in lock-step (refused), sharded in lock-step>"
    assert sorted(path.name for path in found.save(tmp_path / "both").glob("*.*") if path.is_file()) == [
        "comparison.json",
        "comparison.png",
        "comparison.svg",
    ]
    text = refused(ipusim.RequestError, ipusim.compare, odd, "grouped")
    assert text == f"pipeline.gradient_accumulation_count: {refusal[0]}"
    assert refused(OptionError, ipusim.compare, odd, ["groupd"]) == (
        f"schedules: got 'groupd'; did you mean 'grouped'? Expected a schedule out of {schedules.SCHEDULES}"
    )
    path = tmp_path / "odd.yaml"
    path.write_text(json.dumps(odd))
    place = json.dumps(odd).index(": 9") + 3
    assert refused(ScenarioError, ipusim.compare, path, ["grouped"]) == f"{path}:1:{place}: {text}"


def test_a_folder_holds_what_the_run_showed(learnt, folder):
    assert {path.name for path in folder.iterdir()} - {".ipusim"} <= set(RESULT_FILES)
    there = ipusim.load(folder)
    assert isinstance(there, ipusim.RunFolder)
    assert there.timeline == learnt.timeline
    assert there.summary == json.loads(json.dumps(learnt.summary.to_dict()))
    for name in ("spans", "ipus", "memory", "losses"):
        pd.testing.assert_frame_equal(getattr(there, name)(), getattr(learnt, name)())
    for name, array in learnt.weights.items():
        np.testing.assert_array_equal(there.weights[name], array)
    assert there.weights.keys() == learnt.weights.keys()
    assert there._repr_html_() == learnt._repr_html_()
    assert there.figure(phase="main")._repr_png_() == learnt.figure(phase="main")._repr_png_()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not enough values"),
        (b"\xff\n", "codec can't decode"),
        (b"step,loss\n1,2,3\n", "columns passed"),
        (b"step,loss\nfirst,2\n", "invalid literal"),
        (b"step,loss\n1" + b"0" * 99 + b",2\n", "too large"),
        (b"step,loss" + b"," * 10**6 + b"\n", "a line of more than 256 bytes"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value,
)
def test_losses_of_a_folder_that_are_none_are_one_message(folder, tmp_path, content, reason):
    for name in ("summary.json", "timeline.npz"):
        shutil.copy(folder / name, tmp_path)
    (tmp_path / "losses.csv").write_bytes(content)
    there = ipusim.load(tmp_path)
    text = refused(FileError, there.losses)
    assert text.startswith(f"{tmp_path}/losses.csv: expected the losses of a run, got another format: ")
    assert reason in text


def test_what_is_no_run_folder(folder, tmp_path):
    """A file, and a folder with other arrays; what commands refuse too is looked at there."""
    file = folder / "summary.json"
    assert refused(FileError, ipusim.load, file) == f"{file}: expected a run folder, got a file"
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / "weights.npz").write_bytes(b"no archive")
    assert refused(FileError, ipusim.load, broken).startswith(
        f"{broken / 'weights.npz'}: expected the arrays of a run, got another format: "
    )


def test_without_pandas_all_but_frames_works(timed, monkeypatch):
    real = builtins.__import__

    def without(name, *words, **named):
        if name.partition(".")[0] == "pandas":
            raise ImportError(name)
        return real(name, *words, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    for frame in (timed.spans, timed.ipus, timed.memory, timed.losses, ipusim.compare(TIMED, ["grouped"]).frame):
        assert (
            refused(MissingPackageError, frame)
            == "DataFrames need pandas: pip install -e '.[notebook]' in a checkout of ipusim"
        )
    assert "<table>" in timed._repr_html_()


def test_a_run_explains_itself_as_its_folder_does(timed, tmp_path, without_pictures):
    said = timed.explain()
    assert said.words[0] == "Time goes into useful compute 72.7%, fill and drain 27.3%."
    idle = said.idle()
    assert list(idle.columns) == ["ipu", "start_cycle", "end_cycle", "cause", "stage"]
    waits = idle[idle["cause"] == "passes of other IPUs"]
    assert (waits["end_cycle"] - waits["start_cycle"]).sum() == 4 * 9_000
    assert set(waits["stage"]) == {"s0", "s1", "s2", "s3"}
    assert "Changes that help" in said._repr_html_()
    assert isinstance(said.figure(), Figure)
    assert isinstance(said.path_figure(), Figure)
    assert ipusim.load(timed.save(tmp_path)).explain(0).result.data() == timed.explain(0).result.data()
    with pytest.raises(OptionError, match="execution: expected an execution numbered 0, got 7"):
        timed.explain(7)


@slowest
def test_every_verdict_on_a_run_says_how_far_off_models_of_its_kind_are(tmp_path):
    """The notebook, the page and comparisons, of a run and of its folder alike; an older folder does not say it."""
    run = ipusim.run(SCENARIOS[0].parent / "mnist_cnn.yaml")
    error = run.summary.throughput_error
    assert ", in 4 of 5 cases (estimated from 11 published trainings of small networks)" in error
    folder = run.save(tmp_path / "run")
    shown = f"Error of the throughput: {error}."
    assert shown in run._repr_html_()
    assert shown in ipusim.load(folder)._repr_html_()
    assert json.dumps(shown)[1:-1] in report_page([folder]).decode()
    timed = ipusim.compare([TIMED | {"name": "cycles"}, ipusim.load(folder)])._repr_html_()
    assert f": {error}." in timed
    assert ": not known: no training of a model of this kind is published." in timed
    said = json.loads((folder / "summary.json").read_text())
    del said["throughput_error"]
    (folder / "summary.json").write_text(json.dumps(said))
    assert "Error of the throughput" not in ipusim.load(folder)._repr_html_()
