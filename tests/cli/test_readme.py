"""Every block of the pages runs, and what they say is so."""

import re
import tomllib
from unittest import mock

import pytest
from ruamel.yaml import YAML

from ipusim.app.fidelity.throughput_rows import read_throughputs
from ipusim.app.fidelity.throughputs import prepare
from ipusim.app.scenario import load_job
from ipusim.runs.yaml_text import dump
from ipusim.schedules import registry
from reports.outputs import named_files, pages
from tests.cli.pages import PAGES, ROOT, all_blocks, blocks
from tests.scenarios import timed

README, SCENARIOS = (PAGES[name] for name in ("README.md", "scenarios/README.md"))
#: The pages whose blocks run: see ``test_shown`` for those of commands and outputs.
SHOWING = pages()
#: The kinds of block of these pages.
RUN = {"bash", "console", "csv", "python", "text", "yaml"}
#: The kinds of block of each other page; a test runs every one of them.
KINDS = {
    "CONTRIBUTING.md": {"bash"},  # the first half of the README's command
    "ipusim/README.md": {"text"},
    "tests/replay/README.md": {"sh"},  # which record into files outside of the checkout
    "reports/accumulation_sweep.md": {"console"},
    "reports/explanation.md": {"console"},
    "reports/gallery.md": {"console"},
    "reports/memory_by_schedule.md": {"console"},
    "reports/selection_orders.md": {"console"},
    "reports/scenario.md": {"console", "yaml"},
    "reports/schedules.md": {"console"},
    "reports/suggested_plan.md": {"console"},
    "reports/teaching.md": {"console"},
}


def in_language(language):
    """Return page, number and content of every block of these pages in a language."""
    found = [(page, content) for page, text in SHOWING.items() for content in blocks(text, language)]
    return [pytest.param(page, content, id=f"{page}-{number}") for number, (page, content) in enumerate(found)]


def test_every_block_is_of_a_kind_that_is_tested():
    kinds = {name: {kind for kind, _ in all_blocks(text)} for name, text in PAGES.items() if all_blocks(text)}
    assert set().union(*(kinds.pop(name, set()) for name in SHOWING)) <= RUN
    assert kinds == KINDS, "a page has blocks of a new language: add it to KINDS, and a test that runs them"


def test_the_readme_is_a_page():
    size = len(README.encode())
    assert size <= 9 * 1024, f"README.md has {size - 9 * 1024} bytes too many: move details to scenarios/how_to.md"


@pytest.mark.parametrize(("page", "text"), in_language("yaml"))
def test_a_block_of_yaml_is_taken(page, text, tmp_path):
    """As a scenario, as part of one with timed stages, or as a workflow that calls the test."""
    said = YAML(typ="safe").load(text)
    if "jobs" in said:
        (job,) = said["jobs"].values()
        assert job["steps"][-1]["run"].split()[:2] == ["ipusim", "test"]
        return
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    for name, content in named_files(SHOWING[page]).items():
        (tmp_path / name).write_text(content)
    mine, is_whole = tmp_path / "mine.yaml", "pipeline" in said
    mine.write_text(text if is_whole else dump(timed(4)) + text)
    options = load_job(mine, () if is_whole else ["system.name=m2000"]).request.options
    for key in ("disturbances", "expect"):
        assert len(getattr(options, key) or ()) == len(said.get(key) or ()), f"{page}: {key} has more than is taken"


@pytest.fixture
def run_block(workspace, monkeypatch, capsys):
    """Return a function that runs a Python block of a page and returns what that prints.

    It runs here, where warnings are errors too, with a register of schedules of its own.
    """
    monkeypatch.chdir(workspace)

    def run(block):
        with mock.patch.dict(registry._SCHEDULES):
            exec(compile(block, "<block>", "exec"), {"__name__": "__main__"})
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize(("page", "text"), in_language("python"))
def test_a_block_of_python_runs_anywhere(page, text, run_block, workspace):
    for name, content in named_files(SHOWING[page]).items():
        (workspace / name).write_text(content)
    printed = run_block(text)
    if "ipusim.ipu.install" in text:
        assert printed == ""
    if "@schedule" not in text:
        return
    assert "  0  F0.0 | .\n" in printed
    stages, count, forward, backward = 4, 8, 1000, 2000
    assert printed.splitlines()[-1] == str((count + stages - 1) * (forward + backward))


@pytest.mark.parametrize(("page", "text"), in_language("csv"))
def test_a_table_is_taken(page, text, workspace):
    """As measured stages, or as throughputs."""
    tutorial = (ROOT / "scenarios" / "tutorial_step3_pipelining.yaml").read_text()
    if text.startswith("model,"):
        (workspace / "rows.csv").write_text(text)
        cut = (ROOT / "scenarios" / "tutorial_step4_configurable_stages.yaml").read_text()
        (workspace / "mine.yaml").write_text(cut)
        for row in read_throughputs(workspace / "rows.csv"):
            assert row.scenario.name in ("bert_large.yaml", "mine.yaml")
            assert row.scenario.name == "bert_large.yaml" or prepare(row).jobs[0].program.schedule == "1f1b"
        return
    assert text.startswith("stage,"), f"{page}: a table of something new: test it"
    (workspace / "times.csv").write_text(text)
    (workspace / "mine.yaml").write_text(tutorial)
    (workspace / "own.yaml").write_text(
        "system: {name: m2000}\npipeline: {stages: times.csv, gradient_accumulation_count: 8}\n"
    )
    for path, changes in (
        ("mine.yaml", ["pipeline.cycles=times.csv"]),
        ("times.csv", ["system.name=m2000"]),
        ("own.yaml", []),
    ):
        first, second = load_job(workspace / path, [*changes, "system.clock=1 GHz"]).program.stages
        if "1.125" not in text:
            continue
        assert (first.forward, first.backward, first.update) == (1_125_000, 2_300_000, 40_000)
        assert (second.forward, second.backward, second.update) == (980_000, 2_010_000, 30_000)
        if path != "mine.yaml":
            assert (first.output_bytes, second.gradient_bytes) == (655_360, 655_360)


def test_rows_of_how_to_add_fit_two_lines():
    """A row that does not says what belongs into the docstring of the module that it names."""
    rows = [line for line in PAGES["ipusim/README.md"].splitlines() if line.startswith("| ")]
    long = [row[:50] for row in rows if len(row) > 240]
    assert long == [], "shorten these rows of ipusim/README.md: their detail belongs into a docstring"


def test_setup_commands_name_extras_that_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    first, second = blocks(README, "bash")
    (contributors,) = blocks(PAGES["CONTRIBUTING.md"], "bash")
    for command in (first, second, contributors):
        (extra,) = re.findall(r"'\.\[(\w+)\]'", command)
        assert extra in extras
    assert "ipusim run scenarios/tutorial_step3_pipelining.yaml" in first
    assert "python -m tests" in second


def test_type_checkers_find_the_annotations_of_an_installed_package():
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    for pattern in packaged["ipusim"]:
        assert list((ROOT / "ipusim").glob(pattern)), pattern
    assert "py.typed" in packaged["ipusim"]


def test_the_page_of_scenarios_lists_every_one():
    for path in (ROOT / "scenarios").glob("*.yaml"):
        assert f"]({path.name})" in SCENARIOS, f"add a row of {path.name} to scenarios/README.md"


def contract(name):
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return next(contract for contract in contracts if contract["name"] == name)["layers"]


@pytest.mark.parametrize(
    ("page", "folder", "name"),
    [
        ("ipusim/README.md", "ipusim", "Imports point down"),
        ("ipusim/app/README.md", "ipusim/app", "Rooms of the application"),
    ],
)
def test_pages_name_every_room_in_the_order_of_the_contract(page, folder, name):
    layers = [re.findall(r"\w+", layer.replace("ipusim.", "")) for layer in contract(name)]
    ordered = [room for layer in layers for room in layer if room != "__main__"]
    table = PAGES[page].split("| room | what it knows |")[1].split("\n\n")[0]
    rooms = re.findall(r"`(\w+)(?:/|\.py)`", "".join(row.split("|")[1] for row in table.splitlines() if row))
    assert rooms == ordered, f"{page}: order its table as the contract in pyproject.toml"
    package = ROOT / folder
    there = {path.parent.name for path in package.glob("*/__init__.py")} | {path.stem for path in package.glob("*.py")}
    assert set(rooms) == there - {"__init__", "__main__"}, f"{page}: a row for each folder and module"


@pytest.mark.parametrize(
    ("page", "least"),
    [("ipusim/README.md", 25), ("ipusim/app/README.md", 20), ("ipusim/ipu/README.md", 20), ("CONTRIBUTING.md", 0)],
)
def test_places_that_pages_of_the_code_name_exist(page, least):
    named = re.findall(r"`([\w/]+(?:/|\.py))`", PAGES[page])
    assert len(named) > least, f"hardly any place is found on {page}: look at the pattern above"
    folders = [ROOT / "ipusim", ROOT, (ROOT / page).parent]
    for place in named:
        assert any((folder / place).exists() for folder in folders), place
