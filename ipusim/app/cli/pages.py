"""Commands that show runs which lie on disk: report, view."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ipusim.app.cli.app import app
from ipusim.app.terminal import print_text


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders of runs", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="the page  [default: report.html, or play.html, in the first RUN]"),
    ] = None,
    play: Annotated[
        bool, typer.Option("--play", help="play the first execution of one RUN, or of two on one clock")
    ] = False,
) -> None:
    """Write one HTML page of runs: traces to zoom into, memory, why IPUs wait, tables; it needs no network.

    With --play it is an animation for a lecture: passes as they run, and what waits on each IPU meanwhile.
    """
    from ipusim.app.page.page import write_page

    page = write_page(runs, out, play=play)
    print_text(f"{page}: opens in any browser, {page.stat().st_size / 2**20:.1f} MiB")


@app.command()
def view(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run, or a trace file", show_default=False)],
    browser: Annotated[bool, typer.Option(" /--no-browser", help="only print the address")] = True,
) -> None:
    """Open the trace of a run in a local Perfetto where one is installed, else say how to open it."""
    import signal
    import threading
    import webbrowser

    from ipusim.app.run_folder.view import how_to_open, local_perfetto, serve, trace_of

    trace, perfetto = trace_of(run), local_perfetto()
    if perfetto is None:
        print_text(how_to_open(trace))
        return
    done = threading.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):  # the usual ends of a command that goes on until it is told
        signal.signal(signal_number, lambda *_: done.set())
    with serve(trace, perfetto) as address:
        print_text(f"{trace} in Perfetto: {address} (Ctrl+C ends this)")
        if browser:
            webbrowser.open(address)
        done.wait()
