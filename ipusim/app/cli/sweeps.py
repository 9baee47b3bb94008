"""The command that runs a scenario with other values for some of its options, over and over: sweep."""

from __future__ import annotations

import time
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ipusim.app.cli.app import Out, Overrides, Size, Theme, Title, Workers, app
from ipusim.app.terminal import interruptible, keep_watch, print_tables, print_text, progress
from ipusim.base.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ipusim.api import analysis
    from ipusim.app.render.picture import Picture
    from ipusim.app.run_folder.folder import ResultsFolder
    from ipusim.app.sweep.ceiling import Ceiling
    from ipusim.app.sweep.ensemble import Ensemble
    from ipusim.app.sweep.study_file import Study
    from ipusim.app.sweep.sweep import Sweep
    from ipusim.app.sweep.weak_points import WeakPoints

#: Seconds from one writing of the rows that are there to the next.
_EVERY_S: Final = 1.0


ScenarioOrStudy = Annotated[
    Path,
    typer.Argument(
        metavar="SCENARIO", help="the scenario, or a study file with the keys scenario, vary, zip and measure"
    ),
]
Vary = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        metavar="PATH=VALUES",
        help="values for a key, with commas between them, or a range: 16,32,64 or 8..256x2 or 8..64+8; several are "
        "crossed",
    ),
]
Zip = Annotated[
    bool, typer.Option("--zip", help="take the first values of all keys together, then the second ones and so on")
]
Seeds = Annotated[
    int | None,
    typer.Option(
        "--seeds",
        metavar="N",
        help="run a scenario with jitter N times, each with seeds of its own, and say how its time is distributed",
    ),
]
Slower = Annotated[
    float | None,
    typer.Option(
        "--slower",
        metavar="TIMES",
        help="let each IPU and each cable take so many times as long, one at a time, under all values to vary, and say "
        "which costs most",
    ),
]
MeasureName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="what points are judged and drawn by, also by its name under expect: throughput, time "
        "(time_per_weight_update), makespan, bubble, utilisation, memory (peak), loss (mean_loss) or accuracy"
        "  [default: throughput]",
    ),
]
Losses = Annotated[
    bool, typer.Option("--losses", help="do the arithmetic too; else time alone is simulated, much faster")
]
Backend = Annotated[str, typer.Option(metavar="NAME", help="where points run: local or dask")]
Address = Annotated[str | None, typer.Option(metavar="ADDRESS", help="of a Dask cluster, such as tcp://10.0.0.1:8786")]
TableFormat = Annotated[str, typer.Option("--format", metavar="FORMAT", help="of the rows: csv, or parquet beside it")]


@app.command()
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
    table_format: TableFormat = "csv",
    title: Title = "",
    size: Size = "",
    theme: Theme = "light",
    out: Out = None,
    overrides: Overrides = None,
) -> None:
    """Run a scenario at every point of varied options; print the best, write the rows and a chart; can be resumed."""
    from ipusim.api import RequestError
    from ipusim.app.run_folder.folder import ResultsFolder
    from ipusim.app.scenario.load import load_request
    from ipusim.app.sweep.ceiling import ceilings
    from ipusim.app.sweep.crew import Crew
    from ipusim.app.sweep.journal import Journal
    from ipusim.app.sweep.measures import measure_of
    from ipusim.app.sweep.report import check_format, sweep_files
    from ipusim.app.sweep.study_file import ALL_FILES, read_study
    from ipusim.app.sweep.sweep import sweep as run_points

    study = read_study(scenario, vary or (), side_by_side, seeds=seeds, slower=slower)
    chosen = measure_of(measure or study.measure or "throughput", losses=losses)
    check_format(table_format)
    picture = _picture(title, size, theme, special=bool(seeds or slower))
    (crew := Crew(workers, backend, address)).check()
    study = study.with_axes_of(request := load_request(study.scenario, overrides or ()))
    folder = out or Path("reports") / request.name
    keep_watch()
    with (
        interruptible() as heed,
        ResultsFolder(folder, ALL_FILES, reads=request.paths(scenario, study.scenario)) as results,
        Journal(results) as journal,
        _Landing(results) as landing,
    ):
        if journal.damaged:
            typer.echo(f"{folder}: {journal.damaged} of the points kept there are damaged and simulated anew", err=True)
        try:
            with progress("sweeping", heed) as report:
                swept = run_points(request, study.axes, study.together, losses, crew, journal, report, landing.show)
        except RequestError:
            _raise_placed(study, overrides or ())
            raise
        special = study.special(swept, request)
        limits = ceilings(swept)
        files = sweep_files(swept, limits, chosen, table_format, picture, drawn=special is None)
        files |= {} if special is None else special.files()
        heed()
        landing.end(files)
    _print(swept, limits, chosen, special)
    print_text(f"{folder}: {', '.join(files)}")


def _picture(title: str, size: str, theme: str, *, special: bool) -> Picture:
    """Return the options of the chart; raises OptionError beside options whose charts take none."""
    from ipusim.app.render.picture import Picture

    picture = Picture(title, size, theme)
    differing = [field.name for field in fields(picture) if getattr(picture, field.name) != field.default]
    if special and differing:
        raise OptionError(differing[0], "expected neither {} nor {} beside it", "seeds", "slower")
    return picture


def _raise_placed(study: Study, overrides: Sequence[str]) -> None:
    """Raise the ScenarioError of the scenario itself, else that of the first point of the study."""
    from ipusim.app.scenario.load import load_job

    load_job(study.scenario, overrides)
    study.first_job(overrides)


def _print(
    swept: Sweep, limits: Sequence[Ceiling], chosen: analysis.Figure, special: Ensemble | WeakPoints | None
) -> None:
    """Print the best point, the limits for large counts and the rows; or the results of a special kind of sweep."""
    from ipusim.app.sweep.report import ceiling_table, sweep_table, verdict

    if special is not None:
        print_text(*special.words())
        print_tables(special.table())
        return
    print_text(*verdict(swept, limits, chosen))
    print_tables(sweep_table(swept, chosen))
    if len(limits) > 1:
        print_tables(ceiling_table(limits, swept))


class _Landing:
    """Writes the rows that are there, now and then and when the sweep is interrupted."""

    def __init__(self, results: ResultsFolder) -> None:
        """Write into ``results``."""
        self.last: Sweep | None = None
        self._results = results
        self._written = time.monotonic()

    def __enter__(self) -> _Landing:
        return self

    def __exit__(self, *_: object) -> None:
        if self.last is not None:
            self._write(self.last)

    def show(self, swept: Sweep) -> None:
        """Write the table of a sweep after another point has ended, at most once in a while."""
        if any(outcome.ran for _, outcome in swept.finished[-1:]) or self.last is not None:
            self.last = swept
            if time.monotonic() - self._written > _EVERY_S:
                self._write(swept)
                self._written = time.monotonic()

    def end(self, files: Mapping[str, bytes]) -> None:
        """Write all files of the sweep."""
        self.last = None
        self._results.write(files)

    def _write(self, swept: Sweep) -> None:
        from ipusim.app.sweep.report import sweep_csv

        self._results.write({"sweep.csv": sweep_csv(swept)})
