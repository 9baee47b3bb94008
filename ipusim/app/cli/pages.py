"""Commands that show runs which lie on disk, or take something out of them: report, view, trace, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ipusim.app.cli.app import End, Execution, PhaseName, RunOnDisk, Start, app
from ipusim.app.terminal import print_text


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders of runs")],
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
    run: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run, or a trace file")],
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


@app.command()
def trace(
    run: RunOnDisk,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="the picture, .png, .svg or .pdf  [default: trace-<what it shows>.png beside the timeline]",
        ),
    ] = None,
    start: Start = None,
    end: End = None,
    phase: PhaseName = None,
    execution: Execution = None,
) -> None:
    """Draw the execution trace of a run that lies on disk, zoomed to cycles or to a phase."""
    from ipusim.api import Timeline
    from ipusim.app.run_folder.export import timeline_file
    from ipusim.app.run_folder.output_file import PICTURE, check_output
    from ipusim.app.run_folder.pictures import picture
    from ipusim.app.run_folder.report import picture_name, picture_window
    from ipusim.base.files import write_file

    timeline = timeline_file(run)
    file = out or timeline.with_name(picture_name(start, end, phase, execution))
    check_output(file, PICTURE, (timeline,))
    loaded = Timeline.load(timeline)
    shown = picture_window(loaded, start, end, phase, execution)
    write_file(file, picture(loaded, shown, file.suffix), follow=out is not None)
    typer.echo(f"{file}")


@app.command()
def export(
    run: RunOnDisk,
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="of the tables: csv or parquet")] = "csv",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="folder of the tables  [default: that of the run]")
    ] = None,
    start: Annotated[
        int | None, typer.Option("--from", min=0, metavar="CYCLE", help="spans from this cycle on")
    ] = None,
    end: Annotated[int | None, typer.Option("--to", min=1, metavar="CYCLE", help="spans up to this cycle")] = None,
) -> None:
    """Write spans, memory over time and use of IPUs of a run as tables, with names instead of numbers."""
    from ipusim.app.run_folder.export import check_format, exported, table_names, timeline_file
    from ipusim.app.run_folder.folder import ResultsFolder

    check_format(form)
    folder = out or timeline_file(run).parent
    with ResultsFolder(folder, table_names(form), reads=(timeline_file(run),)) as results:
        files = exported(run, form, start, end)
        results.write(files)
    print_text(f"{folder}: {', '.join(files)}")
    for name in table_names(form):
        if name not in files:
            print_text(f"No {name}: the run has not written what its stages hold, which they may not say.")
