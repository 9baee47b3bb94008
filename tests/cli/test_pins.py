"""``ipusim test`` and its pins, and ``expect`` as ``run`` and ``check`` tell it: what is written, told, and the end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ipusim.app.regression import suite
from ipusim.runs.yaml_text import dump
from tests.cli.commands import HEEDING, answer, ipusim, refusal
from tests.effort import rarest
from tests.scenarios import timed


def written(folder: Path, name: str = "a", **more: object) -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(dump(timed(2) | more))
    return file


def with_schedule(folder: Path, body: str, name: str = "z") -> None:
    """Write a scenario whose schedule is a function with such a body, and expects something."""
    (folder / "mine.py").write_text(f"import os, time\ndef f(shape):\n    {body}\n")
    data = timed(2)
    data["pipeline"]["schedule"] = "mine.py:f"
    (folder / f"{name}.yaml").write_text(dump(data | {"expect": {"executions": 1}}))


@pytest.fixture
def in_process(monkeypatch):
    """Hold scenarios in this process, where a test looks at outcomes: a worker of its own takes 1.5 s to begin."""
    monkeypatch.setattr(suite, "side_by_side", lambda function, calls, *_, **__: (function(*each) for each in calls))


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def changed_pin(folder: Path, **changes: object) -> None:
    file = folder / "a.pin.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_pin_is_the_same_bytes_again_and_holds(tmp_path):
    file = written(tmp_path, expect={"slowest_stage": "s0"})
    done = answer("test", "--pin", file)
    pin = tmp_path / "a.pin.json"
    assert done == f"{pin}: written, {pin.stat().st_size / 1000:.1f} kB\n"
    before = pin.read_bytes()
    assert len(before) < 10_000
    assert max(map(len, before.decode().splitlines())) <= 140
    assert ipusim("test", "--pin", file).stdout == f"{pin}: as it was\n"
    done = answer("test", tmp_path)
    first, last = done.splitlines()
    assert first.startswith(f"held        {file}: 1 expectation and pin, ")
    assert last == "1 held, of 1 scenario"
    assert pin.read_bytes() == before


@pytest.mark.usefixtures("in_process")
def test_what_differs_first_and_why_is_told_and_update_takes_it(tmp_path):
    file = written(tmp_path)
    ipusim("test", "--pin", file)
    data = timed(2)
    data["pipeline"]["stages"][1]["forward"] = 1500
    file.write_text(dump(data | {"expect": {"time_steps": 1}}))
    results = tmp_path / "results.xml"
    done = ipusim("test", tmp_path, "--junit", results)
    assert (done.returncode, done.stderr) == (1, "")
    assert [line.strip() for line in done.stdout.splitlines()[1:]] == [
        "missed  time_steps: 12, expected 1",
        "price: forward of s1 was 1,000 cycles, is 1,500 (and 1 more)",
        "forward of s1: law 'given' was 1000 = 1000, is 1500 = 1500",
        "all rates are the same: the priced work differs, or the law reads different numbers of the work",
        "the scenario sets pipeline.stages.s1.forward: 1,500, was 1,000",
        "the time per weight update was 24.27 us, is 27.28 us",
        "0 held, 1 missed, of 1 scenario",
    ]
    suite = ElementTree.fromstring(results.read_bytes())
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "1", "0")
    assert suite.find("testcase/failure").get("message") == "missed  time_steps: 12, expected 1"
    (told,) = json.loads(ipusim("test", file, "--json").stdout)
    assert (told["result"], told["difference"]["what"]) == ("missed", "price")
    assert told["expectations"] == [{"figure": "time_steps", "expected": 1, "value": 12, "met": False}]
    data["pipeline"]["stages"][1]["forward"] = 1500
    file.write_text(dump(data))
    assert "price: forward of s1" in answer("test", tmp_path, "--update")
    assert ipusim("test", tmp_path).returncode == 0
    assert ipusim("test", tmp_path, "--junit", results).returncode == 0


@pytest.mark.usefixtures("in_process")
def test_an_older_pin_says_that_the_rule_of_causes_changed(tmp_path):
    """Where times are equal; else the first difference is told as of any pin."""
    file = written(tmp_path)
    ipusim("test", "--pin", file)
    pin = json.loads((tmp_path / "a.pin.json").read_text())
    spans = pin["spans"]
    first = [spans["first"][1], spans["first"][0], *spans["first"][2:]]
    changed_pin(tmp_path, format_version=1, spans={**spans, "first": first})
    done = ipusim("test", file)
    assert done.returncode == 1
    assert "order: spans have another order by a new rule, times are equal: renew the pin with --update" in done.stdout
    changed_pin(tmp_path, time={**pin["time"], "makespan_cycles": 1})
    assert "time: makespan_cycles was 1, is " in (told := ipusim("test", file).stdout)
    assert "new rule" not in told
    changed_pin(tmp_path, time=pin["time"])
    assert ipusim("test", file, "--update").returncode == 0
    assert json.loads((tmp_path / "a.pin.json").read_text()) == pin
    changed_pin(tmp_path, spans={**spans, "first": first})  # of this version: the machine would have to run otherwise
    assert "time: span 0 was " in ipusim("test", file).stdout


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda at: changed_pin(at, scenario="b"), "expected the pin of a, got the pin of 'b'"),
        (lambda at: changed_pin(at, format_version=3), "expected version 2 of the format, got 3"),
        (lambda at: changed_pin(at, plan={"0": []}), "got a damaged one: plan 0 is not a mapping"),
        (lambda at: changed_pin(at, more=1), "got a damaged one: the pin lacks the keys"),
        (lambda at: changed_pin(at, time={"makespan_cycles": 1.5}), "got a damaged one: time makespan_cycles has"),
        (lambda at: (at / "a.pin.json").write_text("{"), "got a file without valid JSON"),
        (lambda at: (at / "a.pin.json").write_text("[" * 100_000), "got a file without valid JSON"),
        (lambda at: (at / "a.pin.json").write_text("[]"), "got other JSON"),
        (lambda at: (at / "a.pin.json").write_bytes(b" " * (2 << 20)), "expected a file of at most 1 MiB"),
        (lambda at: (at / "a.yaml").rename(at / "b.yaml"), "expected the scenario of this pin in the same folder"),
        (lambda at: [(at / name).unlink() for name in ("a.yaml", "a.pin.json")], "expected a folder of scenarios"),
        (lambda at: written(at, expect={"makespan": "2 ms..1 ms"}), "expected the smaller bound first"),
        (lambda at: written(at, expect={"mean_loss": "at most 1"}), "got mean_loss: numerics are off"),
        (lambda at: [(at / "a.pin.json").unlink(), (at / "a.pin.json").mkdir()], "expected a file, got a folder"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_message_and_nothing_is_written(tmp_path, make, told):
    ipusim("test", "--pin", written(tmp_path))
    make(tmp_path)
    before = everything(tmp_path)
    done = ipusim("test", tmp_path)
    assert done.returncode == 2
    assert sum(told in line for line in (done.stdout + done.stderr).splitlines()) == 1
    assert everything(tmp_path) == before


def test_a_pin_is_written_over_a_pin_alone(tmp_path):
    file = written(tmp_path)
    (tmp_path / "a.pin.json").write_text('{"mine": 1}')
    assert "expected no file, or a pin written by ipusim, got another file" in refusal("test", "--pin", file)
    assert (tmp_path / "a.pin.json").read_text() == '{"mine": 1}'


@pytest.mark.usefixtures("in_process")
def test_one_mistake_keeps_all_pins_as_they_are(tmp_path):
    file, other = written(tmp_path), written(tmp_path, "b", steps=0)
    assert f"{other}:" in refusal("test", "--pin", file, other)
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.usefixtures("in_process")
def test_no_pin_is_written_of_a_scenario_that_misses_what_it_expects(tmp_path):
    file, other = written(tmp_path, expect={"time_steps": 1}), written(tmp_path, "b")
    done = ipusim("test", "--pin", file, other, "--workers", 1)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[1:] == [
        "            missed  time_steps: 12, expected 1",
        f"{tmp_path / 'b.pin.json'}: written, {(tmp_path / 'b.pin.json').stat().st_size / 1000:.1f} kB",
        f"{tmp_path / 'a.pin.json'}: not written, because the run is not as expected",
    ]
    assert not (tmp_path / "a.pin.json").exists()
    other.write_text(dump(timed(4) | {"expect": {"time_steps": 1}}))
    before = everything(tmp_path)
    done = ipusim("test", "--update", other)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.endswith(f"{tmp_path / 'b.pin.json'}: not written, because the run is not as expected\n")
    assert everything(tmp_path) == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "--pin: expected scenarios, YAML files, with this option, got none"),
        (("a.yaml", "--update"), "--update: expected either this option or --pin, got both"),
        (("a.yaml", "--junit", "a.xml"), "--junit: expected either this option or --pin, got both"),
        ((".",), ".: expected a scenario file, got a folder"),
    ],
)
def test_pins_are_made_of_scenarios_alone_with_no_test_beside(tmp_path, words, told):
    written(tmp_path)
    before = everything(tmp_path)
    assert refusal("test", "--pin", *words, cwd=tmp_path) == f"{told}\n"
    assert everything(tmp_path) == before


@pytest.mark.usefixtures("in_process")
def test_results_are_written_over_results_alone(tmp_path):
    file, mine = written(tmp_path, expect={"time_steps": 12}), tmp_path / "mine.xml"
    mine.write_text("<mine/>")
    done = ipusim("test", file, "--junit", mine)
    assert (done.returncode, mine.read_text()) == (2, "<mine/>")
    assert "expected no file, or results written by ipusim, got another file" in done.stderr
    done = ipusim("test", file, "--junit", tmp_path / "a.json")
    assert (done.returncode, "--junit: expected a file named .xml" in done.stderr) == (2, True)


@pytest.mark.usefixtures("without_charts")
@pytest.mark.usefixtures("in_process")
def test_the_scenario_in_the_folder_of_a_run_is_none_of_them(tmp_path):
    file = written(tmp_path, expect={"time_steps": 12})
    ipusim("run", file, "--out", tmp_path / "run", "--quiet")
    assert ipusim("test", tmp_path).stdout.splitlines()[1:] == ["1 held, of 1 scenario", "no pin: 1 scenario"]


@rarest
def test_a_worker_that_is_ended_loses_nothing_that_was_done(tmp_path):
    for name in ("a", "b"):
        written(tmp_path, name, expect={"time_steps": 12})
    with_schedule(tmp_path, f"if os.getpid() != {os.getpid()}: time.sleep(3); os.kill(os.getpid(), 9)")
    done = ipusim("test", tmp_path, "--workers", "2", "--junit", tmp_path / "r.xml")
    assert done.returncode == 2
    *lines, last, unpinned = done.stdout.splitlines()
    assert unpinned == "no pin: 3 scenarios"
    assert [line.partition(" ")[0] for line in lines] == ["held", "held", "unfinished"]
    assert last == "2 held, 1 unfinished, of 3 scenarios"
    assert ElementTree.fromstring((tmp_path / "r.xml").read_bytes()).get("errors") == "1"


@pytest.mark.parametrize("names", [("a",), ("a", "z")])
def test_a_schedule_that_ends_its_process_is_a_failure(tmp_path, names):
    """One scenario has no worker beside it, and one worker of several takes the rest with it."""
    for name in names:
        with_schedule(tmp_path, "os._exit(0)", name)
    words = [sys.executable, "-m", "ipusim", "test", ".", "--workers", "1"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = " ".join(done.stdout.split())
    assert done.returncode == 2
    for name in names:
        assert (
            f"unfinished {name}.yaml: not done: a worker process ended early, by code of a scenario or from outside"
            in said
        )
    assert f"0 held, {len(names)} unfinished, of {len(names)} scenario" in said


@pytest.mark.usefixtures("in_process")
def test_a_link_in_place_of_a_pin_is_the_failure_of_its_scenario_alone(tmp_path):
    for name in ("a", "b"):
        written(tmp_path, name, expect={"time_steps": 12})
    (tmp_path / "b.pin.json").symlink_to("none.json")
    done = ipusim("test", tmp_path)
    assert done.returncode == 2
    assert "b.pin.json: expected a file, got a link" in done.stdout
    assert "1 held, 1 with a mistake, of 2 scenarios" in done.stdout


@pytest.mark.usefixtures("in_process")
def test_scenarios_without_a_pin_are_counted_also_those_that_expect_nothing(tmp_path):
    for name in ("a", "b", "c"):
        written(tmp_path, name, **({"expect": {"time_steps": 12}} if name == "a" else {}))
    ipusim("test", "--pin", tmp_path / "b.yaml", tmp_path / "c.yaml")
    (tmp_path / "rates.yaml").write_text("amp_ceiling: 0.9\n")
    assert ipusim("test", tmp_path).stdout.splitlines()[-2:] == ["3 held, of 3 scenarios", "no pin: 1 scenario"]
    (tmp_path / "c.pin.json").unlink()
    assert ipusim("test", tmp_path).stdout.splitlines()[-2:] == ["2 held, of 2 scenarios", "no pin: 2 scenarios"]


def test_an_interrupt_loses_nothing_that_was_done(tmp_path):
    for name in ("a", "b"):
        written(tmp_path, name, expect={"time_steps": 12})
    with_schedule(tmp_path, "time.sleep(600)")
    words = [sys.executable, "-u", "-m", "ipusim", "test", ".", "--workers", "2", "--junit", "r.xml"]
    with subprocess.Popen([*HEEDING, *words], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as running:
        first = [running.stdout.readline().partition(" ")[0] for _ in range(2)]
        running.send_signal(signal.SIGINT)
        rest = running.stdout.read()
    assert first == ["held", "held"]
    assert running.returncode == -signal.SIGINT
    assert rest == "2 held, 1 unfinished, of 3 scenarios\n"
    assert ElementTree.fromstring((tmp_path / "r.xml").read_bytes()).get("tests") == "2"


@pytest.fixture
def scenario(tmp_path):
    return lambda **expect: written(tmp_path, expect=expect)


@pytest.mark.usefixtures("without_charts")
def test_run_says_what_is_met_and_what_is_missed_and_ends_with_1(scenario, tmp_path):
    out = tmp_path / "out"
    done = answer("run", scenario(bubble="at most 100 %", slowest_stage="s0"), "--out", out)
    assert "met     slowest_stage: s0 and s1 tie (expected s0)\n" in done
    done = ipusim("run", scenario(bubble="at most 0.01 %", time_steps=1), "--out", out)
    assert (done.returncode, done.stderr) == (1, "")
    bubble = json.loads((out / "summary.json").read_text())["bubble"]["idle_fraction"]
    assert f"missed  bubble: {bubble:.1%}, expected at most 0.01 %, {bubble / 1e-4:.3g} times as much\n" in done.stdout
    assert "missed  time_steps: " in done.stdout
    assert ipusim("run", tmp_path / "a.yaml", "--out", out, "--quiet").returncode == 1
    assert json.loads(ipusim("run", tmp_path / "a.yaml", "--out", out, "--json").stdout)["schema_version"] == 4


def test_check_tells_what_takes_no_run(scenario):
    done = ipusim("check", scenario(bubble="at most 0.01 %", slowest_stage="s0", schedule="gpipe"))
    assert done.returncode == 1
    assert done.stdout.splitlines()[1:] == [
        "Memory: not known: the scenario states no memory of its stages.",
        "met     slowest_stage: s0 and s1 tie (expected s0)",
        "missed  schedule: grouped, expected gpipe",
        "open    bubble: at most 0.01 %, known after a run",
    ]
    assert ipusim("check", scenario(bubble="at most 0.01 %")).returncode == 0


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_figure_that_the_run_has_not_is_a_mistake_of_the_file(scenario, tmp_path, command):
    file = scenario(mean_loss="at most 1", slowest_stage="s00")
    words = ["--out", tmp_path / "out"] if command == "run" else []
    done = ipusim(command, file, *words)
    assert (done.returncode, done.stdout, (tmp_path / "out").exists()) == (2, "", False)
    first, second = done.stderr.splitlines()
    assert first.endswith(
        "expect.mean_loss: expected a figure of this run, got mean_loss: numerics are off, so the run has no losses "
        "and no accuracy"
    )
    assert second.endswith("no stage is named 's00'; did you mean s0?")


@pytest.mark.usefixtures("without_charts")
def test_with_set_it_is_another_scenario_whose_expectations_are_those_that_are_set(scenario, tmp_path):
    file, out = scenario(time_steps=1, mean_loss="at most 1"), tmp_path / "out"
    done = ipusim("run", file, "--out", out, "--set", "steps=2")
    assert (done.returncode, "missed" in done.stdout, done.stderr) == (0, False, "")
    assert "expect" not in (out / "scenario.yaml").read_text()
    assert ipusim("check", file, "--set", "steps=2").returncode == 0
    file = scenario(time_steps=1)
    assert ipusim("check", file, "--set", "steps=2", "--set", "expect.time_steps=12").returncode == 0
    assert ipusim("check", file, "--set", "expect.makespan=at most 1 s").returncode == 1
