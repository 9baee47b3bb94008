"""Every command line that people are shown has a verb and options that exist; those of old are answered."""

import re

import pytest
import typer.main

from ipusim.app import cli
from tests.cli.commands import refusal
from tests.scenarios import ROOT

#: Pages, scenarios, sources of reports, and the package with its messages and comments; of the pages not CHANGELOG,
#: which says what is gone.
SHOWN = [
    path
    for folder in ("", "scenarios/**/", "reports/", "ipusim/**/", ".ci/")
    for path in sorted(ROOT.glob(f"{folder}*"))
    if path.suffix in (".md", ".py", ".yaml", ".csv", "") and path.is_file() and path.name != "CHANGELOG.md"
]
#: Options of each command, by its name.
OPTIONS = {
    name: {"--help", *(flag for parameter in command.params for flag in parameter.opts)}
    for name, command in typer.main.get_command(cli.app).commands.items()
}
#: Command lines: between backticks, behind a prompt, and in comments that commands write.
LINES = re.compile(r"`ipusim\s+([a-z][^`]*)`|(?:\$|-m|by) ipusim ([a-z].*)|mark_of\(\"(\w+)\"\)")
#: Those without the program's name, which have an option.
SHORT = re.compile(rf"`((?:{'|'.join({*OPTIONS, *cli._REMOVED})}) [^`]*--[^`]+)`")


def lines(text):
    """Yield verb and rest of each command line in a text, whose strings are joined as Python joins them."""
    text = re.sub(r'"\s*\n\s*f?"', "", text).replace("\\\n", " ")
    for found in (*LINES.finditer(text), *SHORT.finditer(text)):
        yield re.match(r"(\w+)(.*)", next(filter(None, found.groups())), re.DOTALL).groups()


def wrong(verb, rest):
    """Return the verb that does not exist, or the options that its command has not."""
    if verb not in OPTIONS:
        return {verb}
    has_program = re.search(r"\.py\b", rest)  # which may have options of its own
    return set() if has_program else set(re.findall(r"(?<!\S)--[a-z][a-z-]*", rest)) - OPTIONS[verb]


def test_every_command_line_that_is_shown_exists():
    found = {(path, *line) for path in SHOWN for line in lines(path.read_text())}
    assert {verb for _, verb, _ in found} >= OPTIONS.keys()
    assert not {(path, verb, rest) for path, verb, rest in found if wrong(verb, rest)}


@pytest.mark.parametrize("line", cli._REMOVED)
def test_a_verb_or_an_option_of_old_is_answered_in_one_line(line):
    assert refusal(*line.split()) == f"{cli._REMOVED[line]}\n"
    assert wrong(*line.partition(" ")[::2])
