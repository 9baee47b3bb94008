"""Command line of ipusim: each module has related commands, which parse options, call the library, print, and exit.

Slow imports stand inside the commands, so that ``ipusim --help`` answers at once.
"""

from __future__ import annotations

import os
import re
import sys
from copy import copy
from itertools import pairwise, takewhile
from typing import Final

import typer
from typer.main import get_command_name

# Each module registers its commands; ``ipusim --help`` lists commands in the order of these imports.
from ipusim.app.cli import runs, comparisons, sweeps, suggestions, explanations  # isort: skip
from ipusim.app.cli import pages, plans, fidelity, imports, pins  # isort: skip
from ipusim.app.cli.app import Command, app, flag
from ipusim.base.errors import IpusimError, OptionError, bounded
from ipusim.base.streams import prepare_streams

# The list of commands shows the first clause of each docstring, to fit a terminal of 24 lines.
for _command in app.registered_commands:
    assert _command.callback is not None
    _command.name = _command.name or get_command_name(_command.callback.__name__)
    _command.cls = Command
    _command.short_help = re.split("[,;:.]", _command.callback.__doc__ or "")[0]

#: Removed commands and options, with the error message for each.
_REMOVED: Final = {
    "calibrate": "calibrate is now `ipusim validate --fit ROWS.csv`, with --fit for each file",
    "schedule --format": "--format is now `ipusim schedule --as grid|instructions|torch`, where torch was csv",
    "sweep --format": "--format is now the ending of --out, as in `ipusim sweep SCENARIO --out points.parquet`",
    "pin": "pin is now `ipusim test --pin FILES`",
    "schema": "schema is now `ipusim check --schema`",
    "goodput": "goodput is removed: ipusim simulates no days of training with failures; `disturbances` of a scenario "
    "simulate lost IPUs and restarts within a run",
    "synthesize": "synthesize is now `ipusim suggest SCENARIO --order`",
    "suggest --synthesize": "--synthesize is now `ipusim suggest PLAN.yaml --order`, after `ipusim suggest SCENARIO "
    "--out PLAN.yaml`",
    "scenario": "scenario is now `ipusim import program.py`",
    "trace": "trace is now `ipusim show RUN`",
    "view": "view is now `ipusim show RUN --perfetto`",
    "export": "export is now `ipusim show RUN --out spans.csv`, or spans.parquet",
}


def main() -> None:
    """Run the command line; wrong input gives one message on standard error and exit code 2."""
    prepare_streams()
    os.environ["MPLBACKEND"] = "agg"  # draw to files, even with another backend set by a notebook or desktop
    # Pydantic's search for plugins in all installed packages took a tenth of a check; ipusim uses no plugin.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Runs compute on one BLAS thread; further threads, started by the import of NumPy, would only spin.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        words = [word.partition("=")[0] for word in sys.argv[1:]]
        for line, answer in _REMOVED.items():
            if words[:1] == line.split()[:1] and {*line.split()} <= {*words}:
                raise IpusimError(answer)
        options = [*takewhile(lambda word: word != "--", sys.argv[1:])]  # a program's own arguments follow "--"
        if "--out=" in options or ("--out", "") in pairwise(options):  # a shell variable without a value
            raise OptionError("out", "expected a folder or a file, got an empty text; '.' is the current folder")
        # Build only the command named on the line: reading the parameters of all commands takes 12 ms.
        application = copy(app)
        commands = [command for command in app.registered_commands if command.name in words[:1]]
        application.registered_commands = commands or app.registered_commands
        command = typer.main.get_command(application)
        for parameter in command.params:
            if isinstance(parameter, typer.core.TyperOption):  # hide two rarely used options from the help
                parameter.hidden = parameter.hidden or parameter.name in ("install_completion", "show_completion")
        # Set the name for `python -m ipusim` too: shell completion works only for this name.
        command(prog_name="ipusim")
    except IpusimError as error:
        typer.echo(error.worded(flag) if isinstance(error, OptionError) else str(error), err=True)
        sys.exit(2)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        is_missing = isinstance(error, FileNotFoundError)
        reason = "expected a file, got no such file" if is_missing else error.strerror or error
        typer.echo(bounded(f"{place}{reason}"), err=True)
        sys.exit(2)
    except MemoryError as error:
        typer.echo(f"too little memory: {error}", err=True)
        sys.exit(2)
