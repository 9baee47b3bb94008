"""Commands that hold the cost model against the world: validate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ipusim.cli.app import app
from ipusim.errors import OptionError
from ipusim.terminal import print_table


@app.command()
def validate(
    products: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="your own products, with columns m, k, n, dtype (fp16 or fp32) and TFLOP/s; nothing is fitted to them "
            " [default: the measured ones that the rates were fitted to]",
            show_default=False,
        ),
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="your own throughputs, with columns model (a name or a scenario), machine, ipus, micro_batch, count, "
            "items_per_s, and if you like framework, items, settings, source; nothing is fitted to them  "
            "[default: the published ones]",
            show_default=False,
        ),
    ] = None,
    ipu: Annotated[
        str | None,
        typer.Option(
            metavar="IPU",
            help="the chip that your products were measured on: GC2, GC200 or BOW  [default: BOW]",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="folder for tables and pictures", show_default=False)
    ] = None,
) -> None:
    """Hold what is simulated against the world: products, whole trainings, links and the host, with each error."""
    from ipusim.study.folder import ResultsFolder
    from ipusim.study.validation import VALIDATION_FILES, validated

    if ipu is not None and products is None:
        raise OptionError("ipu", "expected rows of your own with it, in {}, got none", "products")
    found = validated(products, rows, ipu)
    for line in found.verdicts():
        typer.echo(line)
    typer.echo()
    for part in found.parts():
        for table in part.tables:
            print_table(table)
        for line in part.words:
            typer.echo(line)
        typer.echo()
    if out is not None:
        with ResultsFolder(out, VALIDATION_FILES) as results:
            files = found.files()
            results.write(files)
        typer.echo(f"{out}: {', '.join(files)}")
