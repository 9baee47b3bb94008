"""The command that keeps scenarios as they are: test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ipusim.app.cli.app import CheckTimes, Workers, app, refuse_beside
from ipusim.app.terminal import interruptible, keep_watch, print_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipusim.app.regression.outcome import Outcome


@app.command("test")
def hold(
    context: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILES and FOLDERS]", help="scenarios, and folders of them  [default: here]"),
    ] = None,
    pins: Annotated[
        bool,
        typer.Option(
            "--pin", help="write a pin beside each of FILES, NAME.pin.json: Plan, prices, time, memory and losses"
        ),
    ] = False,
    update: Annotated[bool, typer.Option("--update", help="renew the pins that differ, and say what changes")] = False,
    check_times: CheckTimes = False,
    workers: Workers = None,
    as_json: Annotated[bool, typer.Option("--json", help="print all results as JSON and nothing else")] = False,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE.xml", help="write the results in JUnit's format too")
    ] = None,
) -> None:
    """Hold scenarios against what they expect and their pins; say what is missed, and what differs first and why."""
    from ipusim.app.regression import suite
    from ipusim.base.files import write_file

    if pins:
        refuse_beside(context, "--pin", "paths", "workers")
    if junit is not None:
        suite.check_junit(junit)
    scenarios = suite.scenarios_to_pin(paths or ()) if pins else suite.scenarios_of(paths or [Path()])
    keep_watch()
    done: list[Outcome] = []
    with interruptible():
        try:
            renews = update or pins
            for outcome in suite.hold_all(scenarios, workers, renew=renews, needs_pin=not pins, times=check_times):
                done.append(outcome)
                if outcome.missed if pins else not as_json:
                    _print(outcome)
        finally:
            if junit is not None:
                write_file(junit, suite.junit_bytes(done))
            if not pins:
                _print_end(done, len(scenarios), as_json)
    if not (pins or as_json) and (unpinned := suite.without_pin(paths or [Path()])):
        print_text(suite.words_on_pins(len(unpinned)))
    if wrong := [outcome.mistake for outcome in done if outcome.ended in ("mistake", "unfinished")]:
        if pins:  # which has printed no lines of theirs
            typer.echo("\n".join(wrong), err=True)
        raise typer.Exit(2)  # before anything is written
    if update or pins:
        _write(done, makes=pins, quiet=as_json)
    if any(outcome.ended == "missed" for outcome in done):
        raise typer.Exit(1)


def _print(outcome: Outcome) -> None:
    """Print a scenario's line, with its missed expectations and pins below."""
    if outcome.mistake:
        print_text(f"{outcome.ended:<10}  {outcome.mistake}")
        return
    count = len(outcome.expectations)
    what = [f"{count} expectation{'' if count == 1 else 's'}"] if count else []
    what += ["pin"] if outcome.pinned else []
    print_text(f"{outcome.ended:<10}  {outcome.path}: {' and '.join(what) or 'no pin'}, {outcome.seconds:.1f} s")
    lines = [*outcome.missed, *outcome.difference.splitlines(), *filter(None, [outcome.times])]
    print_text(*(f"            {line}" for line in lines))


def _print_end(done: Sequence[Outcome], count: int, as_json: bool) -> None:
    """Print how many held, or everything as JSON."""
    if as_json:
        from ipusim.app.study.result import json_bytes

        data = [outcome.to_dict() for outcome in sorted(done, key=lambda outcome: str(outcome.path))]
        typer.echo(json_bytes(data).decode(), nl=False)
        return
    ended = [*(outcome.ended for outcome in done), *["unfinished"] * (count - len(done))]
    words = {"held": "held", "missed": "missed", "mistake": "with a mistake", "unfinished": "unfinished"}
    counts = [f"{ended.count(kind)} {text}" for kind, text in words.items() if kind in ended or kind == "held"]
    print_text(f"{', '.join(counts)}, of {count} scenario{'' if count == 1 else 's'}")


def _write(done: Sequence[Outcome], *, makes: bool, quiet: bool) -> None:
    """Write the new pins and print their paths; a run that is not as expected has none."""
    from ipusim.app.regression.file import pin_path, write_pin

    for outcome in sorted(done, key=lambda outcome: outcome.new_pin is None):
        if outcome.new_pin is not None:
            write_pin(outcome.path, outcome.new_pin)
            text = f"written, {len(outcome.new_pin) / 1000:.1f} kB"
        else:
            text = "not written, as the run is not as expected" if outcome.missed else "as it was"
        if not quiet and (makes or outcome.new_pin or (outcome.pinned and outcome.missed)):
            print_text(f"{pin_path(outcome.path)}: {text}")
