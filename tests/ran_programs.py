"""Programs of scenarios/python/ run, each once in a process for all tests that look at the same run."""

from __future__ import annotations

import contextvars
import functools
import io
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ipusim.api import datasets
from ipusim.ipu.ipu_compiler import compiled
from ipusim.ipu.programs.program_file import ProgramFile
from ipusim.ipu.runtime.recording import Recorded, Recorder, recording
from tests.places import SCENARIOS
from tests.tensorflow_tests import needs_tensorflow

PROGRAMS = SCENARIOS / "python"


@dataclass
class Traced:
    """A pipeline or loop of a program on TensorFlow.

    Attributes:
        job: what ran.
        timeline: of the last run.
        variables: variables of the machine behind the last run, by name.
    """

    job: Any
    timeline: Any
    variables: Mapping[str, Any]


class TracedRan(ProgramFile):
    """A program on TensorFlow as it ran, and what it leaves.

    Attributes:
        out: what it printed.
        compiled: its pipelines and loops, in the order of their first runs.
    """

    def __init__(self, path: Path, arguments: Sequence[str]) -> None:
        """Run it; what it raises is raised."""
        super().__init__(path)
        from ipusim.ipu.traced.device_program import DeviceProgram  # noqa: PLC0415 - which imports TensorFlow

        run, found, printed = DeviceProgram.run, {}, io.StringIO()

        def noted(program: Any, invocation: Any, running: Any, *rest: Any) -> Any:
            result = run(program, invocation, running, *rest)
            session = program._placed[running.session].session
            timeline = program.timelines[running.session]
            found[program] = Traced(session.job, timeline, session.state().variables)
            return result

        with redirect_stdout(printed), pytest.MonkeyPatch.context() as patch:
            patch.setattr(datasets, "synthetic_classes", _drawn)
            patch.setattr(DeviceProgram, "run", noted)
            contextvars.Context().run(lambda: self.run(arguments, traced=True))
        self.out, self.compiled = printed.getvalue(), tuple(found.values())


class Ran(ProgramFile):
    """A program as it runs from the command line, and what it leaves.

    Attributes:
        out: what it printed.
        names: its names.
        context: what it ran in, where its configuration and its programs are.
        compiled: the programs that it compiled.
        recorded: those that ran, with their session runs.
    """

    def __init__(self, path: Path, arguments: Sequence[str]) -> None:
        """Run it, in a context in which nothing has been compiled; what it raises is raised."""
        super().__init__(path)
        printed = io.StringIO()
        with redirect_stdout(printed), pytest.MonkeyPatch.context() as patch:
            patch.setattr(datasets, "synthetic_classes", _drawn)
            contextvars.Context().run(self._recorded, arguments)
        self.out = printed.getvalue()
        self.compiled: tuple[Any, ...] = self.context.run(compiled)

    def _recorded(self, arguments: Sequence[str]) -> None:
        with recording(Recorder()) as found:
            self.run(arguments)
        self.recorded: tuple[Recorded, ...] = found.programs

    def _execute(self, module: ModuleType) -> None:
        super()._execute(module)
        self.names, self.context = vars(module), contextvars.copy_context()


#: Most programs learn the same images.
_drawn = functools.cache(datasets.synthetic_classes)


@functools.cache
def traced_once(name: str, *arguments: str) -> TracedRan:
    """Run a program on TensorFlow, unless it ran with these arguments already."""
    needs_tensorflow()
    return TracedRan(PROGRAMS / f"{name}.py", arguments)


@functools.cache
def once(name: str, *arguments: str) -> Ran:
    """Run a program, unless it ran with these arguments already: nobody may change what is returned."""
    return Ran(PROGRAMS / f"{name}.py", arguments)
