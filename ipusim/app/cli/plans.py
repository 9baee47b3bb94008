"""Commands that look at what would run: check, schedule, devices."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ipusim.app.cli.app import Overrides, ScenarioIfAny, app, refuse_beside
from ipusim.app.terminal import print_tables, print_text
from ipusim.base.errors import OptionError

if TYPE_CHECKING:
    from ipusim.api import Job
    from ipusim.app.explain.memory_moves import Moves


_Costs = Annotated[
    bool, typer.Option("--costs", help="print what everything costs: cycles, formula, rates and sources")
]
_Memory = Annotated[
    bool,
    typer.Option(
        "--memory",
        help="print what holds each IPU's memory, and what changes would free of it and cost in time, which is printed "
        "anyway where a program does not fit",
    ),
]
_Profile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.csv",
        help="measured stages, as `pipeline.cycles` takes them, to hold against what the model is priced at",
    ),
]


@app.command()
def check(
    context: typer.Context,
    scenario: ScenarioIfAny = None,
    overrides: Overrides = None,
    costs: _Costs = False,
    memory: _Memory = False,
    profile: _Profile = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="print the JSON Schema of a scenario, for editors, and nothing else")
    ] = False,
) -> None:
    """Validate a scenario without running it."""
    if schema:
        from ipusim.api import runs
        from ipusim.app.study.result import json_bytes

        refuse_beside(context, "--schema")
        typer.echo(json_bytes(runs.json_schema()).decode(), nl=False)
        return
    if scenario is None:
        raise OptionError("scenario", "expected a scenario, or {}, got none", "schema")
    from ipusim.api import analysis, assemble, pipelines
    from ipusim.app.cli.advice import advised
    from ipusim.app.fidelity.profile import hold_against, profile_table, words
    from ipusim.app.regression.expectations import as_it_stands, check_expectations, judged_before
    from ipusim.app.scenario.load import placed_request

    with advised(partial(_print_memory, requested=memory)), placed_request(scenario, overrides or ()) as placed:
        request = as_it_stands(placed, overrides or ())
        job = assemble(request)
        check_expectations(job)
        compared = hold_against(request, profile) if profile else ()
    program = job.program
    print_text(
        f"{scenario}: stages {len(program.stages)}, "
        f"schedule {pipelines.order_and_sync(program.schedule, job.plan.sync)}, "
        f"executions {job.executions}, micro-batches {program.shape.micro_batches} in each, on {job.system}"
    )
    print_text(job.memory.verdict())
    if memory or not analysis.usable(job.memory.fits):
        _print_memory(job, requested=memory)
    if compared:
        print_text(words(compared))
        print_tables(profile_table(compared))
    if costs:
        from ipusim.app.cli.figures import cost_tables

        print_tables(*cost_tables(job.costs, job.plan, program, job.system))
    print_text(*job.notes)  # as run ends with them
    judged, unknown = judged_before(job)
    print_text(*map(str, judged), *(f"takes a run  {requirement.name}: {requirement.text}" for requirement in unknown))
    if not all(judgement.met for judgement in judged):
        raise typer.Exit(1)


def _print_memory(job: Job, *, requested: bool) -> Moves | None:
    """Print the changes that free memory of the fullest IPU, the best first; on request each IPU's memory by holder.

    Returns:
        The changes; None where they were not tried, as nothing is known of the memory, or as that takes long.
    """
    from ipusim.api import analysis
    from ipusim.app.cli.tables import holder_table, holder_words, memory_table
    from ipusim.app.explain.memory_moves import is_long, memory_moves
    from ipusim.app.explain.memory_words import move_words, moves_table

    if job.memory.fits is analysis.Fits.UNKNOWN:
        return None
    if requested:
        print_tables(memory_table(job.memory), holder_table(job.memory))
        if words := holder_words(job.memory):
            print_text(f"{words}.")
    elif is_long(job):
        print_text("What changes would free takes runs of everything, as nothing repeats itself here: --memory.")
        return None
    moves = memory_moves(job)
    print_tables(moves_table(moves))
    print_text(*move_words(moves))
    return moves


@app.command()
def schedule(
    name: Annotated[
        str | None, typer.Argument(metavar="[SCHEDULE]", help="its name or file; without one, all are listed")
    ] = None,
    stages: Annotated[int | None, typer.Option(min=1, max=1024, metavar="N", help="computational stages")] = None,
    count: Annotated[
        int | None, typer.Option(metavar="G", help="gradient accumulation count  [default: the smallest legal one]")
    ] = None,
    mapping: Annotated[
        str | None, typer.Option(metavar="IPUS", help="IPU of each stage, such as 0,1,0  [default: one stage on each]")
    ] = None,
    inference: Annotated[bool, typer.Option("--inference", help="forward passes only")] = False,
    recompute: Annotated[bool, typer.Option("--recompute", help="with recomputation of activations")] = False,
    sync: Annotated[str | None, typer.Option(metavar="MODE", help="sync mode  [default: the schedule's own]")] = None,
    form: Annotated[
        str, typer.Option("--as", metavar="FORM", help="grid, instructions, or torch: a CSV file as torch has it")
    ] = "grid",
    blocking: Annotated[
        bool,
        typer.Option("--blocking", help="of FILE.csv: say whether its ranks hang if each send waits for its receive"),
    ] = False,
) -> None:
    """Print the grid of a schedule: time-steps down, IPUs across; F1.3 is the forward of stage 1 on micro-batch 3."""
    from ipusim.app.cli.shape import as_text, blocking_text, listing, plan_for

    if name is None:
        print_text("\n".join(listing()))
        return
    if blocking:
        typer.echo(blocking_text(name))
        return
    typer.echo(as_text(plan_for(name, stages, count, mapping, inference, recompute, sync), form), nl=False)


@app.command()
def devices(
    system: Annotated[str, typer.Argument(metavar="SYSTEM", help="such as c2_server or pod16")] = "c2_server",
    figures: Annotated[
        bool,
        typer.Option("--figures", help="print every figure that it is simulated by, with its source"),
    ] = False,
) -> None:
    """List the devices of a system by id, single IPUs first, as gc-info does."""
    from ipusim.api import hardware
    from ipusim.app.cli.figures import machine_tables

    if figures:
        print_tables(*machine_tables(hardware.find_machine(system)))
        return
    typer.echo(hardware.device_listing(system))
