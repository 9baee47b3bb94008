"""The command that says a program as a scenario: scenario."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ipusim.app.cli.app import app
from ipusim.app.cli.programs import Arguments, ProfileSteps, Synthetic, TensorFlow, is_program, running
from ipusim.app.terminal import print_text
from ipusim.base.errors import FileError, OptionError

if TYPE_CHECKING:
    from ipusim.ipu.runtime.recording import Recorded


@app.command()
def scenario(
    program: Annotated[
        Path, typer.Argument(metavar="PROGRAM", help="the program in Graphcore's API, a Python file, which is run")
    ],
    arguments: Arguments = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.yaml", help="file for the scenario  [default: it is printed]")
    ] = None,
    which: Annotated[
        int | None,
        typer.Option(
            "--pipeline", min=0, metavar="N", help="of a program with several pipelines or loops: which, from 0"
        ),
    ] = None,
    profile_steps: ProfileSteps = None,
    synthetic: Synthetic = False,
    tensorflow: TensorFlow = None,
) -> None:
    """Write what a program asks for as a scenario, which takes the same time to the cycle."""
    from ipusim.app.run_folder.output_file import SCENARIO, check_output, mark_of
    from ipusim.app.run_folder.versions import versions
    from ipusim.app.scenario.write import scenario_text
    from ipusim.base.files import write_file
    from ipusim.ipu.programs.as_scenario import as_scenario
    from ipusim.ipu.programs.program_file import ProgramFile
    from ipusim.ipu.runtime.poplar_flags import synthetic_data
    from ipusim.ipu.runtime.recording import Recorder, recording

    if not is_program(program):
        raise FileError(f"{program}: expected a program, a Python file such as program.py")
    if out is not None:
        check_output(out, SCENARIO, (program,))
    file = ProgramFile(program)
    with (
        running(aside=out is None),
        synthetic_data(synthetic),
        recording(Recorder(profile_steps)) as recorder,
    ):
        file.run(arguments or (), tensorflow=tensorflow)
        recorder.check(str(program))
    said = as_scenario(_chosen(program, recorder.programs, which).as_job(file.name), file.description)
    folder = Path() if out is None else out.parent
    text = scenario_text(said.request, folder, (mark_of("scenario"), *versions(), *said.comments))
    if text is None:
        raise FileError(f"{program}: expected a program that a scenario can hold, got one with more or other values")
    if out is None:
        typer.echo(text, nl=False)
        return
    write_file(out, text.encode())
    print_text(*said.comments)
    typer.echo(f"{out}")


def _chosen(program: Path, programs: tuple[Recorded, ...], which: int | None) -> Recorded:
    """Return the pipeline or loop with the number ``which``; raises OptionError for none, or without one of several."""
    listed = ", ".join(f"{number} {candidate.job.name}" for number, candidate in enumerate(programs))
    if which is None and len(programs) > 1:
        raise OptionError("pipeline", f"expected which of those that {program} runs: {listed}; got none")
    if which is not None and which >= len(programs):
        raise OptionError("pipeline", f"expected one of those that {program} runs: {listed}; got {which}")
    return programs[which or 0]
