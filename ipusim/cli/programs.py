"""Programs in Graphcore's API on the command line: what commands have of a Python file in common."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ipusim.errors import OptionError
from ipusim.terminal import interruptible, keep_watch

if TYPE_CHECKING:
    from ipusim.runs.run import Run

Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- ARGUMENTS]", help="of a program, as behind `python program.py`", show_default=False),
]
ProfileSteps = Annotated[
    int | None,
    typer.Option(
        "--profile-steps",
        min=1,
        metavar="N",
        help="of a program: session runs of each pipeline or loop to keep  [default: all]",
        show_default=False,
    ),
]
Hosts = Annotated[
    int | None,
    typer.Option(
        "--hosts",
        min=1,
        metavar="N",
        help="of a program: simulated hosts that run it, as of `mpirun -np N`; each line that one prints begins with "
        "its number, and the results are the first host's  [default: one, without a number]",
        show_default=False,
    ),
]
Synthetic = Annotated[bool, typer.Option("--synthetic", help="of a program: no data travel from and to the host")]


def is_program(path: Path) -> bool:
    """Tell whether a file is a program, by its name."""
    return path.suffix == ".py"


def check_options(
    path: Path,
    arguments: Sequence[str] | None,
    overrides: Sequence[str] | None,
    steps: int | None,
    synthetic: bool,
    hosts: int | None,
) -> None:
    """Refuse options of scenarios for a program, and the other way round.

    Raises OptionError, and Click's usage error for arguments behind a scenario.
    """
    if is_program(path):
        if overrides:
            raise OptionError("set", f"expected a scenario to change {overrides[0]!r} in, got the program {path}")
        if hosts is not None:
            _check_hosts(hosts)
        return
    if arguments:
        raise typer.BadParameter(f"expected none behind a scenario, got {' '.join(arguments)}", param_hint="ARGUMENTS")
    of_programs = (
        ("profile_steps", steps is not None, "steps=N"),
        ("hosts", hosts is not None, f"system.host.count={hosts}"),
        ("synthetic", synthetic, "use_synthetic_data=true"),
    )
    for option, given, said in of_programs:
        if given:
            text = f"expected a program, a Python file, got {path}: of a scenario, --set {said} says it"
            raise OptionError(option, text)


def _check_hosts(hosts: int) -> None:
    from ipusim.ipu.horovod.hosts import MOST

    if hosts > MOST:
        raise OptionError("hosts", f"expected at most {MOST:,}, got {hosts:,}")


@contextmanager
def running(*, aside: bool, hosts: int | None = None) -> Iterator[None]:
    """Let a program run inside the block, on so many ``hosts``; with ``aside`` it prints to standard error.

    Leaves with the program's own exit code where that ends the program.
    """
    from ipusim.ipu.program_file import ProgramEnded

    keep_watch()
    numbered = nullcontext() if hosts is None else _numbered()
    with interruptible(), redirect_stdout(sys.stderr) if aside else nullcontext(), numbered:
        try:
            yield
        except ProgramEnded as end:
            raise typer.Exit(end.code) from None
        finally:
            sys.stdout.flush()  # what it has printed stays, also where an interrupt ends the process


@contextmanager
def _numbered() -> Iterator[None]:
    """Let lines that hosts print begin with their numbers."""
    from ipusim.machine.hosts import this_host
    from ipusim.streams import NumberedLines

    def number() -> int | None:
        host = this_host()
        return None if host is None else host.rank

    out, errors = NumberedLines(sys.stdout, number), NumberedLines(sys.stderr, number)
    try:
        with redirect_stdout(out), redirect_stderr(errors):
            yield
    finally:
        out.finish()
        errors.finish()


def profiled(
    path: Path,
    arguments: Sequence[str],
    folder: Path,
    files: Callable[[Run, Path, Sequence[str]], dict[str, bytes]],
    steps: int | None,
    synthetic: bool,
    hosts: int | None,
    *,
    aside: bool,
) -> dict[Path, Run]:
    """Run a program under a profile, and return what ran by its folder, of several ``hosts`` on the first.

    With ``aside`` the program prints to standard error. Raises ProgramError and FileError as the program file does,
    and leaves with the program's own exit code where that ends the program.
    """
    from ipusim.ipu.profiling import profile
    from ipusim.ipu.program_file import ProgramFile

    program = ProgramFile(path)
    with (
        running(aside=aside, hosts=hosts),
        profile(folder, steps, synthetic, description=program.description, name=program.name, files=files) as found,
    ):
        program.run(arguments, hosts)
        found.recorder.check(str(path))
    return dict(zip(found.folders, found.runs, strict=True))
