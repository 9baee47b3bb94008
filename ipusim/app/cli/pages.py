"""Commands ``report`` and ``show``: show stored runs, or export parts of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ipusim.app.cli.app import End, Execution, PageTitle, PhaseName, Size, Start, Theme, Title, allow_only, app
from ipusim.app.terminal import print_text
from ipusim.base.errors import OptionError, install_command

if TYPE_CHECKING:
    from ipusim.app.render.window import ShownPart


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders of runs")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="the page  [default: report.html, or play.html, in the first RUN]"),
    ] = None,
    play: Annotated[
        bool, typer.Option("--play", help="play the first execution of one RUN, or those of two RUNs at the same time")
    ] = False,
    title: PageTitle = "",
) -> None:
    """Write one HTML page of runs: traces to zoom into, memory, causes of waiting, tables; works without network.

    The button Play starts an animation: passes as they run, and the work that waits on each IPU. A page made with
    --play opens with the animation.
    """
    from ipusim.app.page.page import write_page

    page = write_page(runs, out, play=play, title=title)
    print_text(f"{page}: opens in any browser, {page.stat().st_size / 2**20:.1f} MiB")


@app.command()
def show(
    context: typer.Context,
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="the folder of a run, or its timeline.npz; with --perfetto any trace file"),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="the picture (.png, .svg or .pdf), or tables (.csv or .parquet): spans.csv is written together with "
            "memory.csv and ipus.csv, and a file of another name, x.csv, with x-memory.csv and x-ipus.csv  "
            "[default: trace-<part of the run>.png in the timeline's folder]",
        ),
    ] = None,
    start: Start = None,
    end: End = None,
    phase: PhaseName = None,
    execution: Execution = None,
    title: Title = "",
    size: Size = "",
    theme: Theme = "light",
    perfetto: Annotated[
        bool,
        typer.Option(
            "--perfetto",
            help="open the trace in Perfetto if it is installed here, else print how to open it elsewhere",
        ),
    ] = False,
    browser: Annotated[
        bool, typer.Option(" /--no-browser", help="with --perfetto: only print the address", show_default=False)
    ] = True,
) -> None:
    """Show a stored run: its trace as a picture, whole or zoomed, or in Perfetto, or tables of the run.

    The tables are the spans between --from and --to, the memory over time, and the use of IPUs; they contain names in
    place of index numbers.
    """
    from ipusim.app.render.window import ShownPart
    from ipusim.app.run_folder.export import TABLES

    if perfetto:
        allow_only(context, "--perfetto", "run", "no-browser")
        _open_in_perfetto(run, browser)
    elif out is not None and out.suffix.lower() in TABLES:
        allow_only(context, "tables", "run", "out", "from", "to")
        _write_tables(run, out, start, end)
    else:
        allow_only(context, "a picture", "run", "out", "from", "to", "phase", "execution", "title", "size", "theme")
        _draw(run, out, ShownPart(start, end, phase, execution), (title, size, theme))


def _open_in_perfetto(run: Path, browser: bool) -> None:
    """Serve a run's trace in a local Perfetto until a signal; without Perfetto, print instructions."""
    import signal
    import threading
    import webbrowser

    from ipusim.app.run_folder.export import run_file
    from ipusim.app.run_folder.stored import TRACE_FILE
    from ipusim.app.run_folder.view import local_perfetto, serve

    trace, perfetto = run_file(run, TRACE_FILE), local_perfetto()
    if perfetto is None:
        print_text(
            f"No Perfetto is installed here. Open https://ui.perfetto.dev in a browser and drop {trace} on it: the "
            f"trace stays on your machine. Or install one: {install_command('view')}, and run this command again."
        )
        return
    finish = threading.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):  # the usual signals that end a server
        signal.signal(signal_number, lambda *_: finish.set())
    with serve(trace, perfetto) as address:
        print_text(f"{trace} in Perfetto: {address} (Ctrl+C ends this)")
        if browser:
            webbrowser.open(address)
        finish.wait()


def _draw(run: Path, out: Path | None, part: ShownPart, picture_options: tuple[str, str, str]) -> None:
    """Draw a window of a run's execution trace: a cycle range or phase."""
    from ipusim.api import Timeline, runs
    from ipusim.app.render.picture import Picture
    from ipusim.app.run_folder.export import TABLES, TIMELINE, run_file
    from ipusim.app.run_folder.output_file import PICTURE, check_output
    from ipusim.app.run_folder.pictures import picture
    from ipusim.app.run_folder.report import picture_name, picture_window
    from ipusim.base.files import write_file

    if out is not None and out.suffix.lower() not in PICTURE.marks:
        endings = runs.one_of((*PICTURE.marks, *TABLES))
        raise OptionError("out", f"expected a picture or tables named {endings}, got {out}")
    options = Picture(*picture_options)
    timeline = run_file(run, TIMELINE)
    file = out or timeline.with_name(picture_name(part))
    check_output(file, PICTURE, (timeline,))
    stored_run = Timeline.load(timeline)
    write_file(
        file, picture(stored_run, picture_window(stored_run, part), file.suffix, options), follow=out is not None
    )
    typer.echo(f"{file}")


def _write_tables(run: Path, out: Path, start: int | None, end: int | None) -> None:
    """Write spans to a file, and memory and use of IPUs to neighbouring files."""
    from ipusim.app.run_folder.export import TIMELINE, export_files, run_file, table_names
    from ipusim.app.run_folder.folder import ResultsFolder

    names = table_names(out)
    with ResultsFolder(out.parent, names, reads=(run_file(run, TIMELINE),)) as results:
        files = export_files(run, out, start, end)
        results.write(files)
    reason = "the run has stored no memory; perhaps its stages do not state their bytes."
    print_text(f"{out.parent}: {', '.join(files)}", *(f"No {name}: {reason}" for name in names if name not in files))
