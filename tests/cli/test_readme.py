"""Every block of the pages runs, every link leads somewhere, and what they say is so."""

from __future__ import annotations

import re
import shlex
import tomllib
from unittest import mock

import pytest
from ruamel.yaml import YAML

from ipusim.app.cli import app
from ipusim.app.fidelity.throughput_rows import read_throughputs
from ipusim.app.fidelity.throughputs import prepare
from ipusim.app.scenario import load_job
from ipusim.runs.request.schema import json_schema
from ipusim.runs.yaml_text import dump
from ipusim.schedules import registry
from reports.scenario_keys import sections
from reports.scenario_page import anchor
from tests.cli.commands import ipusim
from tests.cli.pages import PAGES, ROOT, all_blocks, blocks, commands
from tests.effort import draws_everything, runs_slowest, slowest
from tests.scenarios import timed

README, SCENARIOS, PROGRAMS = (
    PAGES[name] for name in ("README.md", "scenarios/README.md", "scenarios/python/README.md")
)
#: The section on schedules of one's own.
OWN = SCENARIOS.split("## A schedule of your own")[1].split("\n## ")[0]
#: The commands of each console block: of those that go on with what an earlier one has written, and of the others.
_CONSOLE = [
    commands(f"```console\n{block}```\n") for text in (README, SCENARIOS, PROGRAMS) for block in blocks(text, "console")
]
DIGITS = "scenarios/digits_training.yaml"
#: The command that takes longest and writes nothing: it runs once for all tests.
VALIDATE = "ipusim validate"
#: What digits are trained on for where not every step is: seven trainings to their end are for ``--every``.
ON_DIGITS = ("run", "compare", "sweep")
TWO_STEPS, ONE_UPDATE = (("--set", "steps=2"), ("--set", "steps=1", "--set", "pipeline.repeat_count=1"))
#: Words by default behind those of commands that begin so, which take less time then: their own tests try them whole.
LESS = {
    "suggest scenarios/zero_bubble.yaml --order": (
        *("--seconds", "0.1", "--schedules", "1f1b", "--set", "pipeline.gradient_accumulation_count=4"),
        *ONE_UPDATE,
    ),
    "suggest": ("--schedules", "grouped", "--recompute", "no", "--offload", "no"),
    "explain reports/best": ("--what", "pipeline.gradient_accumulation_count=80"),
    "explain scenarios/bert_large.yaml": ("--what", "pipeline.gradient_accumulation_count=80"),
    **{
        f"{verb} scenarios/python/step3_pipelining.py": (
            *("--batches-to-accumulate", "4", "--repeat-count", "1"),
            *("--epochs", "0.1"),
        )
        for verb in ("run", "import")
    },
}
WALKS = [block for block in _CONSOLE if any("reports/" in command for command in block)]
SINGLY = [block for block in _CONSOLE if block not in WALKS]
#: The kinds of block of each page; a test runs every one of them.
KINDS = {
    "CONTRIBUTING.md": {"bash"},  # the first half of the README's command
    "README.md": {"bash", "console", "yaml", "text"},
    "scenarios/README.md": {"console", "csv", "python", "yaml"},
    "scenarios/python/README.md": {"console", "python"},
    "ipusim/README.md": {"text"},
    "tests/mutations/README.md": {"sh"},  # which run the whole suite
    "tests/replay/README.md": {"sh"},  # which record into files outside of the checkout
    "reports/accumulation_sweep.md": {"console"},
    "reports/explanation.md": {"console"},
    "reports/gallery.md": {"console"},
    "reports/memory_by_schedule.md": {"console"},
    "reports/selection_orders.md": {"console"},
    "reports/scenario.md": {"console", "yaml"},
    "reports/schedules.md": {"console"},
    "reports/suggested_plan.md": {"console"},
}


def test_every_block_is_of_a_kind_that_is_tested():
    assert {
        name: {kind for kind, _ in all_blocks(text)} for name, text in PAGES.items() if all_blocks(text)
    } == KINDS, "a page has blocks of a new language: add it to KINDS, and a test that runs them"


def test_the_readme_is_a_page():
    size = len(README.encode())
    assert size <= 9 * 1024, f"README.md has {size - 9 * 1024} bytes too many: move details to scenarios/README.md"


def shortened(words):
    """Return a command's words with those that make it take less time: see ``LESS``."""
    if not draws_everything() and words[0] in ON_DIGITS and {*words} & {DIGITS, "best.yaml"}:
        words = [*words, *(TWO_STEPS if runs_slowest() else ONE_UPDATE)]
    if not runs_slowest():
        words = [*words, *next((less for begin, less in LESS.items() if " ".join(words).startswith(begin)), ())]
    return words


def tried(command, workspace):
    """Run a command of a page here, on one core: that sweeps run on several is tested in ``test_sweep``."""
    program, *words = shlex.split(command)
    assert program == "ipusim"
    with mock.patch("joblib.cpu_count", return_value=1):
        done = ipusim(*shortened(words), cwd=workspace, columns=None)
    assert done.returncode == 0, done.stderr
    assert done.stdout or "--quiet" in words
    if words[0] in ("run", "compare"):
        assert list((workspace / "reports").glob("*/*.png"))
    return done.stdout


def test_each_command_that_is_shortened_is_on_a_page():
    shown = [command.removeprefix("ipusim ") for block in (*SINGLY, *WALKS) for command in block]
    assert all(any(command.startswith(begin) for command in shown) for begin in LESS)


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize("command", [command for block in SINGLY for command in block if command != VALIDATE])
def test_command(workspace, command):
    tried(command, workspace)


def test_the_command_that_takes_longest(validate):
    assert (validate.done.args, validate.done.returncode) == (shlex.split(VALIDATE), 0)
    assert validate.done.stdout


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk[0])
def test_a_walk_leads_to_its_end(workspace, walk):
    assert len(walk) < 10, "a walk on a page has ten commands or more: shorten it"
    for command in walk:
        tried(command, workspace)


def test_every_command_is_listed_and_tried():
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    table = README.split("| command | what it does |")[1].split("\n\n")[0]
    listed = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert listed == names, f"README.md's table of commands: {sorted(listed ^ names)} on one side alone"
    assert {command.split()[1] for block in (*SINGLY, *WALKS) for command in block} == names, (
        "show each command in a console block of README.md or scenarios/README.md"
    )


def test_what_a_scenario_may_have_and_expect_is_read_and_the_workflow_calls_the_test(tmp_path):
    disturbed, wanted, workflow = blocks(SCENARIOS, "yaml")
    (tmp_path / "disturbed.yaml").write_text(dump(timed(4)) + disturbed)
    said = YAML(typ="safe").load(disturbed)["disturbances"]
    assert len(load_job(tmp_path / "disturbed.yaml", ["system.name=m2000"]).request.options.disturbances) == len(
        said
    ), "the page shows disturbances that a scenario does not take"
    (tmp_path / "mine.yaml").write_text(dump(timed(2)) + wanted)
    assert len(load_job(tmp_path / "mine.yaml").request.options.expect) == 7, (
        "the page shows seven expectations: count a new one here"
    )
    steps = YAML(typ="safe").load(workflow)["jobs"]["plans"]["steps"]
    assert steps[-1]["run"].split()[:2] == ["ipusim", "test"]


def test_each_python_block_has_its_test():
    found = sum(len(blocks(text, "python")) for text in PAGES.values())
    assert found == 3, f"{found} Python blocks on the pages, three of which run below: add a test that runs a new one"


def test_the_scenario_explained_runs(workspace):
    (text,) = blocks(README, "yaml")
    (workspace / "mine.yaml").write_text(text)
    experiment = load_job(workspace / "mine.yaml")
    description = experiment.request.description
    first = "Two lines at the top say what the scenario shows; `ipusim run` prints them, and the first sentence is the "
    assert description == f"{first}title of its pictures."
    assert experiment.executions == 100
    assert experiment.held_out is not None


@pytest.fixture
def run_block(workspace, monkeypatch, capsys):
    """Return a function that runs the one Python block of a page that has a word; it returns what that prints.

    It runs here, where warnings are errors too, with a register of schedules of its own.
    """
    monkeypatch.chdir(workspace)

    def run(text, with_word):
        (block,) = [block for block in blocks(text, "python") if with_word in block]
        with mock.patch.dict(registry._SCHEDULES):
            exec(compile(block, "<block>", "exec"), {"__name__": "__main__"})
        return capsys.readouterr().out

    return run


def test_the_lines_for_a_notebook_run_anywhere(run_block):
    run_block(SCENARIOS, "import ipusim\n")


def test_the_lines_that_install_the_names_run_anywhere(run_block):
    assert not run_block(PROGRAMS, "ipusim.ipu.install")


def test_the_schedule_of_ones_own_runs(run_block):
    printed = run_block(SCENARIOS, "@schedule")
    assert "  0  F0.0 | .\n" in printed
    stages, count, forward, backward = 4, 8, 1000, 2000
    assert printed.splitlines()[-1] == str((count + stages - 1) * (forward + backward))


def test_a_scenario_takes_the_schedule_of_ones_own_and_one_that_is_printed_from_files(workspace):
    (block,) = [block for block in blocks(SCENARIOS, "python") if "@schedule" in block]
    (workspace / "mine.py").write_text(block.partition("show(mine")[0])
    (workspace / "four.yaml").write_text((ROOT / "scenarios" / "schedules_four_ipus.yaml").read_text())
    (command,) = re.findall(r"`ipusim (schedule .*?)` prints one", OWN)
    (workspace / "file.csv").write_text(ipusim(*shlex.split(command)).stdout)
    plans = []
    for name in re.findall(r"`schedule: (\S+)`", OWN):
        assert ipusim("check", "four.yaml", "--set", f"pipeline.schedule={name}", cwd=workspace).returncode == 0
        plans.append(load_job(workspace / "four.yaml", [f"pipeline.schedule={name}"]).plan)
    assert [(plan.schedule, plan.fifo_depths) for plan in plans] == [
        ("mine", (7, 7, 7, 7)),
        ("file.csv", (3, 2, 1, 0)),
    ]


def test_the_measured_stages_are_taken_as_the_page_says(workspace):
    text, _ = blocks(SCENARIOS, "csv")
    (name,) = re.findall(r"`cycles: (\w+\.csv)`", SCENARIOS)
    (workspace / name).write_text(text)
    tutorial = (ROOT / "scenarios" / "tutorial_step3_pipelining.yaml").read_text()
    (workspace / "mine.yaml").write_text(tutorial)
    (listed,) = re.findall(r"`stages: (\w+\.csv)`", SCENARIOS)
    (workspace / "own.yaml").write_text(
        f"system: {{name: m2000}}\npipeline: {{stages: {listed}, gradient_accumulation_count: 8}}\n"
    )
    for path, changes in (
        ("mine.yaml", [f"pipeline.cycles={name}"]),
        (name, ["system.name=m2000"]),
        ("own.yaml", []),
    ):
        first, second = load_job(workspace / path, [*changes, "system.clock=1 GHz"]).program.stages
        assert (first.forward, first.backward, first.update) == (1_125_000, 2_300_000, 40_000)
        assert (second.forward, second.backward, second.update) == (980_000, 2_010_000, 30_000)
        if path != "mine.yaml":
            assert (first.output_bytes, second.gradient_bytes) == (655_360, 655_360)


def test_the_throughputs_are_taken_as_the_page_says(workspace):
    _, text = blocks(SCENARIOS, "csv")
    (workspace / "rows.csv").write_text(text)
    cut = (ROOT / "scenarios" / "tutorial_step4_configurable_stages.yaml").read_text()
    (workspace / "mine.yaml").write_text(cut)
    published, own = read_throughputs(workspace / "rows.csv")
    assert published.scenario.name == "bert_large.yaml"
    assert prepare(own).jobs[0].program.schedule == "1f1b"
    assert own.settings == ("pipeline.schedule=1f1b", "precision=float16")


def test_rows_of_how_to_add_fit_two_lines():
    """A row that does not says what belongs into the docstring of the module that it names."""
    rows = [line for line in PAGES["ipusim/README.md"].splitlines() if line.startswith("| ")]
    long = [row[:50] for row in rows if len(row) > 240]
    assert long == [], "shorten these rows of ipusim/README.md: their detail belongs into a docstring"


def test_every_file_and_folder_of_tests_that_contributors_are_sent_to_exists():
    named = re.findall(r"`(tests/[\w/.]+)`", PAGES["CONTRIBUTING.md"])
    assert named, "no file is found on the page: look at the pattern above"
    missing = [name for name in named if not (ROOT / name).exists()]
    assert missing == [], "correct CONTRIBUTING.md"


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


@pytest.mark.parametrize("name", PAGES)
def test_links_and_pictures_exist(name):
    targets = re.findall(r"\]\(([^)]+)\)", PAGES[name])
    for target in targets:
        if target.startswith("https://"):
            continue
        path, _, place = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        assert file.exists(), target
        if place:
            headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            assert place in map(anchor, headings), target


def test_pages_lead_to_all_others():
    """From the README every page can be reached by links."""
    seen, ahead = set(), ["README.md"]
    while ahead:
        name = ahead.pop()
        seen.add(name)
        for target in re.findall(r"\]\(([^)#]+\.md)", PAGES[name]):
            found = str(((ROOT / name).parent / target).resolve().relative_to(ROOT))
            if found not in seen:
                ahead.append(found)
    assert seen == set(PAGES), f"link to {sorted(set(PAGES) - seen)} from a page"


def test_the_page_of_scenarios_lists_every_one_and_every_layer():
    for path in (ROOT / "scenarios").glob("*.yaml"):
        assert f"]({path.name})" in SCENARIOS, f"add a row of {path.name} to scenarios/README.md"
    kinds = sections(json_schema())["model.layers[]"].keys["type"]["x-names"]
    table = SCENARIOS.split("| layers | `type` |")[1].split("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", table)) == {*kinds, "from"}


def test_keys_that_the_page_of_scenarios_names_exist():
    """Each word in code is a key, with or without its mapping and a value, or one of a key's choices."""
    found = sections(json_schema()).values()
    known = {key for section in found for key in section.keys}
    choices = set(re.findall(r"'x-names': \[(.*?)\]", str([section.keys for section in found])))
    known |= {name.strip("' ") for names in choices for name in names.split(",")}
    text = SCENARIOS.split("## What a scenario says")[1].split("| layers |")[0]
    named = re.findall(r"`(?:\w+\.)*(\w+)(?:: [^`]+)?`", text)
    assert len(named) > 40, "hardly any key is found on the page: look at the pattern above"
    assert set(named) <= known


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize("steps", [1, pytest.param(10, marks=slowest)])
def test_the_first_command_prints_what_the_readme_shows_and_draws_the_trace(workspace, steps):
    """Time is that of one weight update, however many there are: the first step says all but the last's loss.

    That what such a run draws is a picture is looked at in ``test_command_line``.
    """
    command = blocks(README, "bash")[0].partition(".venv/bin/ipusim ")[2]
    (shown,) = blocks(README, "text")
    fewer = () if steps == 10 else ("--set", "steps=1")
    done = ipusim(*shlex.split(command), *fewer, cwd=workspace, columns="100")
    assert done.returncode == 0, done.stderr
    assert (workspace / re.search(r"draws the trace in `(.+?)`", README).group(1)).exists()
    lines = shown.splitlines()
    if fewer:  # the lines of the loss are broken elsewhere
        learned = " ".join(" ".join(lines[-2:]).split()).replace(" in the first step, 0.0058 in the last of 10", "")
        assert learned.startswith("mean loss 1.9551; ")
        assert learned in " ".join(done.stdout.split())
        del lines[-2:]
    assert "\n".join(lines) in "\n".join(line.rstrip() for line in done.stdout.splitlines())


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


@pytest.mark.parametrize(("page", "least"), [("README.md", 25), ("app/README.md", 20), ("ipu/README.md", 20)])
def test_places_that_the_pages_of_the_package_name_exist(page, least):
    named = re.findall(r"`([\w/]+(?:/|\.py))`", PAGES[f"ipusim/{page}"])
    assert len(named) > least, f"hardly any place is found on {page}: look at the pattern above"
    folders = [ROOT / "ipusim", ROOT, (ROOT / "ipusim" / page).parent]
    for place in named:
        assert any((folder / place).exists() for folder in folders), place
