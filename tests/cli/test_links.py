"""Every link of the pages leads somewhere, and two links lead from the README to all that ipusim has."""

import re
from pathlib import PurePosixPath

import pytest
import typer.main

from ipusim.analysis.figures import FIGURES
from ipusim.app.cli import app
from ipusim.runs.request.schema import json_schema
from reports.figures_page import figure_rows
from reports.scenario_keys import sections
from reports.scenario_page import anchor
from tests.cli.pages import PAGES, ROOT

#: Links lead from the README to the reference in so many steps, and to every page in so many.
TO_REFERENCE, TO_ALL = 2, 3
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
COMMANDS, KEYS, NAMES = "reports/commands.md", "reports/scenario.md", "reports/figures.md"


def prose(text):
    """Return the text of a page without its blocks."""
    return _CODE.sub("", text)


def parts(text):
    """Return the sections of a page by their anchors: each with the sections below it, and the page as a whole."""
    text = prose(text)
    found = [*_HEADING.finditer(text)]
    ends = [
        next((after.start() for after in found[number + 1 :] if len(after[1]) <= len(each[1])), len(text))
        for number, each in enumerate(found)
    ]
    return {"": text} | {anchor(each[2]): text[each.start() : end] for each, end in zip(found, ends, strict=True)}


PARTS = {name: parts(text) for name, text in PAGES.items()}


def target(page, link):
    """Return page and section that a link leads to; None if it leads to another file, or away."""
    if link.startswith("https://"):
        return None
    path, _, place = link.partition("#")
    found = (ROOT / PurePosixPath(page).parent / path).resolve() if path else ROOT / page
    name = found.relative_to(ROOT).as_posix()
    return (name, place) if name in PAGES else None


def reached(steps):
    """Return the texts that so many links or fewer lead to from the README, by page: sections, or pages as a whole."""
    seen, ahead = {}, [("README.md", "")]
    for step in range(steps + 1):
        further = []
        for page, place in ahead:
            if (page, place) in seen:
                continue
            seen[page, place] = PARTS[page].get(place, "")
            if step < steps:
                further += filter(None, (target(page, link) for link in _LINK.findall(seen[page, place])))
        ahead = further
    texts = {}
    for (page, place), text in sorted(seen.items()):
        whole = (page, "") in seen and place
        texts[page] = texts.get(page, "") + ("" if whole else text)
    return texts


def is_broken(page, link):
    """Return whether a link leads to no file, or to no section of a page."""
    path, _, place = link.partition("#")
    file = (ROOT / page).parent / path if path else ROOT / page
    return not file.exists() or bool(place and place not in parts(file.read_text()))


@pytest.mark.parametrize("name", PAGES)
def test_links_and_pictures_exist(name):
    links = [link for link in _LINK.findall(prose(PAGES[name])) if not link.startswith("https://")]
    broken = [link for link in links if is_broken(name, link)]
    assert broken == [], f"{name}: correct these links, or name the section again as they say"


def test_three_links_lead_from_the_readme_to_every_page():
    missing = set(PAGES) - set(reached(TO_ALL))
    assert missing == set(), f"link to {sorted(missing)} from the README, or from a page that it links to"


def test_two_links_lead_from_the_readme_to_every_command_and_option():
    text = reached(TO_REFERENCE).get(COMMANDS, "")
    group = typer.main.get_command(app)
    context = group.context_class(group)
    assert text != "", f"link to {COMMANDS} from the README"
    for name, command in group.commands.items():
        (section,) = re.findall(rf"^## {name}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        options = [each for each in command.get_params(context) if each.param_type_name == "option"]
        for option in options:
            if not option.hidden and option.name != "help":
                spelling = (*option.opts, *option.secondary_opts)[-1]
                assert re.search(rf"^\| `{spelling}[ `]", section, re.MULTILINE), f"{name} {spelling}"


def test_two_links_lead_from_the_readme_to_every_key_of_a_scenario():
    text = reached(TO_REFERENCE).get(KEYS, "")
    for section in sections(json_schema()).values():
        (found,) = re.findall(rf"^#+ {re.escape(section.heading)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
        assert set(section.keys) <= set(re.findall(r"^\| `(\w+)` \|", found, re.MULTILINE)), section.heading


def test_two_links_lead_from_the_readme_to_every_figure():
    texts = reached(TO_REFERENCE)
    names = PARTS[KEYS]["figures"]
    assert names in texts.get(KEYS, ""), f"link to {KEYS}#figures from the README, or from a page that it links to"
    for figure in FIGURES:
        assert f"| `{figure.name}` |" in names
    assert all(f"| `{key}` |" in texts.get(NAMES, "") for key, _, _ in figure_rows()), f"link to {NAMES}"


def test_every_page_of_reports_is_in_its_index_once():
    listed = re.findall(r"^- \[[^\]]+\]\((\w+\.md)\)", PAGES["reports/README.md"], re.MULTILINE)
    there = sorted(path.name for path in (ROOT / "reports").glob("*.md") if path.name != "README.md")
    assert sorted(listed) == there, "reports/README.md: a line for each page"
