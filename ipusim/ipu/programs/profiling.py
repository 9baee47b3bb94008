"""Profile programs: ``with ipu.profile("folder"):`` writes the same files as ``ipusim run`` for a scenario."""

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
from ipusim.ipu.runtime.recording import ProgramRecord, Recorder, recorder, recording

#: Function from a run, its folder, and comments on its scenario to file contents by name.
Files = Callable[[Run, Path, Sequence[str]], dict[str, bytes]]


def first_execution(result: Run, folder: Path, comments: Sequence[str]) -> dict[str, bytes]:
    """Return a run's files, with a picture of the pipeline's first execution."""
    return run_files(result, picture_window(result.timeline), folder, comments=comments)


class profile:  # noqa: N801 - callers use it like a function
    """Profile the programs that run inside ``with ipu.profile(folder):``, in sessions or eagerly.

    At the end of the block, the folder gets the files that ``ipusim run`` writes for a scenario, for ``ipusim show``,
    ``report``, ``explain`` and ``compare``. A program's session runs follow one another on one time axis, like a
    scenario's steps. Several programs get one subfolder each, named after the program, with a number if names repeat.
    Programs that other threads run are included if they were built inside the block. Failed blocks and forked
    processes write nothing.

    Args:
        folder: output folder. Result files of an earlier run are removed; other files stay.
        steps: session runs to keep per program, from the first; by default as many as a trace can hold.
        synthetic: whether programs placed on IPUs inside the block exchange no data with the host, as with Graphcore's
            ``use_synthetic_data``.
        description, name: description and name of the runs; only a single program takes the name.
        files: function that makes the files.

    Attributes:
        folders: output folders after the block; a single program uses the given folder.
        runs: runs in the order of folders.

    Raises OutputError on entering if the folder is not writable. Raises ProgramStateError inside another profile, on
    entering again, and at the end of a block without runs.
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
        """Set folder and options; raises ProgramTypeError and ProgramError for invalid arguments."""
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
        """Start recording."""
        if self._exit is not None:
            raise ProgramStateError(
                f"profile: expected a new profile for each block, got the profile of {self._folder} a second time"
            )
        outer = recorder()
        if outer is not None and outer.folder is not None:
            raise ProgramStateError(
                f"profile: expected no profile inside another, got {self._folder} inside {outer.folder}, "
                "which also records the runs of the inner block"
            )
        with ExitStack() as stack:
            self._results = stack.enter_context(ResultsFolder(self._folder, RESULT_FILES, outdated=OUTDATED_FILES))
            stack.enter_context(synthetic_data(self._synthetic))
            stack.enter_context(recording(self.recorder))
            self._exit = stack.pop_all()
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: Any) -> None:
        """Write the recorded runs, unless the block has failed."""
        assert self._exit is not None
        with self._exit:
            if error_type is None and self._results.is_mine:
                self._write()

    def _write(self) -> None:
        """Write the files of every recorded program into its folder."""
        self.recorder.check("the block of a profile")
        programs = self.recorder.programs
        runs: dict[Path, Run] = {}
        files: dict[Path, dict[str, bytes]] = {}
        for path, record in _program_folders(self._folder, programs).items():
            comments: Sequence[str] = ()
            job = record.as_job(self._name if len(programs) == 1 else "")
            try:
                scenario = as_scenario(job, self._description)
                request, comments = scenario.request, scenario.comments
            except UnsupportedProgramError:  # the folder gets no scenario
                request = replace(job.request, description=self._description)
            functions = job.request.functions
            assert isinstance(functions, StepFunctions)
            runs[path] = record.run(request, functions.shown_names, scopes_of(functions))
            files[path] = self._files(runs[path], path, comments)
        with ExitStack() as stack:
            folders = {
                path: self._results
                if path == self._folder
                else stack.enter_context(ResultsFolder(path, RESULT_FILES, outdated=OUTDATED_FILES, may_be_link=False))
                for path in files
            }
            for path, content in files.items():
                folders[path].write(content)
            if self._folder not in folders:
                self._results.write({})  # removes an earlier run's files
        self.folders, self.runs = tuple(runs), tuple(runs.values())


def _program_folders(folder: Path, programs: tuple[ProgramRecord, ...]) -> dict[Path, ProgramRecord]:
    """Return the folder of every program: the user's folder, or subfolders for several programs."""
    if len(programs) == 1:
        return {folder: programs[0]}
    result: dict[Path, ProgramRecord] = {}
    for program in programs:
        name = "".join(c if c.isalnum() or c in "-_." else "_" for c in program.job.name).strip(".") or "program"
        unique_name, number = name, 1
        while folder / unique_name in result:
            number += 1
            unique_name = f"{name}_{number}"
        result[folder / unique_name] = program
    return result
