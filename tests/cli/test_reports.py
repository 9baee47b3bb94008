"""What `python -m reports` makes is what the folder holds, and what its pages say is so."""

import json
import shlex

import jsonschema
import pytest

import reports.__main__
from ipusim.app.fidelity import products
from ipusim.app.fidelity.micro_benchmarks import read_benchmarks
from ipusim.app.fidelity.product_rows import PRODUCTS_FILE
from ipusim.app.fidelity.product_rows import read_rows as read_product_rows
from ipusim.app.fidelity.validation import Validation
from ipusim.app.scenario import load_job
from ipusim.runs.request.schema import json_schema
from reports import bubbles_page, fidelity_pages, stragglers_page, suggested_page, teaching_page
from reports.__main__ import ROOT, main
from reports.fidelity_pages import fidelity_page
from reports.gallery import GALLERY, Picture
from reports.published_schedules_page import published_schedules_page
from reports.scenario_keys import sections
from reports.scenario_page import example, values_in_use
from reports.speed import Measure, measured, read_rows, row, rows_csv, speed_page
from reports.sweep_page import SWEEPS
from tests.cli.commands import answer, ipusim
from tests.cli.pages import PAGES, blocks, commands
from tests.drawn_pictures import PICTURES, assert_same_picture
from tests.effort import rarest, sampled

REPORTS = ROOT / "reports"


def test_the_board_of_speed_shows_every_row_that_was_measured():
    text = (REPORTS / "speed.csv").read_text()
    rows = read_rows(text)
    assert rows_csv(rows) == text
    assert (REPORTS / "speed.md").read_text() == speed_page(rows), "run python -m reports.speed"


@rarest
def test_a_checkout_is_measured_as_ratios_to_bare_simpy():
    measures = (
        Measure("--help", "", ("-m", "ipusim", "--help"), rounds=2),
        Measure("refused", "", ("-m", "ipusim", "run", "{folder}/none.yaml"), rounds=1),
    )
    seconds = measured(ROOT, measures)
    assert seconds["refused"] is None
    shown = row("a change", "0123456", seconds)
    assert shown["refused"] == "-"
    assert 0 < float(shown["--help"]) < 5
    assert 0 < float(shown["bare"].removesuffix(" s")) < 60


def measured_alone():
    """Return a validation by all measurements but throughputs, which take a minute."""
    rows = products.validate_products(read_product_rows(PRODUCTS_FILE), products.MEASURED_ON, is_fitted=True)
    return Validation(rows, products.MEASURED_ON, True, (), read_benchmarks())


def test_products_and_micro_benchmarks_are_printed_in_tables():
    assert [each.title for each in measured_alone().printout() if not isinstance(each, str)] == [
        *("Dense products, measured and modelled", "Absolute errors", "Rates of the planner"),
        "Micro-benchmarks, published and simulated",
    ]


def test_one_command_makes_all_that_is_there(tmp_path, monkeypatch):
    """But pages of all that is published, which are below."""
    monkeypatch.setattr(Picture, "draw", lambda self: b"drawn in tests of their own")
    monkeypatch.setattr(teaching_page.Figure, "picture", lambda self, theme: b"drawn in tests of their own")
    for page in (bubbles_page, stragglers_page, suggested_page):
        monkeypatch.setattr(page, "to_png", lambda _: b"which nothing is compared with")
    monkeypatch.setattr(reports.__main__, "validation_of", measured_alone)
    monkeypatch.setattr(reports.__main__, "validated_schedules", lambda: None)
    for page in ("fidelity", "published_schedules"):
        text = PAGES[f"reports/{page}.md"]
        monkeypatch.setattr(reports.__main__, f"{page}_page", lambda _, text=text: text)
    for page in REPORTS.glob("*.md"):
        (tmp_path / page.name).write_text("as a clone has it, of an earlier commit\n")
    main(tmp_path)
    for name in ("speed.md", "README.md"):  # measured by a command of its own; written by hand
        (tmp_path / name).unlink()
    made = {path.name for path in tmp_path.iterdir() if path.is_file()}
    held = {path.name for path in REPORTS.iterdir() if path.suffix in (".png", ".svg", ".md")}
    held -= {"speed.md", "README.md", "throughputs.png"}
    assert made == held, f"run python -m reports, and remove what it no longer makes: {sorted(made ^ held)}"
    pages = [name for name in made if name.endswith(".md")]
    assert len(pages) >= 5, "python -m reports makes fewer than five pages"
    for name in pages:
        assert (tmp_path / name).read_text() == (REPORTS / name).read_text(), "run python -m reports"
    zooms = [name for name in made if "tutorial-" in name]
    assert len(zooms) == 3, "the tutorial has three pictures of phases: count a new one here"
    for name in (*zooms, "memory_by_schedule-compared.png", *SWEEPS):
        assert_same_picture((tmp_path / name).read_bytes(), name)


def tried_on_the_page(validation):
    """Return what the page of fidelity says of the trainings that are far off."""
    _, text = PAGES["reports/fidelity.md"].split("\n## Where it is off\n\n")
    return text.split(f"\n## {validation.fitted_rates.title}\n")[0]


def test_what_was_tried_of_trainings_that_are_far_off_is_on_the_page(validate):
    assert fidelity_pages.residuals(validate.found) == tried_on_the_page(validate.found)


def test_pages_of_all_that_is_published_are_what_is_found(validate, validate_schedules, monkeypatch):
    monkeypatch.setattr(fidelity_pages, "residuals", tried_on_the_page)
    found = {"fidelity": fidelity_page(validate.found)}
    found["published_schedules"] = published_schedules_page(validate_schedules.found)
    for name, page in found.items():
        assert page == PAGES[f"reports/{name}.md"], "run python -m reports"
    assert "throughputs.png" in validate.found.files()


def test_every_scenario_is_in_the_gallery_once():
    assert sorted(each.scenario for each in GALLERY) == sorted(
        path.stem for path in (ROOT / "scenarios").glob("*.yaml")
    ), "a picture for each scenario: add it to reports/gallery.py, then run python -m reports"


@sampled(2)
@pytest.mark.parametrize("name", ["recomputation", "memory_by_schedule", "schedules_four_ipus", "selection_orders"])
def test_the_command_under_a_picture_makes_it(name, workspace, monkeypatch):
    """One of each kind of picture, all of which are PNG files."""
    for module in ("run_folder.pictures", "render.figures"):
        monkeypatch.setattr(f"ipusim.app.{module}.to_svg", lambda _: b"")
    picture = PICTURES[name]
    _, *words = shlex.split(picture.command)
    answer(*words, cwd=workspace)
    made = (workspace / "reports" / name / picture.file).read_bytes()
    assert_same_picture(made, f"{name}.png")
    if name == "recomputation":
        assert made == picture.draw(), "not the same bytes twice"


@pytest.mark.usefixtures("without_charts")
@pytest.mark.parametrize("page", ["memory_by_schedule", "schedules", "selection_orders"])
def test_the_commands_of_a_comparison_say_what_its_page_says(page, workspace):
    text = PAGES[f"reports/{page}.md"]
    for command in commands(text):
        done = answer(*shlex.split(command)[1:], cwd=workspace)
        said = done[: done.index("Comparison of ")].splitlines()
        assert said
        assert all(f"{line}\n" in text for line in said)


@sampled(3)
@pytest.mark.parametrize("picture", GALLERY, ids=lambda each: each.scenario)
def test_what_the_gallery_changes_is_accepted(picture, workspace):
    load_job(workspace / "scenarios" / f"{picture.scenario}.yaml", [*picture.changes, "numerics=off"])


def test_every_key_of_the_schema_has_its_row():
    """A row for each property of each mapping, but for those that all kinds share, which stand once."""
    schema = json_schema()
    mappings = {"": schema, **schema["$defs"]}
    found = sections(schema)
    assert set(mappings) <= set(found)
    for name, mapping in mappings.items():
        above = next((each.keys for each in found.values() if each.heading == found[name].within), {})
        assert {*found[name].keys, *above} == set(mapping["properties"]), f"reports/scenario_keys.py: keys of {name}"


def test_every_example_is_what_the_key_takes():
    schema = json_schema()
    values = values_in_use()
    examples = 0
    for section in sections(schema).values():
        for key, node in section.keys.items():
            allowed = {"$defs": schema["$defs"], **node}
            value = example(section, key, values, schema["$defs"])
            jsonschema.Draft202012Validator(allowed).validate(value)
            examples += 1
    assert examples > 150, f"reports/scenario.md has {examples} examples: run python -m reports"


def test_the_schema_is_written_and_named_as_the_page_says(workspace):
    text = PAGES["reports/scenario.md"]
    (command,) = commands(text)
    command, _, file = command.partition(" > ")
    done = ipusim(*shlex.split(command)[1:], cwd=workspace, columns=None)
    assert json.loads(done.stdout) == json_schema()
    (workspace / file).write_text(done.stdout)
    (scenario,) = blocks(text, "yaml")
    assert scenario.startswith(f"# yaml-language-server: $schema={file}\n")
    (workspace / "mine.yaml").write_text(scenario)
    experiment = load_job(workspace / "mine.yaml")
    assert experiment.executions == 1
    assert experiment.request.description == "", "the line is the editor's"
