"""What pages say of schedules, keys and layers is so, the tutorial takes an hour, and the glossary has a term once."""

import re

import pytest

from ipusim.analysis.figures import figure_names
from ipusim.app.scenario import load_job
from ipusim.runs.request.schema import json_schema
from ipusim.schedules import registry
from reports.outputs import named_files, pages
from reports.scenario_keys import sections
from tests.cli.pages import PAGES, all_blocks

SHOWING = pages()
EXPLANATION, HOW_TO, BUBBLES = (
    PAGES[name] for name in ("scenarios/explanation.md", "scenarios/how_to.md", "reports/bubbles.md")
)


def section(text, heading):
    """Return a section of a page, up to the next heading of the same level."""
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("text", [HOW_TO, EXPLANATION], ids=["how to", "explanation"])
def test_keys_exist(text):
    """A path in code that begins with a section of a scenario is a key, with or without a value."""
    known = {f"{part.path}.{key}" for part in sections(json_schema()).values() for key in part.keys}
    named = set(re.findall(r"`((?:system|pipeline|outfeed|infeed|data|evaluate)(?:\.\w+)+)(?:: [^`]+)?`", text))
    assert len(named) >= 5, "hardly any key is found on the page: look at the pattern above"
    assert named <= known


def test_keys_with_values_exist():
    """Of any page: a word with a colon and a value in code, such as ``numerics: off``, is a key or a figure."""
    known = {key for part in sections(json_schema()).values() for key in part.keys} | {*figure_names()}
    named = {
        word
        for page in SHOWING.values()
        for word in re.findall(r"`(?:\w+\.)*([a-z]\w*): [^`]+`", re.sub(r"(?ms)^```.*?^```$", "", page))
    }
    assert len(named) > 20, "hardly any key is found on the pages: look at the pattern above"
    assert named <= known


def test_all_schedules_are_explained_with_the_forms_of_the_page_on_bubbles():
    """A link stands for a form that is long."""
    rows = re.compile(r"^\| `?(\w+)`? \| (.+?) \|", re.MULTILINE)
    explained = dict(rows.findall(section(EXPLANATION, "Schedules by family")))
    del explained["schedule"]
    assert set(explained) == set(registry.HOUSE)
    derived = dict(rows.findall(section(BUBBLES, "Wait and memory of an IPU").split("| most kept")[0]))
    forms = {name: form for name, form in explained.items() if name in derived and not form.startswith("[form]")}
    assert len(forms) > 12, "hardly any form is found on the page: look at the pattern above"
    assert forms == {name: derived[name] for name in forms}


def test_a_layer_of_ones_own_takes_a_stated_cost(tmp_path):
    own = section(HOW_TO, "Write a layer of your own")
    for name, content in named_files(own).items():
        (tmp_path / name).write_text(content)
    first, second = load_job(tmp_path / "own.yaml").program.stages
    assert (first.parameter_bytes, second.parameter_bytes) == (4 * 32 * 33, 4 * (32 + 4 * 33))
    (stated,) = re.findall(r"`(cost: .*?)`", own)
    scenario = named_files(own)["own.yaml"].replace("fill:", f"{stated}, fill:")
    (tmp_path / "stated.yaml").write_text(scenario)
    assert load_job(tmp_path / "stated.yaml").program.stages[1].forward[0].cycles == 1000


TUTORIAL, GLOSSARY = (PAGES[f"scenarios/{name}.md"] for name in ("tutorial", "glossary"))
#: Words that a reader takes in per minute.
WORDS_A_MINUTE = 200
#: Minutes of the hour for the tutorial's commands, and for looking at files and pictures.
OTHER_MINUTES = 20
#: Terms that a reader meets at most in the first run.
MOST_TERMS = 10


def glossary_links(text):
    """Return the anchors in the glossary that a text links to, in order."""
    return re.findall(r"\]\(glossary\.md#([\w-]+)\)", text)


def test_the_tutorial_is_read_and_tried_in_an_hour():
    minutes = len(TUTORIAL.split()) / WORDS_A_MINUTE + OTHER_MINUTES
    assert minutes <= 60, f"the tutorial takes {minutes:.0f} minutes: shorten it"


def test_the_first_run_needs_ten_terms_at_most():
    (first,) = re.findall(r"^## 1\. .*?(?=^## )", TUTORIAL, re.MULTILINE | re.DOTALL)
    terms = glossary_links(re.sub(r"^```.*?^```$", "", first, flags=re.MULTILINE | re.DOTALL))
    assert terms, "no link to the glossary is found: look at the pattern above"
    assert len(terms) <= MOST_TERMS, f"the first run needs {len(terms)} terms: leave some to later sections"


def test_the_tutorial_links_each_term_once():
    """Where it is first used: links further down would say that it is new there."""
    terms = glossary_links(TUTORIAL)
    assert len(terms) == len(set(terms)), "link each term to the glossary once"


def test_the_glossary_is_in_alphabetical_order_and_defines_each_term_once():
    terms = re.findall(r"^## (.+)$", GLOSSARY, re.MULTILINE)
    assert terms == sorted(set(terms), key=str.lower), "order the terms of scenarios/glossary.md by the alphabet"


def test_each_definition_is_short():
    for entry in GLOSSARY.split("\n## ")[1:]:
        term, text = entry.split("\n", 1)
        assert len(text.split()) <= 80, f"shorten the definition of {term}"
        assert not all_blocks(text), term
