"""What a scenario expects of its run: what each form means, and what is said of one that makes no sense."""

from types import SimpleNamespace

import pytest

from ipusim.analysis.figures import FIGURES
from ipusim.app.scenario import ScenarioError
from ipusim.app.scenario.load import load_request
from ipusim.app.scenario.source import read_source
from ipusim.app.scenario.write import scenario_text
from ipusim.app.suggest.scenario_text import suggested_text
from ipusim.base.errors import QuantityError
from ipusim.runs.request.expectation import expectation
from ipusim.runs.request.request import Request
from ipusim.runs.yaml_text import dump
from tests.scenarios import timed

ANSWERS = "fits, fits only without the estimated code or does not fit"


@pytest.mark.parametrize(
    ("name", "text", "hold", "miss"),
    [
        ("makespan", "<= 540 us", (0, 540e-6), (541e-6,)),
        ("makespan", "at most 540 us", (540e-6,), (541e-6,)),
        ("makespan", "< 540 us", (539e-6,), (540e-6,)),
        ("makespan", "less than 540 us", (539e-6,), (540e-6,)),
        ("throughput", ">= 1.5 k samples/s", (1500,), (1499,)),
        ("throughput", "at least 1500", (1500,), (1499,)),
        ("throughput", "more than 1.5 k", (1501,), (1500,)),
        ("throughput", "0.9 M..1.1 M samples/s", (0.9e6, 1.1e6), (0.89e6, 1.11e6)),
        ("throughput", "0.9..1.1 M samples/s", (0.9e6, 1.1e6), (0.89e6, 1.11e6)),
        ("makespan", "between 1 and 2 ms", (1e-3, 2e-3), (0.9e-3, 2.1e-3)),
        ("makespan", "<= 500 us + 2 %", (510e-6,), (511e-6,)),
        ("makespan", "at least 1e-3 s - 1.5%", (985e-6,), (984e-6,)),
        ("peak", "600 MiB +- 2 %", (617e6, 641e6), (616e6, 642e6)),
        ("time_steps", "50 ± 2 %", (49, 51), (48, 52)),
        ("mean_loss.last", "-1 +- 2 %", (-1.02, -0.98), (-1.03, -0.97)),
        ("mean_loss.last", "at most -1 + 2 %", (-0.98,), (-0.97,)),
        ("bubble", "<= 20 %", (0.2,), (0.21,)),
        ("bubble", "<= 0.2", (0.2,), (0.21,)),
        ("peak", "<= 600 MiB", (600 << 20,), ((600 << 20) + 1,)),
        ("peak.0", "<= 600 MiB", (0,), (1 << 30,)),
        ("mean_loss.last", "<= 0.01", (-1.0, 0.01), (0.02, float("nan"))),
        ("slowest_stage", "stage0", ("stage0", ["stage0", "stage2"]), ("stage1", ["stage1", "stage2"])),
        ("time_steps", 36, (36,), (35, 37)),
        ("time_steps", "at most 36", (36,), (37,)),
        ("memory", "fits", ("fits",), ("fits only without the estimated code", "does not fit", "not known", True)),
        ("memory", "does not fit", ("does not fit",), ("fits", False)),
        ("schedule", "grouped", ("grouped",), ("gpipe",)),
        ("executions", 1, (1,), (True, 2)),
        ("throughput.run_s", "<= 1 s", (1.0,), (1.1,)),
        ("memory.ipus.0.peak_bytes", "<= 1 KiB", (1024,), (1025,)),
        ("waterfall.shares.host", "<= 0.1", (0.1,), (0.2,)),
    ],
)
def test_each_form_holds_of_what_it_says(name, text, hold, miss):
    wanted = expectation(name, text)
    assert [wanted.holds(value) for value in (*hold, *miss)] == [True] * len(hold) + [False] * len(miss)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("makespan", 5, "expected a comparison or a range such as at most 540 us, got 5"),
        (
            "bubble",
            "20 % +- 2 %",
            "expected a share without a tolerance, or a range such as 18 %..22 %, got '20 % +- 2 %'",
        ),
        ("makespan", "5 +- 2 %", "expected seconds with a unit, such as 3.7 us, got '5 +- 2 %'"),
        (
            "makespan",
            "<= 540 us +- 2 %",
            "expected a bound with a tolerance on one side, such as + 2 %, got '<= 540 us +- 2 %'",
        ),
        ("makespan", "540 us", "expected a comparison or a range such as at most 540 us, got '540 us'; did you mean "
         "at most 540 us?"),
        ("makespan", "<= 540", "expected seconds with a unit, such as 3.7 us, got '<= 540'"),
        ("makespan", "<= 5 uz", "expected seconds in one of s, ms, us, µs, ns such as '3.7 us', got '5 uz'; "
         "did you mean 5 us?"),
        ("makespan", "2 ms..1 ms", "expected the smaller bound first, got '2 ms..1 ms', an empty range"),
        ("makespan", "<= -1 s", "expected seconds from 0 up, got '<= -1 s'"),
        ("bubble", "<= 20", "expected a share from 0 to 1 or with %, got '<= 20'; did you mean 20 %?"),
        ("bubble", "at least 120 %", "expected a share from 0 % to 100 %, got 'at least 120 %'"),
        ("memory", "<= 6 MiB", f"expected {ANSWERS}, got '<= 6 MiB'; did you mean peak, which takes bytes?"),
        ("memory", "fit", f"expected {ANSWERS}, got 'fit'; did you mean fits?"),
        ("time_steps", "36.5", "expected a comparison or a range such as 36 or at most 36, got '36.5'"),
        ("time_steps", "٣٦", "expected a comparison or a range such as 36 or at most 36, got '٣٦'"),
        ("time_steps", True, "expected a comparison or a range such as 36 or at most 36, got true"),
        ("slowest_stage", "<= 5", "expected a name such as stage0, got '<= 5'"),
        ("mean_loss.lats", "<= 1", "expected mean_loss.first, mean_loss.last, mean_loss.most, mean_loss.least or "
         "mean_loss.NUMBER, got 'mean_loss.lats'; did you mean last?"),
        ("throughput.sample", "<= 1", "expected a path in summary.json, got 'throughput.sample': "
         "no key 'sample'; did you mean samples?"),
        ("memory.ipus", "<= 1", "expected the path of one value in summary.json, got 'memory.ipus', which has several"),
        ("mean_loss", "<= 1e99999", "expected a comparison or a range such as at most 0.01, got '<= 1e99999'"),
        ("schedule", "x" * 500, "expected a comparison or a range such as at most 36, or a name, "
         "got a text of 500 characters"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_says_what_would(name, value, told, refused):
    refused(QuantityError, told, lambda: expectation(name, value))


def test_an_unknown_figure_says_the_nearest_and_stands_at_its_key(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text(dump(timed(2)) + "expect:\n  makespn: at most 1 s\n  bubble: {0: at most 1 %}\n")
    with pytest.raises(ScenarioError) as caught:
        load_request(file)
    first, second = caught.value.problems
    line = file.read_text().count("\n") - 1
    assert str(first).startswith(f"{file}:{line}:3: expect.makespn: got 'makespn'; did you mean makespan? Expected")
    assert str(second) == (
        f"{file}:{line + 1}:11: expect.bubble: expected a comparison or a range such as at most 20 %, "
        "got a mapping of 1 key"
    )


@pytest.mark.parametrize("value", [">= 5 us", "> 5 us", ">=5us", "{0: >= 5 MiB}"])
def test_a_sign_that_begins_a_block_of_text_in_yaml_says_so(tmp_path, value):
    file = tmp_path / "a.yaml"
    file.write_text(dump(timed(2)) + f"expect:\n  peak: {value}\n")
    with pytest.raises(ScenarioError, match="which YAML takes for a block of text: write"):
        load_request(file)


def test_a_written_scenario_expects_the_same(tmp_path):
    wanted = {"makespan": ">= 1 us", "peak": {"0": "at most 1 GiB"}, "time_steps": 12, "throughput": "1..2 k samples/s"}
    request = Request.from_dict(timed(2) | {"expect": wanted})
    (tmp_path / "b.yaml").write_text(scenario_text(request, tmp_path))
    again = load_request(tmp_path / "b.yaml")
    assert again.options.expect == request.options.expect == request.replace({}).options.expect
    assert again.to_dict()["expect"] == again.options.model_dump()["expect"] == wanted


def test_every_figure_says_what_it_means():
    assert all(each.meaning and each.name.isidentifier() and each.path for each in FIGURES)


def test_a_suggested_scenario_expects_nothing_of_the_given_one(tmp_path):
    file = tmp_path / "a.yaml"
    text = dump(timed(2) | {"expect": {"makespan": "at most 1 s"}, "seed": 3})
    file.write_text(text)
    suggested = suggested_text(SimpleNamespace(changes={}), read_source(file))
    assert "expect" not in suggested
    assert "seed: 3" in suggested
