"""The command that lets time pass: run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ipusim.cli.app import End, Execution, Out, Overrides, PhaseName, ScenarioPath, Start, app
from ipusim.errors import OptionError, OutputError
from ipusim.terminal import interruptible, keep_watch, print_table, progress

if TYPE_CHECKING:
    from ipusim.runs.run import Run


@app.command()
def run(
    scenario: ScenarioPath,
    out: Out = None,
    overrides: Overrides = None,
    start: Start = None,
    end: End = None,
    phase: PhaseName = None,
    execution: Execution = 0,
    trace_format: Annotated[
        str, typer.Option("--trace-format", metavar="FORMAT", help="of the trace file: perfetto or chrome")
    ] = "perfetto",
    verbose: Annotated[bool, typer.Option("--verbose", help="print every table behind the verdict")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="print nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print summary.json and nothing else")] = False,
) -> None:
    """Run a scenario; write losses, weights, timeline, trace and pictures; print the verdict."""
    from ipusim.runs.execute import execute
    from ipusim.scenario.load import load_job
    from ipusim.study.folder import ResultsFolder
    from ipusim.study.report import RESULT_FILES, check_picture, check_trace_format, picture_window, run_files

    if verbose + quiet + as_json > 1:
        raise OptionError("verbose", "expected one of {}, {} and {}, got several", "verbose", "quiet", "json")
    job = load_job(scenario, overrides or ())
    folder = out or Path("reports") / job.name
    check_picture(job.executions, start, end, phase, execution)
    check_trace_format(trace_format)
    keep_watch()
    with interruptible() as heed, ResultsFolder(folder, RESULT_FILES) as results:
        with progress(job.name, heed) as told:
            result = execute(job, told)
        missing = ""
        try:
            window = picture_window(result.timeline, start, end, phase, execution)
        except OutputError as error:  # only the run itself shows that there is no such part; its results are kept
            missing = f"{error}; the picture shows execution {execution} instead"
            window = picture_window(result.timeline, execution=execution)
        files = run_files(result, window, folder, trace_format)
        heed()
        results.write(files)
    if as_json:
        typer.echo(files["summary.json"].decode(), nl=False)
    elif not quiet:
        _print_run(result, verbose)
        typer.echo(f"{folder}: {', '.join(files)}")
    if missing:
        raise OutputError(missing)


def _print_run(result: Run, verbose: bool) -> None:
    """Print the verdict on a run, and every table behind it where those are asked for."""
    from ipusim.render.verdict import verdict_table

    if result.job.request.description:
        typer.echo(result.job.request.description)
    print_table(verdict_table(result.summary))
    if verbose:
        _print_tables(result)
    for note in result.summary.notes:
        typer.echo(note)


def _print_tables(result: Run) -> None:
    """Print what a run came to, table by table."""
    from ipusim.render.tables import ipu_table, summary_table
    from ipusim.study import tables

    job = result.job
    print_table(summary_table(result.summary))
    if (options := tables.option_table(job.program, job.system)).rows:
        print_table(options)
    print_table(ipu_table(result.summary))
    if result.describes_memory:
        print_table(tables.memory_table(result.memory, result.timeline))
        print_table(tables.holder_table(result.memory))
    if result.learning is not None and (learned := tables.learning_table(result.learning)).rows:
        print_table(learned)
    orders = result.summary.selection_orders
    if orders[0].routes:
        print_table(tables.order_table(orders))
        print_table(tables.route_table(orders))
    typer.echo(tables.order_words(result.job.system, orders))
