"""Command ``sweep``: run a scenario at many values of its options."""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ipusim.app.cli.app import Overrides, Size, Theme, Title, Workers, app, output_option, printing
from ipusim.app.study.figures import MEASURE_NAMES
from ipusim.app.terminal import interruptible, print_result, progress, resume_garbage_collection
from ipusim.base.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ipusim.app.run_folder.folder import ResultsFolder
    from ipusim.app.sweep.journal import Journal
    from ipusim.app.sweep.study_file import Study
    from ipusim.app.sweep.sweep import Sweep

#: Minimum seconds between writes of finished rows.
_LEAST_INTERVAL_S: Final = 1.0
#: Extensions of row files.
_ROW_EXTENSIONS: Final = (".csv", ".parquet")


ScenarioOrStudy = Annotated[
    Path,
    typer.Argument(
        metavar="SCENARIO", help="a scenario, or a study file with the keys scenario, vary, zip and measure"
    ),
]
Vary = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        metavar="PATH=VALUES",
        help="values of a key, separated by commas, or a range: 16,32,64 or 8..256x2 or 8..64+8; the values of "
        "several keys are crossed",
    ),
]
Zip = Annotated[
    bool, typer.Option("--zip", help="combine the first values of all keys, then the second values, and so on")
]
Seeds = Annotated[
    int | None,
    typer.Option(
        "--seeds",
        metavar="N",
        help="run a scenario with jitter N times with different seeds, and print the distribution of its time",
    ),
]
Slower = Annotated[
    float | None,
    typer.Option(
        "--slower",
        metavar="TIMES",
        help="slow down each IPU and each cable by this factor, one at a time, for all values to vary, and print the "
        "most costly",
    ),
]
MeasureName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="figure that ranks the points and is drawn, or its name under expect: "
        f"{', '.join(MEASURE_NAMES[:-1])} or {MEASURE_NAMES[-1]}  [default: throughput]",
    ),
]
Losses = Annotated[
    bool, typer.Option("--losses", help="run the arithmetic too; the default simulates only time, much faster")
]
Backend = Annotated[str, typer.Option(metavar="NAME", help="executor of the points: local or dask")]
Address = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="address of a Dask cluster, such as tcp://10.0.0.1:8786")
]
_CHART_FILES: Final = "the rows as .csv or .parquet, .json, .md, or the chart as .png, .svg or .pdf"
Out = Annotated[Path | None, output_option("reports/<name>", _CHART_FILES)]


@app.command()
@printing
def sweep(
    scenario: ScenarioOrStudy,
    vary: Vary = None,
    side_by_side: Zip = False,
    seeds: Seeds = None,
    slower: Slower = None,
    measure: MeasureName = None,
    losses: Losses = False,
    workers: Workers = None,
    backend: Backend = "local",
    address: Address = None,
    title: Title = "",
    size: Size = "",
    theme: Theme = "light",
    out: Out = None,
    overrides: Overrides = None,
    output_form: str = "",
) -> None:
    """Run a scenario at every point of varied options; print the best. After Ctrl-C the same command goes on."""
    from ipusim.api import RequestError
    from ipusim.app.render.picture import Picture
    from ipusim.app.run_folder.folder import ResultsFolder
    from ipusim.app.scenario.load import load_request
    from ipusim.app.study.result import folder_and_names, written
    from ipusim.app.sweep.crew import Crew
    from ipusim.app.sweep.journal import Journal
    from ipusim.app.sweep.measures import measure_of
    from ipusim.app.sweep.study_file import ALL_FILES, read_study
    from ipusim.app.sweep.sweep import sweep as run_points

    study = read_study(scenario, vary or (), side_by_side, seeds=seeds, slower=slower)
    chosen_measure = measure_of(measure or study.measure or "throughput", losses=losses)
    picture = Picture(title, size, theme)
    crew = Crew(workers, backend, address)
    crew.check()
    request = load_request(study.scenario, overrides or ())
    study = study.with_axes_of(request)
    target = out or Path("reports") / request.name
    folder, names = folder_and_names(target, study.kind)
    reads = request.paths(scenario, study.scenario)
    resume_garbage_collection()
    with (
        interruptible() as check_interrupt,
        ResultsFolder(folder, ALL_FILES if folder == target else names, reads=reads) as results,
        Journal(results) as journal,
        _report_stored_points(journal, target),
        _write_finished_rows(results, [name for name in names if name.endswith(_ROW_EXTENSIONS)]) as show,
    ):
        try:
            with progress("sweeping", check_interrupt) as report:
                swept = run_points(request, study.axes, study.is_zipped, losses, crew, journal, report, show)
        except RequestError:
            _raise_with_places(study, overrides or ())
            raise
        result = study.result(swept, request, chosen_measure, picture)
        files = result.files(names)
        check_interrupt()
        results.write(files)
    print_result(result, output_form, written(target, files))


def _raise_with_places(study: Study, overrides: Sequence[str]) -> None:
    """Raise the error of a refused sweep as a ScenarioError, with places in the file.

    The scenario is checked first, then the study's first point. Returns if both are valid.
    """
    from ipusim.app.scenario.load import load_job

    load_job(study.scenario, overrides)
    study.first_job(overrides)


@contextmanager
def _report_stored_points(journal: Journal, target: Path) -> Iterator[None]:
    """Print the number of damaged stored points; after an interrupt, print how to continue."""
    if journal.damaged:
        typer.echo(f"{target}: {journal.damaged} of the stored points are damaged and simulated again", err=True)
    try:
        yield
    except KeyboardInterrupt:
        count = sum(outcome.has_run for outcome in journal.outcomes.values())
        advice = f"{counted(count, 'simulated point')} {'is' if count == 1 else 'are'} stored"
        advice += ", and the same command simulates only missing points" if count else ""
        typer.echo(f"{target}: interrupted. {advice}", err=True)
        raise


@contextmanager
def _write_finished_rows(results: ResultsFolder, names: Sequence[str]) -> Iterator[Callable[[Sweep], None]]:
    """Yield a function that writes the rows of finished points every few seconds, so interrupts lose none."""
    from ipusim.app.sweep.report import SweepResult

    last: Sweep | None = None
    last_time = time.monotonic()

    def write() -> None:
        if last is not None and names:
            results.write(SweepResult(last).files(names))

    def show(swept: Sweep) -> None:
        nonlocal last, last_time
        if any(outcome.has_run for _, outcome in swept.finished_points[-1:]) or last is not None:
            last = swept
            if time.monotonic() - last_time > _LEAST_INTERVAL_S:
                write()
                last_time = time.monotonic()

    try:
        yield show
    except BaseException:  # an interrupt, too
        write()
        raise
