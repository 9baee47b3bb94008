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
            help="your own rows, with columns m, k, n, dtype (fp16 or fp32) and TFLOP/s; nothing is fitted to them  "
            "[default: the rows that the rates were fitted to, and micro-benchmarks]",
            show_default=False,
        ),
    ] = None,
    ipu: Annotated[
        str | None,
        typer.Option(
            metavar="IPU",
            help="the chip that your rows were measured on: GC2, GC200 or BOW  [default: BOW]",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="folder for tables and a picture", show_default=False)
    ] = None,
) -> None:
    """Hold the costs of dense products, links and the host against measured ones: print both, and the error of each."""
    from ipusim.hardware.generations import find_ipu
    from ipusim.study.folder import ResultsFolder
    from ipusim.study.micro_benchmarks import benchmark_table, benchmark_words, read_benchmarks
    from ipusim.study.product_rows import MEASURED, read_rows
    from ipusim.study.validate import (
        MEASURED_ON,
        VALIDATION_FILES,
        error_table,
        planner_rate_table,
        product_table,
        validate_products,
        validation_files,
        words,
    )

    if ipu is not None and products is None:
        raise OptionError("ipu", "expected rows of your own with it, in {}, got none", "products")
    chip = MEASURED_ON if ipu is None else find_ipu(ipu)
    rows = read_rows(products or MEASURED)
    validated = validate_products(rows, chip, fitted=products is None)
    print_table(product_table(validated))
    print_table(error_table(validated))
    print_table(planner_rate_table(rows, chip))
    for line in words(rows, chip, fitted=products is None):
        typer.echo(line)
    benchmarks = () if products else read_benchmarks()
    if benchmarks:
        typer.echo()
        print_table(benchmark_table(benchmarks))
        for line in benchmark_words(benchmarks):
            typer.echo(line)
    if out is not None:
        with ResultsFolder(out, VALIDATION_FILES) as results:
            files = validation_files(validated, benchmarks)
            results.write(files)
        typer.echo(f"{out}: {', '.join(files)}")
