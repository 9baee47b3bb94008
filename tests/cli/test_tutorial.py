"""The tutorial takes an hour and begins with few terms, and the glossary defines each term once."""

import re

from tests.cli.pages import PAGES, all_blocks

TUTORIAL, GLOSSARY = (PAGES[f"scenarios/{name}.md"] for name in ("tutorial", "glossary"))
#: Words that a reader takes in per minute.
WORDS_A_MINUTE = 200
#: Minutes of the hour for the tutorial's commands, and for looking at files and pictures.
OTHER_MINUTES = 20
#: Terms that a reader meets at most in the first run.
MOST_TERMS = 10


def section(number):
    """Return the text of a section of the tutorial, without its blocks."""
    text = re.search(rf"^## {number}\. .*?(?=^## )", TUTORIAL, re.MULTILINE | re.DOTALL)[0]
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def glossary_links(text):
    """Return the anchors in the glossary that a text links to, in order."""
    return re.findall(r"\]\(glossary\.md#([\w-]+)\)", text)


def test_the_tutorial_is_read_and_tried_in_an_hour():
    minutes = len(TUTORIAL.split()) / WORDS_A_MINUTE + OTHER_MINUTES
    assert minutes <= 60, f"the tutorial takes {minutes:.0f} minutes: shorten it"


def test_the_first_run_needs_ten_terms_at_most():
    terms = glossary_links(section(1))
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
