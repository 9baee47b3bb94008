"""Command ``compare``: compare runs, schedules, selection orders and sync modes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ipusim.app.cli.app import Overrides, Size, Theme, app, output_option, printing, split_names, sync_modes
from ipusim.app.terminal import interruptible, print_result, progress, resume_garbage_collection

if TYPE_CHECKING:
    from ipusim.app.compare.compare import ComparedItem

_T = TypeVar("_T")

_Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN...", help="scenarios, YAML or CSV files, and folders of runs")
]
_Schedules = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="the schedules, separated by commas, or all  [default: the schedule of each scenario; for one scenario "
        "Graphcore's: grouped, interleaved, sequential and sharded; `ipusim schedule` lists all]",
    ),
]
_Orders = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="selection orders for each scenario, separated by commas: AUTO, ZIGZAG, SNAKE, HOOF  [default: the "
        "scenario's]",
    ),
]
_Sync = Annotated[str | None, sync_modes("for each scenario", "the scenario's, or the schedule's")]
_Disturbances = Annotated[
    str | None,
    typer.Option(
        "--disturbances",
        metavar="LIST",
        help="disturbances of each scenario, instead of its own, such as '[{jitter: 10 %}]'; print S, the ratio of "
        "times with and without them; a single scenario also runs without disturbances, unless schedules, orders or "
        "sync modes are compared",
    ),
]
_Title = Annotated[
    str,
    typer.Option(
        metavar="TEXT",
        help="title of the picture; its rows have the names of scenarios  [default: the common description of all "
        "runs]",
    ),
]
_Traces = Annotated[
    list[str] | None,
    typer.Option(
        "--trace",
        metavar="NAME",
        help="run whose trace the picture shows, by its name in the table; may be repeated  [default: the best run, "
        "the first run, and further runs that fit in the picture]",
    ),
]
_Out = Annotated[Path | None, output_option("reports/<name>, for several scenarios reports/comparison")]


@app.command()
@printing
def compare(
    runs: _Runs,
    schedules: _Schedules = None,
    orders: _Orders = None,
    sync: _Sync = None,
    syncs: Annotated[str | None, typer.Option(hidden=True)] = None,  # other spelling of --sync
    losses: Annotated[
        bool, typer.Option("--losses", help="run the arithmetic too, and compare the last step's mean loss")
    ] = False,
    disturbances: _Disturbances = None,
    title: _Title = "",
    size: Size = "",
    theme: Theme = "light",
    traces: _Traces = None,
    out: _Out = None,
    overrides: Overrides = None,
    output_form: str = "",  # set by @printing
) -> None:
    """Compare scenarios and runs, or one scenario under several schedules, orders and sync modes; name the best."""
    from ipusim.api import RequestError
    from ipusim.api import schedules as core_schedules
    from ipusim.app.compare.compare import GRAPHCORE_SCHEDULES
    from ipusim.app.compare.compare import compare as compare_runs
    from ipusim.app.compare.comparison import Comparison
    from ipusim.app.compare.comparison_files import ComparisonResult
    from ipusim.app.render.picture import Picture
    from ipusim.app.run_folder.folder import ResultsFolder
    from ipusim.app.study.result import folder_and_names, written

    picture = Picture(size=size, theme=theme)
    overrides = _with_disturbances(overrides or (), disturbances)
    names = None if schedules is None else core_schedules.expand_names(split_names("schedules", schedules))
    if names is not None and len(folders := {path.parent for path in runs if not path.is_dir()}) == 1:
        row_name_of = {name: core_schedules.named_from(name, *folders) for name in names}
        names = [row_name_of[name] for name in names]
        traces = [row_name_of.get(trace, trace) for trace in traces or ()]
    selection_orders, modes = split_names("orders", orders), [*split_names("sync", sync), *split_names("syncs", syncs)]
    items = _read(runs, overrides)
    target = out or Path("reports") / (items[0].name if len(items) == 1 else "comparison")
    if disturbances is not None and names is None and not selection_orders and not modes:
        items = _with_undisturbed(items)
    folder, names_of_files = folder_and_names(target, ComparisonResult)
    resume_garbage_collection()
    with interruptible() as check_interrupt, ResultsFolder(folder, names_of_files, reads=runs) as results:
        try:
            with progress("comparing", check_interrupt) as report:
                rows = compare_runs(items, names, modes, selection_orders, losses=losses, progress=report)
        except RequestError:
            compared_values = {
                "pipeline.schedule": names or GRAPHCORE_SCHEDULES,
                "system.selection_order": selection_orders,
                "pipeline.sync": modes,
            }
            _raise_with_places(runs, overrides, compared_values)
            raise
        result = ComparisonResult(Comparison(rows), title, traces or (), picture)
        files = result.files(names_of_files)
        check_interrupt()
        results.write(files)
    print_result(result, output_form, written(target, files))


def _read(runs: Sequence[Path], overrides: Sequence[str]) -> list[ComparedItem]:
    """Read runs and requests from paths; raises ScenarioError with the problems of all scenarios."""
    from ipusim.app.compare.compare import ComparedItem
    from ipusim.app.run_folder.stored import read_run
    from ipusim.app.scenario.load import load_request
    from ipusim.base.errors import OptionError

    if overrides and all(path.is_dir() for path in runs):
        option = getattr(overrides[-1], "option", "set")
        raise OptionError(option, "expected a scenario with keys to change, got run folders")
    return _read_all(
        runs, lambda path: ComparedItem(read_run(path) if path.is_dir() else load_request(path, overrides), str(path))
    )


def _with_disturbances(overrides: Sequence[str], disturbances: str | None) -> list[str]:
    """Return the overrides, with the disturbances of --disturbances if given."""
    from ipusim.app.scenario.overrides import OptionOverride

    if disturbances is None:
        return [*overrides]
    return [*overrides, OptionOverride("disturbances", "disturbances", disturbances)]


def _with_undisturbed(items: Sequence[ComparedItem]) -> list[ComparedItem]:
    """Put a copy without disturbances before a single scenario; return several items or a run folder unchanged."""
    from ipusim.api import Request
    from ipusim.app.compare.compare import ComparedItem

    first, *others = items
    if others or not isinstance(first.source, Request):
        return list(items)
    undisturbed = replace(first.source.replace({"disturbances": []}), name=f"{first.name}, undisturbed")
    return [ComparedItem(undisturbed, f"{first.text}, undisturbed"), first]


def _raise_with_places(
    runs: Sequence[Path], overrides: Sequence[str], compared_values: Mapping[str, Sequence[str]]
) -> None:
    """Raise the problems of scenarios with their places in the files, or else the problems of the first variant."""
    from ipusim.app.scenario.load import load_job

    first_variant = [f"{key}={values[0]}" for key, values in compared_values.items() if values]
    scenarios = [path for path in runs if not path.is_dir()]
    for changes in (overrides, (*overrides, *first_variant)):
        _read_all(scenarios, partial(load_job, overrides=changes))


def _read_all(paths: Sequence[Path], read: Callable[[Path], _T]) -> list[_T]:
    """Apply ``read`` to each path; raises the errors of several scenarios as one ScenarioError."""
    from ipusim.app.scenario.problems import ScenarioError

    result: list[_T] = []
    errors: list[ScenarioError] = []
    for path in paths:
        try:
            result.append(read(path))
        except ScenarioError as error:
            errors.append(error)
    if len(errors) > 1:
        raise ScenarioError(problem for error in dict.fromkeys(errors) for problem in error.problems)
    if errors:
        raise errors[0]
    return result
