"""Command ``run``: run a scenario or a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ipusim.app.cli import programs
from ipusim.app.cli.app import (
    CheckTimes,
    End,
    Execution,
    Out,
    Overrides,
    PhaseName,
    Start,
    app,
    flag,
    printing,
)
from ipusim.app.terminal import interruptible, print_result, progress, resume_garbage_collection
from ipusim.base.errors import OptionError, OutputError

if TYPE_CHECKING:
    from ipusim.api import Run, Timeline
    from ipusim.api import runs as api_runs
    from ipusim.app.regression.expectations import Judgement
    from ipusim.app.render.window import ShownPart, Window
    from ipusim.app.run_folder.report import Drawing


NoJump = Annotated[
    bool,
    typer.Option(
        "--no-jump", help="simulate every micro-batch, instead of skipping micro-batches whose timing repeats"
    ),
]


@app.command()
@printing
def run(
    scenario: Annotated[
        Path,
        typer.Argument(
            metavar="SCENARIO",
            help="a scenario in YAML; or measured stages in CSV with columns stage, forward [ms], backward [ms] and "
            "others; or a program in Graphcore's API, a Python file",
        ),
    ],
    arguments: programs.Arguments = None,
    out: Out = None,
    overrides: Overrides = None,
    start: Start = None,
    end: End = None,
    phase: PhaseName = None,
    execution: Execution = None,
    full_trace: Annotated[
        bool, typer.Option("--full-trace", help="write the whole trace file, without omissions of repeated parts")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="print all tables after the verdict")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="print nothing")] = False,
    output_form: str = "",
    no_jump: NoJump = False,
    check_times: CheckTimes = False,
    profile_steps: programs.ProfileSteps = None,
    synthetic: programs.Synthetic = False,
    hosts: programs.Hosts = None,
    tensorflow: programs.TensorFlow = None,
) -> None:
    """Run a scenario or a program; write losses, weights, timeline, trace and pictures; print the verdict."""
    from ipusim.app.render.window import ShownPart

    options = programs.ProgramOptions(profile_steps, synthetic, hosts, tensorflow)
    programs.check_options(scenario, arguments, overrides, options)
    results = _Results(ShownPart(start, end, phase, execution), full_trace, check_times)
    if programs.is_program(scenario):
        if no_jump:
            raise OptionError(
                "no_jump", f"expected a scenario, got the program {scenario}, which skips no micro-batches"
            )
        if check_times:
            raise OptionError("check_times", f"expected a scenario, got the program {scenario}, which runs in parts")
        results.check((execution or 0) + 1)  # the number of executions is unknown before the run
        folder = out or Path("reports") / scenario.stem
        run_of_folder = programs.run_profiled(
            scenario, arguments or (), folder, results.files, options, to_stderr=bool(output_form)
        )
    else:
        run_of_folder = _run_scenario(scenario, overrides or (), out, results, jump=not no_jump)
    for run_folder, result in () if quiet else run_of_folder.items():
        from ipusim.app.cli.run_result import RunResult

        output = RunResult(result, verbose, results.judgements, results.times_check)
        print_result(output, output_form, f"{run_folder}: {', '.join(results.names[run_folder])}")
    if results.missing_pictures:
        raise OutputError("\n".join(results.missing_pictures))
    differs = results.times_check is not None and results.times_check.outcome == "different"
    if differs or not all(judgement.is_met for judgement in results.judgements):
        raise typer.Exit(1)


@dataclass
class _Results:
    """Files of runs, including the requested picture.

    Attributes:
        names: names of the files in each folder.
        missing_pictures: messages on pictures that could not be drawn.
        judgements: expectations of the scenario, with the figures of the run.
        drawing: process that prepares the run's files while the run computes, from a second, timing-only simulation;
            None if not started.
        times_check: comparison with times computed a second time, without event simulation; None unless requested.
    """

    part: ShownPart
    full_trace: bool
    check_times: bool
    names: dict[Path, tuple[str, ...]] = field(default_factory=dict)
    missing_pictures: list[str] = field(default_factory=list)
    judgements: tuple[Judgement, ...] = ()
    drawing: Drawing | None = None
    times_check: api_runs.TimesCheck | None = None

    def check(self, executions: int) -> None:
        """Raise OptionError for a picture outside the given number of executions."""
        from ipusim.app.run_folder.report_options import check_picture

        check_picture(executions, self.part)

    def files(self, result: Run, folder: Path, comments: Sequence[str] = ()) -> dict[str, bytes]:
        """Return the files of a run by name; ``comments`` go into its scenario."""
        from ipusim.app.run_folder.report import run_files

        view = self.window(result.timeline)
        files = run_files(result, view, folder, comments, full_trace=self.full_trace, drawing=self.drawing)
        self.names[folder] = tuple(files)
        return files

    def window(self, timeline: Timeline) -> Window:
        """Return the window of a run's picture; if the run lacks the part asked for, a whole execution, with a note."""
        from ipusim.app.render.window import ShownPart
        from ipusim.app.run_folder.report import picture_window

        try:
            return picture_window(timeline, self.part)
        except (OutputError, OptionError) as error:
            # Only the finished run shows that the part is missing; the results are kept.
            instead = min(self.part.execution or 0, timeline.info.executions - 1)
            text = error.worded(flag) if isinstance(error, OptionError) else str(error)
            self.missing_pictures.append(f"{text}; the picture shows execution {instead} instead")
            return picture_window(timeline, ShownPart(execution=instead))


def _run_scenario(
    scenario: Path, overrides: Sequence[str], out: Path | None, results: _Results, *, jump: bool
) -> dict[Path, Run]:
    """Run a scenario and write its results; return the Run by its folder."""
    from ipusim.api import assemble, execute, runs
    from ipusim.app.cli.advice import advise_on_memory
    from ipusim.app.regression.expectations import check_expectations, judge, without_outdated_expectations
    from ipusim.app.run_folder.folder import ResultsFolder
    from ipusim.app.scenario.load import placed_request

    with advise_on_memory(), placed_request(scenario, overrides) as source:
        request = without_outdated_expectations(source, overrides)
        job = assemble(request)
        check_expectations(job)
        folder = out or Path("reports") / job.name
        results.check(job.executions)
        from ipusim.app.run_folder.report import drawing_ahead, names_of

        resume_garbage_collection()
        names, outdated = names_of(job)
        reads = job.request.paths(scenario)
        with (
            interruptible() as check_interrupt,
            drawing_ahead(job, results.window, full_trace=results.full_trace) as results.drawing,
            ResultsFolder(folder, names, outdated=outdated, reads=reads) as results_folder,
        ):
            with progress(job.name, check_interrupt) as report:
                result = execute(job, report, jump=jump)
            results.judgements = judge(request.options, result.summary.to_dict())
            results.times_check = runs.check_times(job, result.timeline) if results.check_times else None
            files = results.files(result, folder)
            check_interrupt()
            results_folder.write(files)
    return {folder: result}
