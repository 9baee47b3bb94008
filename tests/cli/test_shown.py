"""The commands of the pages run, section by section, and print what the pages show below them."""

import re
import shlex
from unittest import mock

import pytest

from ipusim.app.cli import app
from reports.outputs import COLUMNS, pages, renewed, rewritten, take, walks
from tests.cli.commands import ipusim
from tests.cli.pages import all_blocks
from tests.effort import draws_everything, runs_slowest

#: Pages with tested commands.
SHOWING = pages()
WALKS = [walk for page, text in SHOWING.items() for walk in walks(page, text)]
DIGITS = "scenarios/digits_training.yaml"
#: The slowest command, run once for all tests.
VALIDATE = "ipusim validate"
#: Commands that train on digits for one weight update; ``--every`` runs seven whole trainings.
ON_DIGITS = ("run", "compare", "sweep")
ONE_UPDATE = ("--set", "steps=1", "--set", "pipeline.repeat_count=1")
#: Further words that shorten commands with these beginnings. Other tests run the commands whole.
LESS = {
    "suggest scenarios/zero_bubble.yaml --order": (
        *("--seconds", "0.1", "--schedules", "1f1b", "--set", "pipeline.gradient_accumulation_count=4"),
        *ONE_UPDATE,
    ),
    "suggest mine.yaml": (),  # outputs below it are of its plan
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


def shortened(words):
    """Return the words of a command with further words from ``LESS``."""
    if not draws_everything() and words[0] in ON_DIGITS and {*words} & {DIGITS, "best.yaml"}:
        words = [*words, *ONE_UPDATE]
    if not draws_everything():
        words = [*words, *next((less for begin, less in LESS.items() if " ".join(words).startswith(begin)), ())]
    return words


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.name)
def test_a_walk_leads_to_its_end_and_prints_what_is_shown(workspace, walk):
    """Run on one core; ``test_sweep`` tests parallel sweeps.

    With ``--all`` no command above the last shown output is shortened. By default outputs below a shortened command are
    not compared, because they come from another run.
    """
    is_short, whole = False, walk.shown_steps if runs_slowest() else ()

    def run(step, folder):
        nonlocal is_short
        words = step.words if step in whole else shortened(step.words)
        is_short = is_short or words != step.words
        with mock.patch("joblib.cpu_count", return_value=1):
            done = ipusim(*words, cwd=folder, columns=COLUMNS)
        assert done.stdout or done.returncode or "--quiet" in words
        if words[0] in ("run", "compare"):
            assert list((folder / "reports").glob("*/*.png"))
        return done.returncode, done.stdout, done.stderr

    changed = []
    for step in walk.steps:
        if step.command == VALIDATE:
            assert not step.shown, "the output of `ipusim validate` stands in reports/: link to it"
            continue
        output = take(step, workspace, run)
        if step.shown and not is_short and not step.is_printed(output):
            changed.append(f"$ {step.command}\n{output}")
    assert not changed, "\n".join(
        [f"{walk.name}: run python -m reports.outputs {walk.page}, or python -m reports. Now printed:", *changed]
    )


def test_the_command_that_takes_longest(validate):
    assert (validate.done.args, validate.done.returncode) == (shlex.split(VALIDATE), 0)
    assert validate.done.stdout


def test_every_command_is_shown_and_run():
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    shown = {step.words[0] for walk in WALKS for step in walk.steps}
    assert shown == names, f"show each command in a console block of a page: {sorted(names ^ shown)}"


def test_every_text_block_of_these_pages_is_the_output_of_a_command():
    for page, text in SHOWING.items():
        found = [content for language, content in all_blocks(text) if language == "text"]
        outputs = [step.shown.content for walk in walks(page, text) for step in walk.steps if step.shown]
        assert found == outputs, f"{page}: put each text block directly below the console block of its command"
        assert not re.search(r"^ +```", text, re.MULTILINE), f"{page}: a block that begins with blanks is not tested"


PAGE = """\
# Title

```yaml
# mine.yaml
steps: 1
```

```console
$ ipusim check mine.yaml
$ ipusim run mine.yaml \\
    --out there
```

```text
first 1
...
last 3
```

## Another

```console
$ ipusim devices > list.txt
```

Words.

```text
no output
```
"""


def test_an_output_is_compared_line_by_line_but_for_lines_left_out_and_seconds():
    run = walks("page.md", PAGE)[0].steps[1]
    assert run.is_printed("\nfirst 1  \nsecond\n\nlast 3\n\n")
    assert run.is_printed("first 1\nlast 3\n")
    assert not run.is_printed("first 1\nlast 4\n")
    assert not run.is_printed("zeroth\nfirst 1\nlast 3\n")
    timed = walks("page.md", PAGE.replace("last 3", "held, tested in 0.3 s\nended after 2.8 s, of 4.2 s"))[0].steps[1]
    assert timed.is_printed("first 1\nheld, tested in 1.4 s\nended after 0.1 s, of 4.2 s\n")
    assert not timed.is_printed("first 1\nheld, tested in 1.4 s\nended after 0.1 s, of 4.3 s\n")


def test_a_new_output_keeps_the_choice_of_lines():
    output = "title\n\nthroughput 5 samples/s\nbubble 20 %\nmemory fits, with 24.88 MiB\nfiles\n"
    assert rewritten("...\nthroughput 4 samples/s\nbubble 21 %\n...\n", output) == (
        "...\nthroughput 5 samples/s\nbubble 20 %\n...\n"
    )
    assert rewritten("title\n...\nfiles\n", output) == "title\n...\nfiles\n"
    assert rewritten("...\nnothing like it at all\n...\n", output) == output


def test_a_page_is_written_anew_with_what_its_commands_print():
    ran = []

    def run(step, folder):
        ran.append((" ".join(step.words), (folder / "mine.yaml").read_text()))
        return 0, "first 2\nother\nlast 4\n", "1 of 2 done\n"

    text = renewed("page.md", PAGE, run)
    assert text == PAGE.replace("first 1", "first 2").replace("last 3", "last 4")
    assert [command for command, _ in ran] == ["check mine.yaml", "run mine.yaml --out there"]
    assert {content for _, content in ran} == {"# mine.yaml\nsteps: 1\n"}


def test_a_command_that_fails_stops_a_page_unless_its_message_is_shown():
    def fails(step, folder):
        return 2, "", "first 1\nlast 3\n"

    with pytest.raises(ChildProcessError, match=r"ipusim check mine\.yaml: exit code 2\nfirst 1"):
        renewed("page.md", PAGE, fails)
    shown = PAGE.replace("$ ipusim check mine.yaml\n", "")
    assert renewed("page.md", shown, fails) == shown
