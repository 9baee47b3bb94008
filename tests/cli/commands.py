"""The command line, called within the tests' own process: starting another takes a second, and tells no more.

What a process alone shows (its streams, encodings, signals, hash seed) is tested with real ones: see ``process``.
"""

import contextlib
import functools
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import typer.main

from ipusim.app import cli

#: The library makes every command and its options whenever the command line is called, as a process does once.
command_of = functools.cache(typer.main.get_command)

#: Goes on as the command that follows, which heeds interrupts even if the tests run in the background and ignore them.
HEEDING = [
    sys.executable,
    "-Sc",
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])",
]

#: Calls the command with the words of each of its arguments, in turn: they have tabs between them.
CALLING = """
import sys
from ipusim.app.cli import main
for line in sys.argv[1:]:
    sys.argv = ["ipusim", *line.split("\\t")]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""


def ipusim(*words, cwd=None, columns=None, pictures=True):
    """Call the command with words of a command line; return what it printed, and its exit code, as a process does.

    Without ``columns`` it prints as to a pipe, each sentence on one line; without ``pictures`` their files are empty.
    Warnings are errors here as in every test.
    """
    streams = {"stdout": io.StringIO(), "stderr": io.StringIO()}
    arguments = ["ipusim", *(os.fsdecode(word) if isinstance(word, bytes) else str(word) for word in words)]
    with contextlib.ExitStack() as around:
        around.enter_context(mock.patch.dict(os.environ))
        os.environ.pop("COLUMNS", None)
        if columns:
            os.environ["COLUMNS"] = columns
        around.enter_context(mock.patch.object(sys, "argv", arguments))
        around.enter_context(mock.patch.object(typer.main, "get_command", command_of))
        around.enter_context(contextlib.redirect_stdout(streams["stdout"]))
        around.enter_context(contextlib.redirect_stderr(streams["stderr"]))
        around.enter_context(contextlib.chdir(cwd or Path.cwd()))
        if not pictures:
            around.enter_context(mock.patch("matplotlib.figure.Figure.savefig"))
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
    return subprocess.CompletedProcess(arguments, code, *(stream.getvalue() for stream in streams.values()))


def answer(*words, **how):
    """Call the command, which must end well and without a word on standard error; return what it printed."""
    done = ipusim(*words, **how)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refusal(*words, **how):
    """Call the command, which must end with exit code 2 and print nothing; return its message."""
    done = ipusim(*words, **how)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return done.stderr


def process(*words, environment=None, **options):
    """Run the command in a process of its own, in which warnings are errors."""
    command = [sys.executable, "-W", "error", "-m", "ipusim", *words]
    return subprocess.run(
        command, capture_output=True, check=False, env={**os.environ, **(environment or {})}, **options
    )


#: What lays out the charts that commands write, by where each command finds it.
CHARTS = (
    "compare.comparison_files.comparison_chart",
    "sweep.report.chart_of",
    "sweep.weak_points.system_maps",
    "sweep.ensemble.histogram",
    "explain.explanation.idle_chart",
    "explain.explanation.trace_with_path",
    "run_folder.pictures.execution_trace",
    "run_folder.pictures.memory_chart",
)


def leave_charts_out(patch):
    """Leave charts empty, and lay none out: that takes longer than what is compared in them."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    for chart in CHARTS:
        patch.setattr(f"ipusim.app.{chart}", lambda *_, **_options: Figure())
    patch.setattr(Figure, "savefig", lambda *_, **_options: None)


def leave_pixels_out(patch):
    """Leave PNG files empty, whose figures are laid out all the same; SVG files are drawn."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    draw = Figure.savefig

    def drawn(figure, file, **how):
        if how["format"] != "png":
            draw(figure, file, **how)

    patch.setattr(Figure, "savefig", drawn)
