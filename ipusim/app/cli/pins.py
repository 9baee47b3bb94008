"""Command ``test``: check scenarios against their expectations and pins.

A pin is a file of a run's results, with which later runs are compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ipusim.app.cli.app import CheckTimes, Workers, allow_only, app, printing
from ipusim.app.terminal import interruptible, print_result, print_text, resume_garbage_collection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipusim.app.regression.outcome import Outcome


@app.command("test")
@printing
def check_pins(
    context: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILES and FOLDERS]", help="scenarios, and folders of scenarios  [default: the present folder]"
        ),
    ] = None,
    write_pins: Annotated[
        bool,
        typer.Option(
            "--pin",
            help="write a pin NAME.pin.json in the folder of each of FILES: Plan, prices, time, memory and losses",
        ),
    ] = False,
    update: Annotated[bool, typer.Option("--update", help="renew the pins that differ, and print the changes")] = False,
    check_times: CheckTimes = False,
    workers: Workers = None,
    output_form: str = "",
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE.xml", help="write the results in JUnit's format too")
    ] = None,
) -> None:
    """Test scenarios against their expectations and pins; print missed expectations, first differences and causes."""
    from ipusim.app.regression import suite
    from ipusim.app.regression.outcome import SuiteResult
    from ipusim.base.files import write_file

    if write_pins:
        allow_only(context, "--pin", "paths", "workers")
    if junit is not None:
        suite.check_junit(junit)
    scenarios = suite.scenarios_to_pin(paths or ()) if write_pins else suite.scenarios_of(paths or [Path()])
    resume_garbage_collection()
    outcomes: list[Outcome] = []
    with interruptible():
        try:
            renew = update or write_pins
            needs_pin = not write_pins
            for outcome in suite.check_all(scenarios, workers, renew=renew, needs_pin=needs_pin, times=check_times):
                outcomes.append(outcome)
                if outcome.missed if write_pins else not output_form:
                    print_text(*outcome.words())
        finally:
            if junit is not None:
                write_file(junit, suite.junit_bytes(outcomes))
            if not write_pins:
                result = SuiteResult(sorted(outcomes, key=lambda outcome: str(outcome.path)), len(scenarios))
                print_result(result, output_form) if output_form else print_text(result.end())
    if not (write_pins or output_form) and (unpinned := suite.without_pin(paths or [Path()])):
        print_text(suite.pinless_text(len(unpinned)))
    if mistakes := [outcome.mistake for outcome in outcomes if outcome.ended in ("mistake", "unfinished")]:
        if write_pins:  # with --pin, mistakes were not printed above
            typer.echo("\n".join(mistakes), err=True)
        raise typer.Exit(2)  # before any pin is written
    if update or write_pins:
        _write(outcomes, prints_all=write_pins, quiet=bool(output_form))
    if any(outcome.ended == "missed" for outcome in outcomes):
        raise typer.Exit(1)


def _write(outcomes: Sequence[Outcome], *, prints_all: bool, quiet: bool) -> None:
    """Write new pins, and print paths of new and refused pins; with ``prints_all`` print every path.

    Runs that miss expectations get no pin.
    """
    from ipusim.app.regression.file import pin_path, write_pin

    for outcome in sorted(outcomes, key=lambda outcome: outcome.new_pin is None):
        if outcome.new_pin is not None:
            write_pin(outcome.path, outcome.new_pin)
            text = f"written, {len(outcome.new_pin) / 1000:.1f} kB"
        else:
            text = "not written, because the run is not as expected" if outcome.missed else "as it was"
        if not quiet and (prints_all or outcome.new_pin or (outcome.pinned and outcome.missed)):
            print_text(f"{pin_path(outcome.path)}: {text}")
