"""Read files named by a request: tables of measured stages, profiles and rates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from ipusim.base.errors import FileError
from ipusim.hardware.rates import DEFAULT_RATES, Rates
from ipusim.runs.assemble.stages import RequestedStage
from ipusim.runs.findings import Findings
from ipusim.runs.problems import KeyPath
from ipusim.runs.request.profile import misplaced, read_profile, read_stages, wrong_number
from ipusim.runs.request.rates_file import read_rates
from ipusim.runs.request.rates_spec import rates_of
from ipusim.runs.request.schema import Options

_CYCLES: Final[KeyPath] = ("pipeline", "cycles")
_Value = TypeVar("_Value")


def with_stages(options: Options, folder: Path, findings: Findings) -> Options:
    """Return options with the stages that their file lists; unchanged options after recording a problem of the file.

    The file name is relative to ``folder``. Times become cycles at the clock of the system.
    """
    name = options.pipeline.stages
    if not isinstance(name, str):
        return options
    read = partial(read_stages, clock_hz=options.system.clock_hz)
    stages = _read(read, folder, name, ("pipeline", "stages"), findings)
    return options if stages is None else options.with_pipeline(stages=stages)


def with_profile(
    options: Options, requests: tuple[RequestedStage, ...] | None, folder: Path, findings: Findings
) -> Options:
    """Return options with the cycles that their file lists; no cycles after recording a problem of the file.

    The file name is relative to ``folder``. Times become cycles at the clock of the system.
    """
    name = options.pipeline.cycles
    if not isinstance(name, str):
        return options
    cycles = None
    rows = _read(partial(read_profile, clock_hz=options.system.clock_hz), folder, name, _CYCLES, findings)
    if rows is not None:
        cycles = tuple(row.cycles for row in rows)
        if requests is not None and not any(stage.concurrent for stage in requests):
            stages = {stage.name: [layer.spec.name for layer in stage.layers] for stage in requests}
            for text in (*wrong_number(rows, stages, name), *misplaced(rows, [*stages])):
                findings.add(_CYCLES, text)
            cycles = cycles if len(rows) == len(stages) else None
    return options.with_pipeline(cycles=cycles)


def resolve_rates(options: Options, folder: Path, findings: Findings) -> Rates:
    """Return the rates of the options; default rates after recording a problem of their file.

    The file name is relative to ``folder``.
    """
    spec = options.rates
    if not isinstance(spec, str):
        return rates_of(spec)
    rates = _read(read_rates, folder, spec, ("rates",), findings)
    return DEFAULT_RATES if rates is None else rates_of(rates, spec)


def _read(read: Callable[..., _Value], folder: Path, name: str, key: KeyPath, findings: Findings) -> _Value | None:
    """Return the result of ``read`` on a file in ``folder``; None after recording its errors at the option ``key``."""
    path = folder / name
    try:
        return read(path, file_name=name)
    except FileError as error:
        for line in str(error).splitlines():
            findings.add(key, line)
    except OSError as error:
        findings.add(key, f"expected a file that can be read, got {path}: {error.strerror}")
    return None
