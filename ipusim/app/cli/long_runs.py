"""The command that follows a training over days of failures: goodput."""

from __future__ import annotations

from typing import Annotated

import typer

from ipusim.app.cli.app import Out, Overrides, RunOrScenario, app
from ipusim.app.terminal import interruptible, keep_watch, print_tables, print_text

Mtbf = Annotated[
    list[str] | None,
    typer.Option(
        "--mtbf",
        metavar="TIME",
        help="mean time between failures of the system, such as 3.1 h, or of all components of a name together, such "
        "as host=2000 h, several times for several; or a record, llama3, scaled to the IPUs  [default: llama3]",
    ),
]
Devices = Annotated[
    int | None,
    typer.Option(
        "--devices",
        min=1,
        max=10**7,
        metavar="N",
        help="IPUs that may fail, of copies of the run that train side by side too  [default: those of the run]",
    ),
]
Over = Annotated[str, typer.Option(metavar="TIME", help="how long a training is followed")]
Checkpoint = Annotated[str, typer.Option(metavar="TIME", help="what writing a checkpoint takes; nothing else is done")]
Every = Annotated[
    int | None,
    typer.Option(
        "--checkpoint-every",
        min=1,
        max=10**12,
        metavar="N",
        help="weight updates between checkpoints  [default: as many as lose least]",
    ),
]
Detect = Annotated[str, typer.Option(metavar="TIME", help="from a failure until it is seen")]
Restart = Annotated[str, typer.Option(metavar="TIME", help="from then until work goes on")]
Seeds = Annotated[int, typer.Option(metavar="N", help="trainings, each with failures of its own")]
Seed = Annotated[int, typer.Option(min=0, max=2**32, metavar="N", help="of the first training")]


@app.command()
def goodput(
    run: RunOrScenario,
    mtbf: Mtbf = None,
    devices: Devices = None,
    over: Over = "54 d",
    checkpoint: Checkpoint = "60 s",
    every: Every = None,
    detect: Detect = "0 s",
    restart: Restart = "0 s",
    seeds: Seeds = 200,
    seed: Seed = 0,
    out: Out = None,
    overrides: Overrides = None,
) -> None:
    """Follow a training over days in which IPUs fail: effective training time, and how often to write a checkpoint."""
    from ipusim.app.long_runs.goodput import GOODPUT_FILES, Settings, devices_of, goodput, goodput_files, mean_times
    from ipusim.app.run_folder.folder import ResultsFolder
    from ipusim.app.run_folder.opened import opened

    times = {"over": over, "checkpoint": checkpoint, "detect": detect, "restart": restart}
    over_s, checkpoint_s, detect_s, restart_s = (_seconds(name, text) for name, text in times.items())
    mean_times(mtbf or (), 1)  # a word that means nothing is told before anything runs
    keep_watch()
    opened_run = opened(run, overrides or ())
    with interruptible() as heed, ResultsFolder(out or opened_run.folder, GOODPUT_FILES, reads=(run,)) as results:
        number = devices or devices_of(opened_run.timeline)
        mtbf_s, sources = mean_times(mtbf or ("llama3",), number)
        settings = Settings(mtbf_s, sources, number, over_s, checkpoint_s, detect_s, restart_s, every, seeds, seed)
        result = goodput(opened_run.timeline, settings)
        files = goodput_files(result)
        heed()
        results.write(files)
    print_text(*result.words())
    print_tables(*result.tables())
    print_text(f"{out or opened_run.folder}: {', '.join(files)}")


def _seconds(option: str, text: str) -> float:
    """Return the seconds of an option; raises OptionError for what is no time from 0 up."""
    from ipusim.base.errors import OptionError, QuantityError
    from ipusim.base.units import parse_quantity

    try:
        seconds = parse_quantity(text, "time")
    except QuantityError as error:
        raise OptionError(option, str(error)) from None
    if seconds < 0:
        raise OptionError(option, f"expected a time from 0 up, got {text!r}")
    return float(seconds)
