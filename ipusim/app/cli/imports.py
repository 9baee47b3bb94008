"""Command ``import``: turn other tools' measurements, or a program, into a scenario."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ipusim.app.cli import programs
from ipusim.app.cli.app import allow_only, app, printing
from ipusim.app.study.forms import PRINTED
from ipusim.app.terminal import print_result, print_tables, print_text, status
from ipusim.base.errors import FileError, OptionError

if TYPE_CHECKING:
    from ipusim.app.profiles.stages import Stages
    from ipusim.ipu.runtime.recording import ProgramRecord

_File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE...",
        help="program.py, a program in Graphcore's API, which is run; or profiler measurements: a trace for each rank "
        "in Chrome's format, as JSON or gzip, from torch's profiler or others; logs of Megatron-LM with "
        "--timing-log-level 2 --timing-log-option all, or its OpenTelemetry spans; logs of DeepSpeed's wall clock "
        "breakdown; reports of nsys as SQLite, or its nvtx_sum as CSV",
    ),
]
_Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        metavar="PASS=NAME",
        help="name of a pass's spans; PASS is forward, backward, backward_input, backward_weights, update, or wait "
        "(time in which a pass waits for another rank); in NAME, * stands for any text, {stage} for a stage's number "
        "and {micro_batch} for a micro-batch's number: forward=fwd_{stage}_*, or encoder.forward=enc*; + sums the "
        "parts of a pass: forward=attn(F)+mlp(F)  [default: names of torch.distributed.pipelining, and of the timers "
        "and spans of Megatron and DeepSpeed]",
    ),
]
_Stages = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="number of stages, if names have no stage: the ranks are divided among the stages in order, and all "
        "ranks are needed  [default: the number in the files, or one stage for each rank of a trace]",
    ),
]
_Count = Annotated[
    int | None,
    typer.Option(
        min=1, max=2**31 - 1, metavar="N", help="micro-batches for each weight update  [default: as measured]"
    ),
]
_Parts = Annotated[
    int | None,
    typer.Option(
        "--parts-per-pass",
        min=1,
        metavar="N",
        help="number of spans in a pass with several parts  [default: all spans until a span of another pass begins]",
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.yaml",
        help="file for the scenario; measured stages are written beside it, to FILE.csv  [default: print the scenario "
        "of a program, or the CSV of measured stages]; with --replay the folder of the results  [default: "
        "reports/<name of the first file>]",
    ),
]
_ReplayOption = Annotated[
    bool,
    typer.Option(
        "--replay",
        help="compare a measured step with the simulation of its plan: times, bubble, idle time by cause, critical "
        "path, and the difference by part: copies, waits, jitter, stragglers, not explained",
    ),
]


_ProgramNumber = Annotated[
    int | None,
    typer.Option(
        "--pipeline",
        min=0,
        metavar="N",
        help="for a program with several pipelines or loops: number of the pipeline or loop, from 0",
    ),
]


@app.command("import")
@printing
def import_(
    context: typer.Context,
    file: _File,
    more: programs.Arguments = None,
    names: _Names = None,
    stages: _Stages = None,
    count: _Count = None,
    parts: _Parts = None,
    out: _Out = None,
    replay: _ReplayOption = False,
    output_form: str = "",
    number: _ProgramNumber = None,
    profile_steps: programs.ProfileSteps = None,
    synthetic: programs.Synthetic = False,
    tensorflow: programs.TensorFlow = None,
) -> None:
    """Turn profiler measurements into stages, as CSV and as a scenario; or run a program and write it as a scenario.

    The CSV holds medians; `ipusim run` also accepts this CSV. Simulating the scenario of a program gives the
    program's time, exact to the cycle.
    """
    from ipusim.app.profiles.read import read_measured
    from ipusim.app.profiles.stages import stages_of
    from ipusim.app.profiles.written import StagesResult, scenario_text, sources_table
    from ipusim.app.run_folder.output_file import IMPORTED, IMPORTED_TABLE, check_output
    from ipusim.base.files import write_file

    common = ("file", "more", "out")
    if programs.is_program(file):
        allow_only(context, "a program", *common, "pipeline", "profile-steps", "synthetic", "tensorflow")
        options = programs.ProgramOptions(profile_steps, synthetic, tensorflow=tensorflow)
        _write_program(file, more or (), out, number, options)
        return
    allow_only(context, "a measured file", *common, "name", "stages", "count", "parts-per-pass", "replay", *PRINTED)
    files = [file, *map(Path, more or ())]
    table = None if out is None or replay else out.with_suffix(".csv")
    if out is not None and table is not None:
        check_output(out, IMPORTED, files)
        check_output(table, IMPORTED_TABLE, files)
    with status("reading") as progress:
        stages_of_files = stages_of(read_measured(files, names or (), count, parts, progress), stages, count)
    print_tables(sources_table(stages_of_files), to_stderr=True)
    for note in stages_of_files.notes:
        typer.echo(note, err=True)
    if replay:
        _write_replay(stages_of_files, files, out or Path("reports") / files[0].name.partition(".")[0], output_form)
        return
    result = StagesResult(stages_of_files)
    if out is None or table is None:
        print_result(result, output_form or ".csv")
        return
    text = scenario_text(stages_of_files, table.name, [path.name for path in files]).encode()
    write_file(table, result.text(".csv"))
    write_file(out, text)
    print_result(result, output_form, f"{out}, {table}")


def _write_program(
    program: Path, arguments: Sequence[str], out: Path | None, number: int | None, options: programs.ProgramOptions
) -> None:
    """Run a program, and write or print its pipeline or loop as a scenario."""
    from ipusim.app.run_folder.output_file import IMPORTED, check_output, mark_of
    from ipusim.app.run_folder.versions import versions
    from ipusim.app.scenario.write import scenario_text
    from ipusim.base.files import MAX_SCENARIO_BYTES, write_file
    from ipusim.ipu.programs.as_scenario import as_scenario
    from ipusim.ipu.programs.program_file import ProgramFile
    from ipusim.ipu.runtime.poplar_flags import synthetic_data
    from ipusim.ipu.runtime.recording import Recorder, recording

    if out is not None:
        check_output(out, IMPORTED, (program,))
    file = ProgramFile(program)
    typer.echo(f"{program} is a program: it is run", err=True)
    with (
        programs.program_run(to_stderr=out is None),
        synthetic_data(options.synthetic),
        recording(Recorder(options.steps)) as recorder,
    ):
        file.run(arguments, tensorflow=options.tensorflow)
        if not recorder.programs and programs.asks_for_help(arguments):
            raise typer.Exit
        recorder.check(str(program))
    result = as_scenario(_choose(program, recorder.programs, number).as_job(file.name), file.description)
    folder = Path() if out is None else out.parent
    text = scenario_text(result.request, folder, (mark_of("import"), *versions(), *result.comments))
    if text is None:
        raise FileError(
            f"{program}: expected a program that fits in a scenario file, with one of ipusim's schedules and numbers "
            f"with finite decimals, in at most {MAX_SCENARIO_BYTES} bytes"
        )
    if out is None:
        typer.echo(text, nl=False)
        return
    write_file(out, text.encode())
    print_text(*result.comments)
    typer.echo(f"{out}")


def _choose(program: Path, records: tuple[ProgramRecord, ...], number: int | None) -> ProgramRecord:
    """Return the pipeline or loop of this number; raises OptionError for a wrong number, or an ambiguous choice."""
    if (number is None and len(records) > 1) or (number or 0) >= len(records):
        names = ", ".join(f"{index} {candidate.job.name}" for index, candidate in enumerate(records))
        text = f"expected the number of a pipeline or loop of {program}: {names}; got "
        raise OptionError("pipeline", text + ("none" if number is None else str(number)))
    return records[number or 0]


def _write_replay(stages: Stages, files: Sequence[Path], folder: Path, output_form: str) -> None:
    """Compare a measured step with its simulation, and write both as runs."""
    from contextlib import ExitStack
    from tempfile import TemporaryDirectory

    from ipusim.app.page.page import PAGE, write_page
    from ipusim.app.replay.replay import RUN_FILES, Replay, replay
    from ipusim.app.run_folder.folder import ResultsFolder
    from ipusim.app.run_folder.report import OUTDATED_FILES

    with ExitStack() as stack:
        folders = {name: folder / name for name in ("measured", "simulated")}
        results = stack.enter_context(ResultsFolder(folder, Replay.names, outdated=[PAGE], reads=files))
        run_folders = {
            name: stack.enter_context(ResultsFolder(path, RUN_FILES, outdated=OUTDATED_FILES, reads=files))
            for name, path in folders.items()
        }
        result = replay(stages, Path(stack.enter_context(TemporaryDirectory())), files)
        for name, run_folder in run_folders.items():
            run_folder.write(result.run_files(name, folders[name]))
        results.write(file_names := result.files())
    page = write_page([*folders.values()], folder / PAGE)
    print_result(
        result, output_form, f"{folder}: {', '.join((*file_names, page.name))}; the runs {' and '.join(folders)}"
    )
