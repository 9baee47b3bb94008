"""The command that searches an Order of passes: synthesize."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ipusim.app.cli.app import Out, Overrides, ScenarioPath, app
from ipusim.app.terminal import keep_watch, print_text, status, stoppable

_Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE,...",
        help="the most bytes of each IPU, such as 400 MiB, or one size for each IPU  [default: what the machine has]",
        show_default=False,
    ),
]
_Schedules = Annotated[
    str,
    typer.Option(metavar="NAMES", help="the schedules to begin with and to beat, separated by commas, or all"),
]
_Seconds = Annotated[float, typer.Option(metavar="S", help="time for the search, behind the runs of these schedules")]


@app.command()
def synthesize(
    scenario: ScenarioPath,
    seconds: _Seconds = 10.0,
    memory: _Memory = None,
    schedules: _Schedules = "all",
    out: Out = None,
    overrides: Overrides = None,
) -> None:
    """Find the best order of passes for a scenario's own costs, beginning with all schedules; write it to run it.

    It begins with the best of the named schedules that fit, moves passes, and says how far the result is from a bound
    that no order can beat. The folder of results has the order in Python, for every count from one on, and as torch's
    CSV, a scenario that runs it, and a picture of it beside the best named schedule. Ctrl-C ends the search early.
    """
    from ipusim.app.run_folder.folder import ResultsFolder
    from ipusim.app.scenario.load import placed_request
    from ipusim.app.synthesize.files import SYNTHESIS_FILES, synthesis_files
    from ipusim.app.synthesize.synthesis import synthesize as search
    from ipusim.app.synthesize.verdict import verdict

    names = [name.strip() for name in schedules.split(",") if name.strip()]
    sizes = [] if memory is None else _sizes(memory)
    keep_watch()
    with placed_request(scenario, overrides or ()) as request, stoppable() as stop, status("synthesize") as show:
        folder = out or Path("reports") / request.name

        def tell(text: str) -> None:
            show(lambda: text)

        with ResultsFolder(folder, SYNTHESIS_FILES, reads=[scenario]) as results:
            synthesis = search(request, names, seconds=seconds, memory=sizes, tell=tell, stopped=stop)
            files = synthesis_files(synthesis, request, folder)
            results.write(files)
        print_text(*verdict(synthesis), f"{folder}: {', '.join(files)}")


def _sizes(text: str) -> list[int]:
    """Return memory limits in bytes; raises OptionError for text that is no size."""
    from ipusim.base.errors import OptionError
    from ipusim.base.units import parse_quantity

    try:
        sizes = [int(parse_quantity(part.strip(), "bytes")) for part in text.split(",")]
    except ValueError as error:
        raise OptionError("memory", str(error)) from None
    if min(sizes) < 1:
        raise OptionError("memory", f"expected sizes above 0, got {text!r}")
    return sizes
