"""The command that says why a run takes as long as it does: explain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ipusim.app.cli.app import Overrides, app
from ipusim.app.terminal import interruptible, keep_watch, print_table, print_text


@app.command()
def explain(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="a run folder, or a scenario, which is run for time", show_default=False),
    ],
    execution: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="explain one execution of the pipeline  [default: all]", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="folder of the results  [default: the run folder, or reports/<name>]",
            show_default=False,
        ),
    ] = None,
    overrides: Overrides = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust", help="of a run folder: run the Python, read the files elsewhere that its scenario names"
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print explanation.json and nothing else")] = False,
) -> None:
    """Say why a run takes as long as it does: idle time by cause, the critical path, and what changes would give."""
    from ipusim.app.explain.explanation import explain
    from ipusim.app.run_folder.folder import ResultsFolder
    from ipusim.app.run_folder.opened import opened
    from ipusim.app.run_folder.report import EXPLANATION_FILES

    keep_watch()
    found = opened(run, overrides or (), trust=trust)
    with interruptible() as heed, ResultsFolder(out or found.folder, EXPLANATION_FILES, reads=(run,)) as results:
        explanation = explain(found.timeline, found.job, execution)
        files = explanation.files()
        heed()
        results.write(files)
    if as_json:
        typer.echo(files["explanation.json"].decode(), nl=False)
        return
    print_text(*explanation.words())
    typer.echo()
    for table in explanation.tables():
        print_table(table)
    print_text(f"{out or found.folder}: {', '.join(files)}")
