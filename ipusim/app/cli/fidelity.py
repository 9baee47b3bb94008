"""Command ``validate``: compare the cost model with measurements, or fit rates to measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ipusim.app.cli.app import allow_only, app, printing, split_names
from ipusim.app.study.forms import PRINTED
from ipusim.app.terminal import print_result, print_text
from ipusim.base.errors import OptionError

if TYPE_CHECKING:
    from ipusim.app.study.result import Result

_ResultT = TypeVar("_ResultT", bound="Result")

_Rows = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.csv",
        help="your throughputs, with columns model (a name or a scenario), machine, ipus, micro_batch, count, "
        "items_per_s, and optionally framework, items, settings, source; no rate is fitted to your throughputs  "
        "[default: the published throughputs]",
    ),
]
Fit = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="ROWS.csv",
        help="fit rates to your throughputs, with the columns of --rows, or to cycles of stages, with a column "
        "scenario and the columns of `check --profile`; print the uncertainty of each rate; may be repeated",
    ),
]
Schedules = Annotated[
    bool,
    typer.Option(
        "--schedules",
        help="compare schedules with published values, rankings and forms; exit code 1 if a value no longer follows "
        "from its inputs",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="PLACE",
        help="folder for tables and pictures; with --fit a FILE.yaml for the rates, used in a scenario as `rates: "
        "FILE.yaml`",
    ),
]


@app.command()
@printing
def validate(
    context: typer.Context,
    products: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="your products, with columns m, k, n, dtype (fp16 or fp32) and TFLOP/s; no rate is fitted to your "
            "products  [default: the products that the rates are fitted to]",
        ),
    ] = None,
    rows: _Rows = None,
    ipu: Annotated[
        str | None,
        typer.Option(metavar="IPU", help="chip of your measured products: GC2, GC200 or BOW  [default: BOW]"),
    ] = None,
    fit: Fit = None,
    rates: Annotated[
        str | None,
        typer.Option(
            metavar="RATES",
            help="rates to fit with --fit, separated by commas, such as amp_ceiling,session_run; `devices --figures` "
            "lists all rates  [default: all rates of computation and of the measured hosts that the measurements "
            "determine]",
        ),
    ] = None,
    schedules: Schedules = False,
    out: Out = None,
    output_form: str = "",
) -> None:
    """Compare the simulator with measurements, and print the errors of products, trainings, links and the host."""
    if fit:
        allow_only(context, "--fit", "rates", "out", *PRINTED)
        _fit(fit, rates, out, output_form)
        return
    if schedules:
        allow_only(context, "--schedules", "out", *PRINTED)
        _schedules(out, output_form)
        return
    if rates is not None:
        raise OptionError("rates", "expected rows to fit the rates to, in {}, got none", "fit")
    if ipu is not None and products is None:
        raise OptionError("ipu", "expected measured products of this chip, in {}, got none", "products")
    from ipusim.app.fidelity.validation import Validation, validation_of

    reads = [path for path in (products, rows) if path is not None]
    _show(lambda: validation_of(products, rows, ipu), Validation, reads, out, output_form)


def _schedules(out: Path | None, output_form: str) -> None:
    """Compare schedules with published values, rankings and formulas."""
    from ipusim.app.published.validation import ScheduleValidation, validated_schedules

    result = _show(validated_schedules, ScheduleValidation, (), out, output_form)
    if failures := result.failures():
        if not output_form:
            print_text(*failures)
        raise typer.Exit(1)


def _show(
    compare: Callable[[], _ResultT], kind: type[_ResultT], reads: Sequence[Path], out: Path | None, output_form: str
) -> _ResultT:
    """Print a comparison, write its files into ``out`` if given, and return the comparison."""
    from ipusim.app.run_folder.folder import ResultsFolder
    from ipusim.app.study.result import folder_and_names, written

    if out is None:
        validation = compare()
        print_result(validation, output_form)
        return validation
    folder, names = folder_and_names(out, kind)
    with ResultsFolder(folder, names, reads=reads) as results:
        validation = compare()
        files = validation.files(names)
        results.write(files)
    print_result(validation, output_form, written(out, files))
    return validation


def _fit(rows: Sequence[Path], rates: str | None, out: Path | None, output_form: str) -> None:
    """Fit rates to measured throughputs or stages, and print their uncertainty."""
    from ipusim.app.fidelity.calibration import calibrate
    from ipusim.app.fidelity.calibration_report import CalibrationResult, rates_file
    from ipusim.app.fidelity.calibration_rows import read_measured
    from ipusim.app.run_folder.output_file import RATES, check_output
    from ipusim.base.files import write_file

    if out is not None:
        check_output(out, RATES, rows)
    calibration = calibrate(read_measured(rows), split_names("rates", rates))
    ends = []
    if out is not None:
        write_file(out, rates_file(calibration, out.name))
        ends = [f"{out}: a scenario in the same folder uses these rates with `rates: {out.name}`"]
    print_result(CalibrationResult(calibration), output_form, *ends)
