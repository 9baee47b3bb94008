"""Programs on TensorFlow run, each once in a process for all tests that look at the same run."""

from __future__ import annotations

import contextvars
import functools
import io
import os
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ipusim.api import datasets
from ipusim.ipu.programs.program_file import ProgramFile
from ipusim.ipu.runtime.recording import Recorded, Recorder, recording
from tests.places import SCENARIOS
from tests.tensorflow_tests import needs_tensorflow

PROGRAMS = SCENARIOS / "python"
#: Most programs learn the same images.
_drawn = functools.cache(datasets.synthetic_classes)


@dataclass
class LastRun:
    """The last run of a pipeline or a loop.

    Attributes:
        name: its name.
        timeline: Timeline of the run.
        job: what ran.
        variables: variables of the machine behind the run, by name.
    """

    name: str
    timeline: Any
    job: Any
    variables: Mapping[str, Any]


class Ran(ProgramFile):
    """A program as it ran, and what it leaves.

    Attributes:
        out: what it printed.
        names: its names.
        programs: last run of each pipeline and loop, in the order of their first run.
        recorded: pipelines and loops with their session runs.
    """

    def __init__(self, path: Path, arguments: Sequence[str] = ()) -> None:
        """Run it; what it raises is raised."""
        needs_tensorflow()
        super().__init__(path)
        import ipusim.ipu.imports.hosted  # noqa: F401, PLC0415 - its settings stay in the process's environment
        from ipusim.ipu.traced.device_program import DeviceProgram  # noqa: PLC0415 - which imports TensorFlow

        run, found, printed = DeviceProgram.run, {}, io.StringIO()

        def noted(program: Any, invocation: Any, running: Any, *rest: Any) -> Any:
            result = run(program, invocation, running, *rest)
            session = program._placed[running.session].session
            timeline = program.timelines[running.session]
            found[program] = LastRun(program.name, timeline, session.job, session.variables())
            return result

        with redirect_stdout(printed), pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "environ", os.environ.copy())
            patch.setattr(datasets, "synthetic_classes", _drawn)
            patch.setattr(DeviceProgram, "run", noted)
            contextvars.Context().run(self._recorded, arguments)
        self.out, self.programs = printed.getvalue(), tuple(found.values())

    def _recorded(self, arguments: Sequence[str]) -> None:
        with recording(Recorder()) as found:
            self.run(arguments)
        self.recorded: tuple[Recorded, ...] = found.programs

    def _execute(self, module: ModuleType) -> None:
        super()._execute(module)
        self.names = dict(vars(module))


@functools.cache
def once(name: str, *arguments: str) -> Ran:
    """Run a program of scenarios/python/, unless it ran with these arguments: nobody may change what is returned."""
    return Ran(PROGRAMS / f"{name}.py", arguments)
