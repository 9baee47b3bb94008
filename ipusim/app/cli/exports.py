"""Commands that take something out of a run folder: trace, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ipusim.app.cli.app import End, Execution, PhaseName, Start, app
from ipusim.app.terminal import print_text


@app.command()
def trace(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="the folder of a run, or its timeline.npz", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="the picture, .png, .svg or .pdf  [default: trace-<what it shows>.png beside the timeline]",
            show_default=False,
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
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="the folder of a run, or its timeline.npz", show_default=False)
    ],
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="of the tables: csv or parquet")] = "csv",
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="folder of the tables  [default: that of the run]", show_default=False),
    ] = None,
    start: Annotated[
        int | None, typer.Option("--from", min=0, metavar="CYCLE", help="spans from this cycle on", show_default=False)
    ] = None,
    end: Annotated[
        int | None, typer.Option("--to", min=1, metavar="CYCLE", help="spans up to this cycle", show_default=False)
    ] = None,
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
