"""From the file of measured stages that a request names to the stages, or to their cycles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from ipusim.base.errors import FileError
from ipusim.runs.assemble.stages import RequestedStage
from ipusim.runs.findings import Findings
from ipusim.runs.problems import KeyPath
from ipusim.runs.request.profile import misplaced, read_profile, read_stages, wrong_number
from ipusim.runs.request.schema import Options

_CYCLES: Final[KeyPath] = ("pipeline", "cycles")
_STAGES: Final[KeyPath] = ("pipeline", "stages")
_Rows = TypeVar("_Rows")


def with_stages(options: Options, folder: Path, findings: Findings) -> Options:
    """Return options that list the stages which their file holds; the same after noting what is wrong with it.

    The file's name is relative to ``folder``. Its times become cycles at the clock of the system.
    """
    name = options.pipeline.stages
    if not isinstance(name, str):
        return options
    stages = _read(read_stages, options, folder / name, name, _STAGES, findings)
    return options if stages is None else _with(options, stages=stages)


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
    rows = _read(read_profile, options, folder / name, name, _CYCLES, findings)
    if rows is not None:
        cycles = tuple(row.cycles for row in rows)
        if requested is not None and not any(stage.concurrent for stage in requested):
            stages = {stage.name: [layer.spec.name for layer in stage.layers] for stage in requested}
            for text in (*wrong_number(rows, stages, name), *misplaced(rows, [*stages])):
                findings.add(_CYCLES, text)
            cycles = cycles if len(rows) == len(stages) else None
    return _with(options, cycles=cycles)


def _read(
    read: Callable[[Path, int, str], _Rows], options: Options, path: Path, name: str, key: KeyPath, findings: Findings
) -> _Rows | None:
    """Return the result of ``read`` on a file; None after noting its errors at the option ``key``."""
    try:
        return read(path, options.system.clock_hz, name)
    except FileError as error:
        for line in str(error).splitlines():
            findings.add(key, line)
    except OSError as error:
        findings.add(key, f"expected a file that can be read, got {path}: {error.strerror}")
    return None


def _with(options: Options, **values: Any) -> Options:
    """Return options with other values in their section ``pipeline``."""
    return options.model_copy(update={"pipeline": options.pipeline.model_copy(update=values)})
