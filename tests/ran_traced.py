"""Programs that TensorFlow traces, run each once in a process, and the runs of their pipelines and loops."""

from __future__ import annotations

import contextvars
import functools
import io
import os
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ipusim.api import datasets
from ipusim.ipu.programs.program_file import ProgramFile
from tests.places import SCENARIOS
from tests.tensorflow_tests import needs_tensorflow

PROGRAMS = SCENARIOS / "python"


@dataclass
class LastRun:
    """The last run of a pipeline or a loop.

    Attributes:
        name: its name.
        timeline: Timeline of the run.
        job: what ran.
        variables: values of all variables behind the run.
    """

    name: str
    timeline: Any
    job: Any
    variables: dict[str, Any]


@dataclass
class RanTraced:
    """A program that has run.

    Attributes:
        out: what it printed.
        names: its names.
        programs: last run of each pipeline and loop, in the order of their first run.
    """

    out: str = ""
    names: dict[str, Any] = field(default_factory=dict)
    programs: list[LastRun] = field(default_factory=list)


#: Most programs learn the same images.
_drawn = functools.cache(datasets.synthetic_classes)


def run_traced(path: Path, arguments: Sequence[str] = ()) -> RanTraced:
    """Run a program on TensorFlow; what it raises is raised."""
    needs_tensorflow()
    import ipusim.ipu.imports.hosted  # noqa: F401, PLC0415 - its settings stay in the process's environment
    from ipusim.ipu.traced.device_program import DeviceProgram  # noqa: PLC0415

    ran, printed, run, found = RanTraced(), io.StringIO(), DeviceProgram.run, {}

    def noted(program: Any, invocation: Any, running: Any, *rest: Any) -> Any:
        result = run(program, invocation, running, *rest)
        session = program._placed[running.session].session
        timeline = program.timelines[running.session]
        found[program] = LastRun(program.name, timeline, session.job, session.variables())
        return result

    class File(ProgramFile):
        def _execute(self, module: Any) -> None:
            super()._execute(module)
            ran.names = dict(vars(module))

    with redirect_stdout(printed), pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", os.environ.copy())
        patch.setattr(datasets, "synthetic_classes", _drawn)
        patch.setattr(DeviceProgram, "run", noted)
        contextvars.Context().run(functools.partial(File(path).run, arguments))
    ran.out, ran.programs = printed.getvalue(), list(found.values())
    return ran


@functools.cache
def once_traced(name: str, *arguments: str) -> RanTraced:
    """Run a program of scenarios/python/, unless it has run with these arguments: nobody may change the result."""
    return run_traced(PROGRAMS / f"{name}.py", arguments)
