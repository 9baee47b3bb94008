"""Command ``explain``: explain the time of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ipusim.app.cli.app import (
    Overrides,
    RunOrScenario,
    Size,
    Theme,
    Title,
    app,
    output_option,
    printing,
    split_names,
    sync_modes,
)
from ipusim.app.terminal import interruptible, print_result, print_text, resume_garbage_collection

ExecutionToExplain = Annotated[
    int | None,
    typer.Option(
        "--execution", min=0, metavar="N", help="explain the idle time of one execution of the pipeline  [default: all]"
    ),
]
Folder = Annotated[Path | None, output_option("the run folder, or reports/<name>")]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="for a run folder: let its scenario run Python, and read files outside the folder"),
]
WhatOption = Annotated[
    list[str] | None,
    typer.Option(
        "--what",
        metavar="CHANGES",
        help="try this change instead of the default changes: keys and values, separated by spaces, with xN for N "
        "times the present value, such as pipeline.gradient_accumulation_count=128 or rates.link=x2; may be repeated; "
        "every two changes are also tried together",
    ),
]
Modes = Annotated[str | None, sync_modes("of the tried schedules", "the run's")]
StragglerCosts = Annotated[
    bool,
    typer.Option(
        "--stragglers",
        help="print the slowdown by slower IPUs and passes, as S, S_t, S_w, M_W and M_S, with their definitions",
    ),
]


@app.command()
@printing
def explain(
    run: RunOrScenario,
    execution: ExecutionToExplain = None,
    out: Folder = None,
    overrides: Overrides = None,
    trust: Trust = False,
    changes: WhatOption = None,
    sync: Modes = None,
    stragglers: StragglerCosts = False,
    title: Title = "",
    size: Size = "",
    theme: Theme = "light",
    output_form: str = "",
) -> None:
    """Explain the time of a run: its parts, the critical path, and the effect of possible changes."""
    from ipusim.app.explain import settings
    from ipusim.app.explain.explanation import Explanation, explain
    from ipusim.app.render.picture import Picture
    from ipusim.app.run_folder.folder import ResultsFolder
    from ipusim.app.run_folder.opened import open_source
    from ipusim.app.study.result import folder_and_names, written

    resume_garbage_collection()
    modes, picture = settings.sync_modes(split_names("sync", sync)), Picture(title, size, theme)
    source = open_source(run, overrides or (), trust=trust)
    target = out or source.folder
    folder, names = folder_and_names(target, Explanation)
    with interruptible() as check_interrupt, ResultsFolder(folder, names, reads=(run,)) as results:
        arguments = source.timeline, source.job, execution, source.waterfall, changes or (), modes
        explanation = replace(explain(*arguments, straggling=stragglers, shares=source.shares), picture=picture)
        files = explanation.files(names)
        check_interrupt()
        results.write(files)
    if not output_form:
        print_text(*filter(None, [source.version_note]))
    print_result(explanation, output_form, written(target, files))
