"""Commands ``check``, ``schedule`` and ``devices``: show programs, schedules and machines without a run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ipusim.app.cli.app import Overrides, ScenarioIfAny, allow_only, app, options_on_command_line, printing
from ipusim.app.study.forms import PRINTED
from ipusim.app.terminal import print_result, print_text
from ipusim.base.errors import CountError, DeviceError, OptionError, as_option_error

if TYPE_CHECKING:
    from ipusim.api import Job
    from ipusim.app.cli.plan_results import MemoryResult
    from ipusim.app.explain.memory_moves import Moves


_Costs = Annotated[
    bool, typer.Option("--costs", help="print the cost of each operation: cycles, formula, rates and sources")
]
_Memory = Annotated[
    bool,
    typer.Option(
        "--memory",
        help="print the contents of each IPU's memory, and the effect of changes on memory and time; always printed "
        "if a program does not fit",
    ),
]
_Profile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.csv",
        help="measured stages, in the format of `pipeline.cycles`, to compare with the model's simulated cycles",
    ),
]


@app.command()
@printing
def check(
    context: typer.Context,
    scenario: ScenarioIfAny = None,
    overrides: Overrides = None,
    costs: _Costs = False,
    memory: _Memory = False,
    profile: _Profile = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="print only the JSON Schema of a scenario, for editors")
    ] = False,
    output_form: str = "",
) -> None:
    """Validate a scenario without running it."""
    if schema:
        from ipusim.api import runs
        from ipusim.app.study.result import json_bytes

        allow_only(context, "--schema")
        typer.echo(json_bytes(runs.json_schema()).decode(), nl=False)
        return
    if scenario is None:
        raise OptionError("scenario", "expected a scenario, or {}, got none", "schema")
    from ipusim.api import analysis, assemble
    from ipusim.app.cli.advice import advise_on_memory
    from ipusim.app.cli.plan_results import CheckResult
    from ipusim.app.fidelity.profile import compare_profile
    from ipusim.app.regression.expectations import check_expectations, judged_before, without_outdated_expectations
    from ipusim.app.scenario.load import placed_request

    moves_of = partial(_print_memory, is_requested=memory, output_form=output_form)
    with advise_on_memory(moves_of), placed_request(scenario, overrides or ()) as source:
        request = without_outdated_expectations(source, overrides or ())
        job = assemble(request)
        check_expectations(job)
        measured_passes = compare_profile(request, profile) if profile else ()
    shows_memory = memory or not analysis.fits_or_unknown(job.memory.fits)
    memory_result = _memory_result(job, is_requested=memory) if shows_memory else None
    judgements, open_expectations = judged_before(job)
    print_result(
        CheckResult(str(scenario), job, memory_result, measured_passes, costs, judgements, open_expectations),
        output_form,
    )
    if not all(judgement.is_met for judgement in judgements):
        raise typer.Exit(1)


def _memory_result(job: Job, *, is_requested: bool) -> MemoryResult | None:
    """Return a program's memory by holder, with changes that free memory; None for unknown memory.

    Trials that take long need ``is_requested``.
    """
    from ipusim.api import analysis
    from ipusim.app.cli.plan_results import MemoryResult
    from ipusim.app.explain.memory_moves import is_long, memory_moves

    if job.memory.fits is analysis.Fits.UNKNOWN:
        return None
    return MemoryResult(job, None if is_long(job) and not is_requested else memory_moves(job), is_requested)


def _print_memory(job: Job, *, is_requested: bool, output_form: str) -> Moves | None:
    """Print a refused program's memory by holder, unless ``output_form`` is set; return tried changes."""
    result = _memory_result(job, is_requested=is_requested)
    if result is None:
        return None
    if not output_form:
        print_result(result, output_form)
    return result.moves


@app.command()
@printing
def schedule(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[SCHEDULE]", help="name or file of the schedule; without it, all schedules are listed"),
    ] = None,
    stages: Annotated[int | None, typer.Option(min=1, max=256, metavar="N", help="computational stages")] = None,
    count: Annotated[
        int | None, typer.Option(metavar="G", help="gradient accumulation count  [default: the smallest legal one]")
    ] = None,
    mapping: Annotated[
        str | None, typer.Option(metavar="IPUS", help="IPU of each stage, such as 0,1,0  [default: one stage on each]")
    ] = None,
    inference: Annotated[bool, typer.Option("--inference", help="forward passes only")] = False,
    recompute: Annotated[bool, typer.Option("--recompute", help="recompute activations")] = False,
    sync: Annotated[str | None, typer.Option(metavar="MODE", help="sync mode  [default: the schedule's own]")] = None,
    form_name: Annotated[
        str, typer.Option("--as", metavar="FORM", help="grid, instructions, or torch: a CSV file in torch's format")
    ] = "grid",
    blocking: Annotated[
        bool,
        typer.Option(
            "--blocking", help="for FILE.csv: print whether its ranks hang if each send waits for its receive"
        ),
    ] = False,
    output_form: str = "",
) -> None:
    """Print the grid of a schedule: time-steps down, IPUs across; F1.3 is the forward of stage 1 on micro-batch 3."""
    from ipusim.app.cli.plan_results import ScheduleResult, SchedulesResult
    from ipusim.app.cli.shape import blocking_text, plan_for

    if name is None:
        _check_alone(context)
        print_result(SchedulesResult(), output_form)
    elif blocking:
        print_text(blocking_text(name))
    else:
        try:
            plan = plan_for(name, stages, count, mapping, inference, recompute, sync)
        except CountError as error:
            if count is None:
                raise
            raise OptionError("count", str(error)) from None
        print_result(ScheduleResult(plan, form_name), output_form)


def _check_alone(context: typer.Context) -> None:
    """Raise OptionError if the list of schedules is requested with an option for one schedule."""
    for option in options_on_command_line(context):
        if option not in PRINTED:
            raise OptionError(option, "expected {} with this option, got none", "schedule")


@app.command()
@printing
def devices(
    system: Annotated[
        str, typer.Argument(metavar="SYSTEM", help="name of the system, such as c2_server or pod16")
    ] = "c2_server",
    figures: Annotated[
        bool,
        typer.Option("--figures", help="print every figure of the simulated system, with its source"),
    ] = False,
    output_form: str = "",
) -> None:
    """List the devices of a system by id, single IPUs first, as gc-info does."""
    from ipusim.api import hardware
    from ipusim.app.cli.plan_results import DevicesResult

    with as_option_error("system", DeviceError):
        machine = hardware.find_machine(system)
    print_result(DevicesResult(machine, figures), output_form)
