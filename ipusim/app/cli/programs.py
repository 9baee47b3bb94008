"""Define the options and the error handling of commands that run programs in Graphcore's API."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ipusim.app.terminal import interruptible, resume_garbage_collection
from ipusim.base.errors import OptionError

if TYPE_CHECKING:
    from ipusim.api import Run

Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- ARGUMENTS]", help="for a program: its arguments, as after `python program.py`"),
]
ProfileSteps = Annotated[
    int | None,
    typer.Option(
        "--profile-steps",
        min=1,
        metavar="N",
        help="for a program: number of session runs of each pipeline or loop to keep  [default: all]",
    ),
]
Hosts = Annotated[
    int | None,
    typer.Option(
        "--hosts",
        min=1,
        metavar="N",
        help="for a program: number of simulated hosts that run it, as with `mpirun -np N`; printed lines begin with "
        "the number of the host, and the results are the first host's  [default: one host, whose lines have no number]",
    ),
]
TensorFlow = Annotated[
    int | None,
    typer.Option(
        "--tensorflow",
        metavar="N",
        help="for a program: TensorFlow's major version, 1 or 2  [default: the version whose names the program uses]",
    ),
]
Synthetic = Annotated[bool, typer.Option("--synthetic", help="for a program: no data copies from and to the host")]


def is_program(path: Path) -> bool:
    """Return whether a file is a program, by its extension."""
    return path.suffix == ".py"


@dataclass(frozen=True)
class ProgramOptions:
    """Options of a command for programs only.

    Attributes:
        steps: number of session runs to keep for each pipeline or loop; None for all.
        synthetic: whether data transfers between host and IPUs are left out.
        hosts: number of simulated hosts that run the program; None for a single host, whose printed lines have no
            number.
        tensorflow: major version of TensorFlow shown to the program; None to infer the version from used names.
    """

    steps: int | None = None
    synthetic: bool = False
    hosts: int | None = None
    tensorflow: int | None = None


def check_options(
    path: Path, arguments: Sequence[str] | None, overrides: Sequence[str] | None, options: ProgramOptions
) -> None:
    """Refuse a scenario's options for a program, and a program's options for a scenario.

    Raises OptionError, and Click's usage error for arguments after a scenario.
    """
    if is_program(path):
        if overrides:
            raise OptionError(
                "set", f"expected a scenario with a key {overrides[0]!r} to change, got the program {path}"
            )
        if options.hosts is not None:
            from ipusim.ipu.horovod import MOST_HOSTS

            if options.hosts > MOST_HOSTS:
                raise OptionError("hosts", f"expected at most {MOST_HOSTS:,}, got {options.hosts:,}")
        return
    if arguments:
        raise typer.BadParameter(
            f"expected no arguments after a scenario, got {' '.join(arguments)}", param_hint="ARGUMENTS"
        )
    if options.tensorflow is not None:
        raise OptionError("tensorflow", f"expected a program, a Python file, got {path}")
    in_scenarios = (
        ("profile_steps", options.steps is not None, "steps=N"),
        ("hosts", options.hosts is not None, f"system.host.count={options.hosts}"),
        ("synthetic", options.synthetic, "use_synthetic_data=true"),
    )
    for option, is_set, setting in in_scenarios:
        if is_set:
            text = f"expected a program, a Python file, got {path}: for a scenario use --set {setting}"
            raise OptionError(option, text)


@contextmanager
def program_run(*, to_stderr: bool, hosts: int | None = None) -> Iterator[None]:
    """Prepare the terminal for the block's program, and restore it afterwards.

    Interrupts end the program cleanly. Lines printed by simulated ``hosts`` begin with the host's number; without
    ``--hosts``, ``hosts`` is None and lines have no number. With ``to_stderr``, the program's output goes to standard
    error.

    Raises typer.Exit with the exit code of a program that exits.
    """
    from ipusim.ipu.programs.program_file import ProgramEnded

    resume_garbage_collection()
    numbering = nullcontext() if hosts is None else _number_lines()
    with interruptible(), redirect_stdout(sys.stderr) if to_stderr else nullcontext(), numbering:
        try:
            yield
        except ProgramEnded as end:
            raise typer.Exit(end.code) from None
        finally:
            sys.stdout.flush()  # keep the program's output, even if an interrupt ends the process


@contextmanager
def _number_lines() -> Iterator[None]:
    """Prefix each line printed by a host with the host's number."""
    from ipusim.api import machine
    from ipusim.base.streams import NumberedLines

    def number() -> int | None:
        host = machine.this_host()
        return None if host is None else host.rank

    out, errors = NumberedLines(sys.stdout, number), NumberedLines(sys.stderr, number)
    try:
        with redirect_stdout(out), redirect_stderr(errors):
            yield
    finally:
        out.finish()
        errors.finish()


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Return whether a program's arguments ask for its help instead of a run."""
    return not {"-h", "--help"}.isdisjoint(arguments)


def run_profiled(
    path: Path,
    arguments: Sequence[str],
    folder: Path,
    files: Callable[[Run, Path, Sequence[str]], dict[str, bytes]],
    options: ProgramOptions,
    *,
    to_stderr: bool,
) -> dict[Path, Run]:
    """Run a program under the profiler, and return the first host's runs by folder.

    ``files`` returns the contents of a run's files by name, from the run, its folder, and comments on its scenario.
    With ``to_stderr`` the program prints to standard error. Raises the ProgramError and FileError of the program file,
    and typer.Exit with the exit code of a program that exits.
    """
    from ipusim.ipu.programs.profiling import profile
    from ipusim.ipu.programs.program_file import ProgramFile

    program, process = ProgramFile(path), os.getpid()
    with (
        program_run(to_stderr=to_stderr, hosts=options.hosts),
        profile(
            folder, options.steps, options.synthetic, description=program.description, name=program.name, files=files
        ) as profiled,
    ):
        program.run(arguments, options.hosts, options.tensorflow)
        if os.getpid() != process:  # a process forked by the program reports no results
            raise typer.Exit
        if not profiled.recorder.programs:
            if not asks_for_help(arguments):
                print(f"{path}: no pipeline or loop has run on IPUs, so there are no results", file=sys.stderr)
            raise typer.Exit
    return dict(zip(profiled.folders, profiled.runs, strict=True))
