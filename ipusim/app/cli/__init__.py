"""The command line: one command per verb; parse, call, print, exit code.

Every import that costs time stands inside the command that needs it, so that
``ipusim --help`` answers at once.
"""

from __future__ import annotations

import os
import re
import sys
from copy import copy
from typing import Final

import typer
from typer.main import get_command_name

# Each module adds its commands to the application, which lists them in this order.
from ipusim.app.cli import runs, comparisons, sweeps, suggestions, explanations  # isort: skip
from ipusim.app.cli import pages, plans, fidelity, imports, pins  # isort: skip
from ipusim.app.cli.app import app
from ipusim.base.errors import IpusimError, OptionError, bounded
from ipusim.base.streams import prepare_streams

# The list of commands has the first clause of each docstring, so that it fits a terminal of 24 lines.
for _command in app.registered_commands:
    assert _command.callback is not None
    _command.name = _command.name or get_command_name(_command.callback.__name__)
    _command.short_help = re.split("[,;:.]", _command.callback.__doc__ or "")[0]

#: Removed commands, and options of commands, with the answer to whoever still calls them.
_REMOVED: Final = {
    "calibrate": "calibrate is now `ipusim validate --fit ROWS.csv`, with --fit for each file",
    "schedule --format": "--format is now `ipusim schedule --as grid|instructions|torch`, where torch was csv",
    "sweep --format": "--format is now the ending of --out, as in `ipusim sweep SCENARIO --out points.parquet`",
    "pin": "pin is now `ipusim test --pin FILES`",
    "schema": "schema is now `ipusim check --schema`",
    "goodput": "goodput is removed: ipusim simulates no days of training with failures; `disturbances` of a scenario "
    "simulate lost IPUs and restarts within a run",
    "synthesize": "synthesize is now `ipusim suggest SCENARIO --order`",
    "scenario": "scenario is now `ipusim import program.py`",
    "trace": "trace is now `ipusim show RUN`",
    "view": "view is now `ipusim show RUN --perfetto`",
    "export": "export is now `ipusim show RUN --out spans.csv`, or spans.parquet",
}


def main() -> None:
    """Run the command line; a mistake in the input is one message on standard error and exit code 2."""
    prepare_streams()
    os.environ["MPLBACKEND"] = "agg"  # figures go to files, whatever the notebook or desktop around this has
    # To look for plugins of pydantic among all that is installed took a tenth of a check, and none has a say in it.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Runs compute on one thread of BLAS. The others, which it begins when NumPy is imported, would spin in vain.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        words = [word.partition("=")[0] for word in sys.argv[1:]]
        for line, answer in _REMOVED.items():
            if words[:1] == line.split()[:1] and {*line.split()} <= {*words}:
                raise IpusimError(answer)
        # The command alone that a line begins with: to read the parameters of all takes 12 ms.
        application = copy(app)
        commands = [command for command in app.registered_commands if command.name in words[:1]]
        application.registered_commands = commands or app.registered_commands
        command = typer.main.get_command(application)
        for parameter in command.params:
            if isinstance(parameter, typer.core.TyperOption):  # a line each that few look for
                parameter.hidden = parameter.hidden or parameter.name in ("install_completion", "show_completion")
        # As `python -m ipusim` too, whose completion could have no other name.
        command(prog_name="ipusim")
    except IpusimError as error:
        typer.echo(error.worded(_flag) if isinstance(error, OptionError) else str(error), err=True)
        sys.exit(2)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        typer.echo(bounded(f"{place}{error.strerror or error}"), err=True)
        sys.exit(2)
    except MemoryError as error:
        typer.echo(f"this takes more memory than there is: {error}", err=True)
        sys.exit(2)


def _flag(option: str) -> str:
    """Return what an option is called here, as in ``--from``, or an argument."""
    flags = {"start": "--from", "end": "--to", "scenario": "SCENARIO", "run": "RUN"}
    return flags.get(option, f"--{option.replace('_', '-')}")
