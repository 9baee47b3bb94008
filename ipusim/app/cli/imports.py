"""The command that takes what other tools measured: import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ipusim.app.cli.app import app
from ipusim.app.terminal import print_tables, print_text

_Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="traces of torch's profiler, JSON or packed by gzip, one of each rank; or a log of Megatron-LM with "
        "--timing-log-level 2 --timing-log-option all",
    ),
]
_Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        metavar="PASS=NAME",
        help="what is a forward, backward, backward_input, backward_weights or update; * is any text, {stage} the "
        "number of a stage: forward=fwd_{stage}_*, or encoder.forward=enc*  [default: names of "
        "torch.distributed.pipelining; Megatron's forward-compute, backward-compute and optimizer]",
    ),
]
_Stages = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="where names do not say the stage: stages that the ranks, in their order, are divided among  [default: as "
        "the log says, or one a rank]",
    ),
]
_Count = Annotated[
    int | None,
    typer.Option(
        min=1, max=2**31 - 1, metavar="N", help="micro-batches behind a weight update  [default: as measured]"
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.yaml", help="file for a scenario, with FILE.csv beside it  [default: the CSV is printed]"
    ),
]


@app.command("import")
def import_(
    files: _Files, names: _Names = None, stages: _Stages = None, count: _Count = None, out: _Out = None
) -> None:
    """Make stages of what a profiler measured: medians as a CSV file, which runs as it is, and a scenario of it."""
    from ipusim.app.profiles.read import read_measured
    from ipusim.app.profiles.stages import stages_of
    from ipusim.app.profiles.written import csv_text, figures_table, legal_count, scenario_text
    from ipusim.app.run_folder.output_file import IMPORTED, IMPORTED_TABLE, check_output
    from ipusim.base.files import write_file

    table = None if out is None else out.with_suffix(".csv")
    if out is not None and table is not None:
        check_output(out, IMPORTED, files)
        check_output(table, IMPORTED_TABLE, files)
    measured = stages_of(read_measured(files, names or (), count), stages, count)
    if out is None or table is None:
        typer.echo(csv_text(measured), nl=False)
        for note in measured.notes:
            typer.echo(note, err=True)
        return
    text = scenario_text(measured, table.name, [path.name for path in files]).encode()
    write_file(table, csv_text(measured).encode())
    write_file(out, text)
    print_tables(figures_table(measured))
    print_text(*measured.notes, *filter(None, [legal_count(measured)[1]]), f"{out}, {table}")
