"""A profile of programs: ``with ipu.profile("folder"):`` leaves there what a run of a scenario leaves."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from ipusim.api import Run
from ipusim.app.run_folder.folder import ResultsFolder
from ipusim.app.run_folder.report import OUTDATED_FILES, RESULT_FILES, picture_window, run_files
from ipusim.base.errors import ProgramStateError, UnsupportedProgramError
from ipusim.ipu.graph.traced_functions import StepFunctions
from ipusim.ipu.programs.as_scenario import as_scenario
from ipusim.ipu.programs.layer_names import scopes_of
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.poplar_flags import synthetic_data
from ipusim.ipu.runtime.recording import Recorded, Recorder, recorder, recording

#: From a run, the folder that it goes to, and comments on its scenario, to the content of each file by name.
Files = Callable[[Run, Path, Sequence[str]], dict[str, bytes]]


def first_execution(result: Run, folder: Path, comments: Sequence[str]) -> dict[str, bytes]:
    """Return the files of a run, whose picture shows the first execution of its pipeline."""
    return run_files(result, picture_window(result.timeline), folder, comments=comments)


class profile:  # noqa: N801 - a function to its callers
    """Profile the programs that a session runs, or that run as they are built, inside ``with ipu.profile(folder):``.

    When the block ends, the folder has the files that ``ipusim run`` of a scenario leaves, for ``ipusim show``,
    ``report``, ``explain`` and ``compare``: a program's session runs stand one after the other on one time
    axis, as the steps of a scenario. Several programs have a folder each in it, called as they are, with a number
    behind names that come again. Programs of other threads count where they were laid out inside the block. Where the
    block fails, nothing is written, and none by a process that the block has forked.

    Args:
        folder: where to. Files that an earlier run has left there go; others stay.
        steps: session runs of each program to keep, from the first; by default as many as one trace can hold.
        synthetic: whether data never travel from and to the host, as with Graphcore's ``use_synthetic_data``, of
            programs that are laid out inside the block.
        description, name: of what runs; one program alone has that name, in place of its own.
        files: what makes the files.

    Attributes:
        folders: where what ran has gone to, once the block has ended; of one program the one that was given.
        runs: what ran, in that order.

    Raises OutputError on entering where the folder cannot be written, ProgramStateError inside another profile, on
    entering again, and at the end of a block in which nothing ran.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        steps: int | None = None,
        synthetic: bool = False,
        *,
        description: str = "",
        name: str = "",
        files: Files = first_execution,
    ) -> None:
        """Take what to keep and where to put it; raises ProgramTypeError and ProgramError for what is neither."""
        if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
            checks.wrong_type("folder", "the name of a folder", folder)
        self._folder = Path(folder)
        self._steps = None if steps is None else checks.whole("steps", steps, 1)
        self._synthetic = checks.truth("synthetic", synthetic)
        self._description, self._name, self._files = description, name, files
        self._exit: ExitStack | None = None
        self.recorder = Recorder(self._steps, self._folder)
        self.folders: tuple[Path, ...] = ()
        self.runs: tuple[Run, ...] = ()

    def __enter__(self) -> Self:
        """Begin to keep what runs."""
        if self._exit is not None:
            raise ProgramStateError(f"profile: expected a profile for each block, got that of {self._folder} again")
        outer = recorder()
        if outer is not None and outer.folder is not None:
            raise ProgramStateError(
                f"profile: expected no profile inside another, got {self._folder} inside that of {outer.folder}: what "
                "runs is in that already"
            )
        with ExitStack() as stack:
            self._results = stack.enter_context(ResultsFolder(self._folder, RESULT_FILES, outdated=OUTDATED_FILES))
            stack.enter_context(synthetic_data(self._synthetic))
            stack.enter_context(recording(self.recorder))
            self._exit = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        """Write what ran, unless the block has failed."""
        assert self._exit is not None
        with self._exit:
            if kind is None and self._results.is_mine:
                self._write()

    def _write(self) -> None:
        self.recorder.check("the block of a profile")
        programs = self.recorder.programs
        runs: dict[Path, Run] = {}
        files: dict[Path, dict[str, bytes]] = {}
        for path, recorded in _places(self._folder, programs).items():
            comments: Sequence[str] = ()
            job = recorded.as_job(self._name if len(programs) == 1 else "")
            try:
                scenario = as_scenario(job, self._description)
                request, comments = scenario.request, scenario.comments
            except UnsupportedProgramError:  # its folder has no scenario then
                request = replace(job.request, description=self._description)
            functions = job.request.functions
            assert isinstance(functions, StepFunctions)
            runs[path] = recorded.run(request, functions.shown_names, scopes_of(functions))
            files[path] = self._files(runs[path], path, comments)
        with ExitStack() as others:
            every = {
                path: self._results
                if path == self._folder
                else others.enter_context(ResultsFolder(path, RESULT_FILES, outdated=OUTDATED_FILES, may_be_link=False))
                for path in files
            }
            for path, content in files.items():
                every[path].write(content)
            if self._folder not in every:
                self._results.write({})  # an earlier run's go
        self.folders, self.runs = tuple(runs), tuple(runs.values())


def _places(folder: Path, programs: tuple[Recorded, ...]) -> dict[Path, Recorded]:
    """Return the folder of each program: the user's folder, or a subfolder of it for each of several programs."""
    if len(programs) == 1:
        return {folder: programs[0]}
    result: dict[Path, Recorded] = {}
    for program in programs:
        name = "".join(c if c.isalnum() or c in "-_." else "_" for c in program.job.name).strip(".") or "program"
        numbered, number = name, 1
        while folder / numbered in result:
            number += 1
            numbered = f"{name}_{number}"
        result[folder / numbered] = program
    return result
