"""From the file of measured stages that a request names to their cycles."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ipusim.base.errors import FileError
from ipusim.runs.assemble.stages import RequestedStage
from ipusim.runs.findings import Findings
from ipusim.runs.problems import KeyPath
from ipusim.runs.request.profile import misplaced, read_profile, wrong_number
from ipusim.runs.request.schema import Options

_CYCLES: Final[KeyPath] = ("pipeline", "cycles")


def with_profile(
    options: Options, requested: tuple[RequestedStage, ...] | None, folder: Path, findings: Findings
) -> Options:
    """Return options that list the cycles which their file holds; without cycles after noting what is wrong with it.

    The file's name is relative to ``folder``. Its times become cycles at the clock of the system.
    """
    name = options.pipeline.cycles
    if not isinstance(name, str):
        return options
    cycles = None
    try:
        rows = read_profile(folder / name, options.system.clock_hz, name)
    except FileError as error:
        for line in str(error).splitlines():
            findings.add(_CYCLES, line)
    except OSError as error:
        findings.add(_CYCLES, f"expected a file that can be read, got {folder / name}: {error.strerror}")
    else:
        cycles = tuple(row.cycles for row in rows)
        if requested is not None and not any(stage.concurrent for stage in requested):
            stages = {stage.name: [layer.spec.name for layer in stage.layers] for stage in requested}
            for text in (*wrong_number(rows, stages, name), *misplaced(rows, [*stages])):
                findings.add(_CYCLES, text)
            cycles = cycles if len(rows) == len(stages) else None
    return options.model_copy(update={"pipeline": options.pipeline.model_copy(update={"cycles": cycles})})
