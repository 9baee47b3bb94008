"""The command that holds runs against each other: compare."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ipusim.app.cli.app import Overrides, app
from ipusim.app.terminal import interruptible, keep_watch, print_table, print_text, progress

if TYPE_CHECKING:
    from ipusim.app.compare.compare import Compared
    from ipusim.app.scenario.problems import ScenarioError


_Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", help="scenarios, YAML or CSV files, and folders of runs", show_default=False),
]
_Schedules = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="the schedules, separated by commas, or all  [default: each scenario's own; of one scenario alone "
        "Graphcore's own: grouped, interleaved, sequential and sharded; `ipusim schedule` lists all]",
        show_default=False,
    ),
]
_Orders = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="the selection orders to run each in, separated by commas: AUTO, ZIGZAG, SNAKE, HOOF  [default: that of "
        "the scenario]",
        show_default=False,
    ),
]
_Sync = Annotated[
    str,
    typer.Option(
        metavar="MODES",
        help="the sync modes to run each in, separated by commas: lock_step, point_to_point  [default: that of the "
        "scenario, or the schedule's own]",
        show_default=False,
    ),
]
_Disturbances = Annotated[
    str | None,
    typer.Option(
        "--disturbances",
        metavar="LIST",
        help="disturb each scenario so, in place of its own disturbances, such as '[{jitter: 10 %}]', and say what it "
        "costs: S",
        show_default=False,
    ),
]
_Title = Annotated[
    str,
    typer.Option(
        metavar="TEXT",
        help="of the picture; its rows have the names of scenarios  [default: what all runs are of]",
        show_default=False,
    ),
]
_Traces = Annotated[
    list[str] | None,
    typer.Option(
        "--trace",
        metavar="NAME",
        help="a run whose trace is to stand in the picture, by its name in the table; may be repeated  [default: the "
        "best, the first and others, as many as fit]",
        show_default=False,
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="folder of the results  [default: reports/<name>, of several reports/comparison]"),
]


@app.command()
def compare(
    runs: _Runs,
    schedules: _Schedules = None,
    orders: _Orders = "",
    sync: _Sync = "",
    syncs: Annotated[str, typer.Option(hidden=True)] = "",
    losses: Annotated[
        bool, typer.Option("--losses", help="compute too, and compare the last step's mean loss")
    ] = False,
    disturbances: _Disturbances = None,
    title: _Title = "",
    traces: _Traces = None,
    out: _Out = None,
    overrides: Overrides = None,
) -> None:
    """Compare scenarios and runs, or one scenario under several schedules, orders and sync modes; say which is best."""
    from ipusim.api import RequestError
    from ipusim.api import schedules as core_schedules
    from ipusim.app.compare.compare import GRAPHCORES
    from ipusim.app.compare.compare import compare as compare_runs
    from ipusim.app.compare.comparison import Comparison
    from ipusim.app.compare.comparison_files import COMPARISON_FILES, comparison_files
    from ipusim.app.compare.comparison_words import comparison_table, reasons, verdict
    from ipusim.app.run_folder.folder import ResultsFolder

    overrides = [*(overrides or ()), *([] if disturbances is None else [f"disturbances={disturbances}"])]
    names = None if schedules is None else core_schedules.called(_listed(schedules))
    laid_out, modes = _listed(orders), _listed(f"{sync},{syncs}")
    compared = _read(runs, overrides)
    folder = out or Path("reports") / (compared[0].name if len(compared) == 1 else "comparison")
    keep_watch()
    with interruptible() as heed, ResultsFolder(folder, COMPARISON_FILES, reads=runs) as results:
        try:
            with progress("comparing", heed) as report:
                rows = compare_runs(compared, names, modes, laid_out, losses=losses, progress=report)
        except RequestError:
            first = {
                "pipeline.schedule": names or GRAPHCORES,
                "system.selection_order": laid_out,
                "pipeline.sync": modes,
            }
            variant = [f"{key}={values[0]}" for key, values in first.items() if values]
            _raise_placed(runs, overrides, variant)
            raise
        result = Comparison(rows)
        files = comparison_files(result, title, traces or ())
        heed()
        results.write(files)
    print_text(*verdict(result))
    print_table(comparison_table(result))
    print_text(*reasons(result))
    print_text(f"{folder}: {', '.join(files)}")


def _read(runs: Sequence[Path], overrides: Sequence[str]) -> list[Compared]:
    """Return the runs and requests of paths; raises ScenarioError with the problems of all scenarios."""
    from ipusim.app.compare.compare import Compared
    from ipusim.app.run_folder.stored import read_run
    from ipusim.app.scenario.load import load_request
    from ipusim.app.scenario.problems import ScenarioError
    from ipusim.base.errors import OptionError

    if overrides and all(path.is_dir() for path in runs):
        raise OptionError("set", "expected a scenario whose keys to change, got runs that lie in folders")
    compared: list[Compared] = []
    wrong: list[ScenarioError] = []
    for path in runs:
        try:
            compared.append(Compared(read_run(path) if path.is_dir() else load_request(path, overrides), str(path)))
        except ScenarioError as error:
            wrong.append(error)
    _raise_all(wrong)
    return compared


def _raise_placed(runs: Sequence[Path], overrides: Sequence[str], variant: Sequence[str]) -> None:
    """Raise the problems of scenarios with their places, as the files have them or else in one variant."""
    from ipusim.app.scenario.load import load_job
    from ipusim.app.scenario.problems import ScenarioError

    for changes in (overrides, (*overrides, *variant)):
        wrong: list[ScenarioError] = []
        for path in runs:
            try:
                if not path.is_dir():
                    load_job(path, changes)
            except ScenarioError as error:
                wrong.append(error)
        _raise_all(wrong)


def _raise_all(wrong: Sequence[ScenarioError]) -> None:
    """Raise the errors of several scenarios as one ScenarioError, if there are any."""
    from ipusim.app.scenario.problems import ScenarioError

    if len(wrong) > 1:
        raise ScenarioError(problem for error in dict.fromkeys(wrong) for problem in error.problems)
    if wrong:
        raise wrong[0]


def _listed(names: str) -> list[str]:
    """Return names that stand with commas between them."""
    return [name.strip() for name in names.split(",") if name.strip()]
