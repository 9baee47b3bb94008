"""The command line: one command per verb; parse, call, print, exit code.

Every import that costs time stands inside the command that needs it, so that
``ipusim --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ipusim import __version__
from ipusim.errors import IpusimError, OptionError, OutputError
from ipusim.streams import prepare_streams
from ipusim.terminal import interruptible, keep_watch, print_table, progress

if TYPE_CHECKING:
    from ipusim.runs.run import Run

app = typer.Typer(
    name="ipusim",
    help="Simulate pipeline execution on Graphcore IPUs: real training in simulated time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ScenarioPath = Annotated[Path, typer.Argument(metavar="SCENARIO", help="the scenario, a YAML file", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="another value for a key, such as pipeline.repeat_count=2"),
]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="folder of the results  [default: reports/<name>]")]
Start = Annotated[int | None, typer.Option("--from", min=0, metavar="CYCLE", help="first cycle of the picture")]
End = Annotated[int | None, typer.Option("--to", min=1, metavar="CYCLE", help="last cycle of the picture")]
PhaseName = Annotated[
    str | None,
    typer.Option("--phase", metavar="PHASE", help="show one phase: ramp-up, main, ramp-down or weight-update"),
]
Execution = Annotated[
    int, typer.Option("--execution", min=0, metavar="N", help="execution of the pipeline that the picture shows")
]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ipusim {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    """Simulate pipeline execution on Graphcore IPUs: real training in simulated time."""


@app.command()
def run(
    scenario: ScenarioPath,
    out: Out = None,
    overrides: Overrides = None,
    start: Start = None,
    end: End = None,
    phase: PhaseName = None,
    execution: Execution = 0,
    trace_format: Annotated[
        str, typer.Option("--trace-format", metavar="FORMAT", help="of the trace file: perfetto or chrome")
    ] = "perfetto",
) -> None:
    """Run a scenario; write losses, weights, timeline, trace and pictures; print a summary."""
    from ipusim.runs.execute import execute
    from ipusim.scenario.load import load_job
    from ipusim.study.folder import ResultsFolder
    from ipusim.study.report import RESULT_FILES, check_picture, check_trace_format, picture_window, run_files

    job = load_job(scenario, overrides or ())
    folder = out or Path("reports") / job.name
    check_picture(job.executions, start, end, phase, execution)
    check_trace_format(trace_format)
    keep_watch()
    with interruptible() as heed, ResultsFolder(folder, RESULT_FILES) as results:
        with progress(job.name, heed) as told:
            result = execute(job, told)
        missing = ""
        try:
            window = picture_window(result.timeline, start, end, phase, execution)
        except OutputError as error:  # only the run itself shows that there is no such part; its results are kept
            missing = f"{error}; the picture shows execution {execution} instead"
            window = picture_window(result.timeline, execution=execution)
        files = run_files(result, window, trace_format)
        heed()
        results.write(files)
    _print_run(result)
    typer.echo(f"{folder}: {', '.join(files)}")
    if missing:
        raise OutputError(missing)


def _print_run(result: Run) -> None:
    """Print what a run came to, table by table."""
    from ipusim.render.tables import ipu_table, summary_table
    from ipusim.study import tables

    job = result.job
    if job.request.description:
        typer.echo(job.request.description)
    print_table(summary_table(result.summary))
    if (options := tables.option_table(job.program, job.system)).rows:
        print_table(options)
    print_table(ipu_table(result.summary))
    if result.describes_memory:
        print_table(tables.memory_table(result.memory, result.timeline))
        print_table(tables.holder_table(result.memory))
        typer.echo(f"{result.memory.verdict()}\n")
    else:
        typer.echo("Memory: the scenario does not say what its stages hold.\n")
    if result.learning is not None and (learned := tables.learning_table(result.learning)).rows:
        print_table(learned)
    orders = result.summary.selection_orders
    if orders[0].routes:
        print_table(tables.order_table(orders))
        print_table(tables.route_table(orders))
    typer.echo(tables.order_words(result.job.system, orders))
    for note in result.summary.notes:
        typer.echo(note)


@app.command()
def compare(
    scenario: ScenarioPath,
    schedules: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="the schedules, separated by commas  [default: Graphcore's own: grouped, interleaved, sequential and "
            "sharded; `ipusim schedule` lists all]",
            show_default=False,
        ),
    ] = None,
    syncs: Annotated[
        str,
        typer.Option(
            metavar="MODES",
            help="the sync modes to run each in, separated by commas: lock_step, point_to_point  [default: that of the "
            "scenario, or the schedule's own]",
            show_default=False,
        ),
    ] = "",
    out: Out = None,
    overrides: Overrides = None,
) -> None:
    """Run a scenario under several schedules and sync modes; print time and memory, draw their traces on one axis."""
    from ipusim.render.tables import comparison_table
    from ipusim.runs.problems import RequestError
    from ipusim.scenario.load import load_job, load_request
    from ipusim.study import tables
    from ipusim.study.compare import GRAPHCORES
    from ipusim.study.compare import compare as compare_schedules
    from ipusim.study.folder import ResultsFolder
    from ipusim.study.report import COMPARISON_FILES, comparison_files

    names = GRAPHCORES if schedules is None else _listed(schedules)
    modes = _listed(syncs)
    request = load_request(scenario, overrides or ())
    folder = out or Path("reports") / request.name
    keep_watch()
    with interruptible() as heed, ResultsFolder(folder, COMPARISON_FILES) as results:
        try:
            with progress("comparing", heed) as told:
                rows = compare_schedules(request, names, modes, told)
        except RequestError:
            # Of every schedule: a mistake of the file itself shows where it stands, else what the first one refuses.
            load_job(scenario, overrides or ())
            mode = [f"pipeline.sync={modes[0]}"] if modes else []
            load_job(scenario, (*(overrides or ()), f"pipeline.schedule={names[0]}", *mode))
            raise
        files = comparison_files(rows)
        heed()
        results.write(files)
    summaries = [row.result.summary for row in rows if row.result is not None]
    refused = [(row.schedule, row.sync) for row in rows if row.result is None]
    print_table(comparison_table(summaries, refused, [row.name for row in rows if not row.fits]))
    if (memory := tables.schedule_memory_table(rows)).rows:
        print_table(memory)
    for line in tables.comparison_words(rows):
        typer.echo(line)
    typer.echo(f"{folder}: {', '.join(files)}")


@app.command()
def trace(
    timeline: Annotated[Path, typer.Argument(metavar="TIMELINE", help="timeline.npz of a run", show_default=False)],
    out: Annotated[Path, typer.Option(metavar="FILE", help="the picture, .png or .svg", show_default=False)],
    start: Start = None,
    end: End = None,
    phase: PhaseName = None,
    execution: Execution = 0,
) -> None:
    """Draw the execution trace of a run that lies on disk, zoomed to cycles or to a phase."""
    from ipusim.study.folder import write_file
    from ipusim.study.report import picture, picture_window
    from ipusim.timeline.timeline import Timeline

    loaded = Timeline.load(timeline)
    write_file(out, picture(loaded, picture_window(loaded, start, end, phase, execution), out.suffix))
    typer.echo(f"{out}")


@app.command()
def schedule(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[SCHEDULE]", help="its name or file; without one, all are listed", show_default=False),
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
        str, typer.Option("--format", metavar="FORMAT", help="grid, instructions, or csv as torch has it")
    ] = "grid",
) -> None:
    """Print the grid of a schedule: time-steps down, IPUs across; F1.3 is the forward of stage 1 on micro-batch 3."""
    from ipusim.study.shape import as_text, listing, plan_for

    if name is None:
        typer.echo("\n".join(listing()))
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
    from ipusim.hardware.devices import device_listing
    from ipusim.hardware.machines import find_machine
    from ipusim.study.figures import machine_tables

    if figures:
        for table in machine_tables(find_machine(system)):
            print_table(table)
        return
    typer.echo(device_listing(system))


@app.command()
def validate(
    products: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="your own rows, with columns m, k, n, dtype (fp16 or fp32) and TFLOP/s; nothing is fitted to them  "
            "[default: the rows that the rates were fitted to, and micro-benchmarks]",
            show_default=False,
        ),
    ] = None,
    ipu: Annotated[
        str | None,
        typer.Option(
            metavar="IPU",
            help="the chip that your rows were measured on: GC2, GC200 or BOW  [default: BOW]",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="folder for tables and a picture", show_default=False)
    ] = None,
) -> None:
    """Hold the costs of dense products, links and the host against measured ones: print both, and the error of each."""
    from ipusim.hardware.generations import find_ipu
    from ipusim.study import validate as validation
    from ipusim.study.folder import ResultsFolder
    from ipusim.study.micro_benchmarks import benchmark_table, benchmark_words, read_benchmarks
    from ipusim.study.product_rows import MEASURED, read_rows

    if ipu is not None and products is None:
        raise OptionError("ipu", "expected rows of your own with it, in {}, got none", "products")
    chip = validation.MEASURED_ON if ipu is None else find_ipu(ipu)
    rows = read_rows(products or MEASURED)
    validated = validation.validate_products(rows, chip, fitted=products is None)
    print_table(validation.product_table(validated))
    print_table(validation.error_table(validated))
    print_table(validation.planner_rate_table(rows, chip))
    for line in validation.words(rows, chip, fitted=products is None):
        typer.echo(line)
    benchmarks = () if products else read_benchmarks()
    if benchmarks:
        typer.echo()
        print_table(benchmark_table(benchmarks))
        for line in benchmark_words(benchmarks):
            typer.echo(line)
    if out is not None:
        with ResultsFolder(out, validation.VALIDATION_FILES) as results:
            files = validation.validation_files(validated, benchmarks)
            results.write(files)
        typer.echo(f"{out}: {', '.join(files)}")


@app.command()
def schema() -> None:
    """Print the JSON Schema of a scenario, for editors."""
    from ipusim.runs.request.schema import json_schema
    from ipusim.study.report import json_bytes

    typer.echo(json_bytes(json_schema()).decode(), nl=False)


@app.command()
def check(
    scenario: ScenarioPath,
    overrides: Overrides = None,
    costs: Annotated[
        bool, typer.Option("--costs", help="print what everything costs: cycles, formula, rates and sources")
    ] = False,
    profile: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="measured stages, as `pipeline.cycles` takes them, to hold against what the model is priced at",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Validate a scenario without running it."""
    from ipusim.pipeline.plan import order_and_sync
    from ipusim.runs.assemble.assemble import assemble
    from ipusim.scenario.load import placed_request
    from ipusim.study.profile import hold_against, profile_table, words

    with placed_request(scenario, overrides or ()) as request:
        job = assemble(request)
        held = hold_against(request, profile) if profile else ()
    program = job.program
    typer.echo(
        f"{scenario}: stages {len(program.stages)}, schedule {order_and_sync(program.schedule, job.plan.sync)}, "
        f"executions {job.executions}, micro-batches {program.shape.micro_batches} in each, on {job.system}"
    )
    if held:
        typer.echo(words(held))
        print_table(profile_table(held))
    if costs:
        from ipusim.study.costs import cost_tables

        for table in cost_tables(job.costs, job.plan, program, job.system):
            print_table(table)


def _listed(names: str) -> list[str]:
    """Return names that stand with commas between them."""
    return [name.strip() for name in names.split(",") if name.strip()]


def _flag(option: str) -> str:
    """Return what an option is called here, as in ``--from``."""
    return {"start": "--from", "end": "--to"}.get(option, f"--{option.replace('_', '-')}")


def main() -> None:
    """Run the command line; a mistake in the input is one message on standard error and exit code 2."""
    prepare_streams()
    os.environ["MPLBACKEND"] = "agg"  # figures go to files, whatever the notebook or desktop around this has
    try:
        app()
    except IpusimError as error:
        typer.echo(error.told(_flag) if isinstance(error, OptionError) else str(error), err=True)
        sys.exit(2)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        typer.echo(f"{where}{error.strerror or error}", err=True)
        sys.exit(2)
    except MemoryError as error:
        typer.echo(f"this takes more memory than there is: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
