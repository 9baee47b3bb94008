"""What commands print in terminals of several widths: nothing cut, nothing too wide, and no word broken."""

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from functools import cache
from itertools import product
from unittest import mock

import pytest
from rich.cells import cell_len

from ipusim.app.cli import app
from ipusim.app.run_folder import report
from ipusim.app.study.result import Result
from ipusim.app.terminal import print_text
from tests.cli.commands import answer, ipusim
from tests.effort import draws_everything, runs_slowest
from tests.printed_tables import assert_whole, recorded
from tests.scenarios import SCENARIOS

WIDTHS = (60, 80, 100, 120)
COMMANDS = {
    command.name or command.callback.__name__: command.callback.__doc__.partition("\n")[0]
    for command in app.registered_commands
}
SWEPT = ("--vary", "pipeline.gradient_accumulation_count=8,16", "--workers", "1")
#: Changes of one's own, which no others are tried beside.
TRIED = ("--what", "rates.link=x2", "--what", "pipeline.repeat_count=2")
#: Commands that print sentences and tables, quick ones.
SAYING = (
    ("run", SCENARIOS / "memory_by_schedule.yaml", "--verbose", "--out", "out"),
    ("run", SCENARIOS / "selection_orders.yaml", "--verbose", "--out", "out"),
    ("run", SCENARIOS / "zero_bubble.yaml", "--set", "steps=1", "--set", "pipeline.repeat_count=1", "--verbose"),
    ("check", SCENARIOS / "gpt2.yaml"),
    ("check", SCENARIOS / "data_parallel_4x4.yaml", "--costs"),
    ("check", SCENARIOS / "measured_stages.yaml", "--profile", SCENARIOS / "measured_stages.csv"),
    ("explain", SCENARIOS / "gpu_schedules.yaml", "--out", "out"),
    ("explain", SCENARIOS / "data_parallel_4x4.yaml", "--set", "steps=1", *TRIED, "--out", "out"),
    ("compare", SCENARIOS / "memory_by_schedule.yaml", SCENARIOS / "selection_orders.yaml", "--out", "out"),
    ("compare", SCENARIOS / "gpu_schedules.yaml", "--sync", "lock_step,point_to_point", "--out", "out"),
    ("sweep", SCENARIOS / "schedules_four_ipus.yaml", *SWEPT, "--out", "out"),
    (
        "suggest",
        SCENARIOS / "tutorial_step3_pipelining.yaml",
        *("--stages", "2", "--simulations", "2", "--schedules", "grouped"),
    ),
    ("devices", "bow_pod64"),
    ("devices", "bow_pod64", "--figures"),
    ("devices", "m2000", "--figures"),
    ("schedule",),
)


@pytest.fixture(autouse=True)
def no_files(monkeypatch, tmp_path):
    """Leave out the files of results, which are other tests' business."""
    monkeypatch.chdir(tmp_path)
    for holder, name in ((report, "run_files"), (Result, "files")):
        monkeypatch.setattr(holder, name, lambda *_, **_options: {})


@pytest.mark.parametrize("width", WIDTHS)
def test_help_of_all_commands_says_the_first_clause_of_each(width):
    done = ipusim("--help", columns=str(width))
    assert max(map(len, done.stdout.splitlines())) <= width
    # The library breaks lines behind hyphens too.
    said = "".join(done.stdout.split("Commands:")[1].split())
    for name, sentence in COMMANDS.items():
        assert name + "".join(re.split("[,;:.]", sentence)[0].split()) in said


@cache
def help_of(name, width):
    return ipusim(name, "--help", columns=str(width))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_fits_and_cuts_nothing(name, width):
    done = help_of(name, width)
    assert max(map(len, done.stdout.splitlines())) <= width
    wide = help_of(name, 120)
    assert sorted("".join(done.stdout.split())) == sorted("".join(wide.stdout.split()))
    assert COMMANDS[name] in " ".join(done.stdout.split())


@pytest.mark.parametrize("words", SAYING, ids=lambda words: " ".join(map(str, words[:2]))[-40:])
def test_sentences_break_between_words_and_tables_are_printed_whole(words):
    """In the narrowest terminal, where most lines are broken; in others with ``--all`` and ``--every``."""
    with recorded() as tables:
        piped = answer(*words, pictures=False)
    for table, width in product(tables, (None, *WIDTHS) if runs_slowest() else WIDTHS[:1]):
        assert_whole(table, width)
    sentences = [line for line in piped.splitlines() if len(line) > 60 and "  " not in line and "─" not in line]
    for width in WIDTHS if draws_everything() else (WIDTHS[0], WIDTHS[-1]) if runs_slowest() else WIDTHS[:1]:
        lines = ipusim(*words, columns=str(width), pictures=False).stdout.splitlines()
        longest = max((word for line in lines for word in line.split() if "/" in word), key=cell_len, default="")
        assert max(map(cell_len, lines)) <= max(width, cell_len(longest))
        said = " ".join(" ".join(lines).split())
        assert all(sentence in said for sentence in sentences)


def in_terminal(width, function):
    """What a function prints to a terminal of so many columns that says nothing else of itself."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    with mock.patch.dict(os.environ, {"TERM": "dumb"}), os.fdopen(theirs, "w") as stream:
        os.environ.pop("COLUMNS", None)
        with mock.patch.object(sys, "stdout", stream), mock.patch.object(sys, "__stdout__", stream):
            function()
    printed = b""
    try:
        while data := os.read(ours, 65536):
            printed += data
    except OSError:  # the end of a terminal
        pass
    finally:
        os.close(ours)
    return printed.decode().replace("\r", "").splitlines()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_terminal_that_the_library_calls_dumb_has_its_own_width(width):
    from ipusim.app.cli.figures import machine_tables  # noqa: PLC0415
    from ipusim.app.terminal import print_tables  # noqa: PLC0415
    from ipusim.hardware.machines import find_machine  # noqa: PLC0415

    def show():
        print_text("word " * 60)
        print_tables(next(iter(machine_tables(find_machine("m2000")))))

    lines = in_terminal(width, show)
    assert width - 5 < max(map(cell_len, lines)) <= width


def test_lines_go_on_below_their_own_beginning_and_long_words_stay_whole(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    print_text(
        "  indented words go on", "name    what it is and does", "", "a/path/that/is/longer/than/a/line is whole"
    )
    assert capsys.readouterr().out.splitlines() == [
        "  indented words go",
        "  on",
        "name    what it is",
        "        and does",
        "",
        "a/path/that/is/longer/than/a/line",
        "is whole",
    ]
    monkeypatch.delenv("COLUMNS")
    print_text("word " * 60 + "end")
    assert capsys.readouterr().out == "word " * 60 + "end\n"
