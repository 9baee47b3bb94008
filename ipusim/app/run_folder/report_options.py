"""Check a run's file options, before the run and before importing matplotlib."""

from __future__ import annotations

from ipusim.api import analysis, runs
from ipusim.app.render.window import ShownPart
from ipusim.base.errors import OptionError
from ipusim.base.near_names import did_you_mean
from ipusim.base.units import format_numbers


def check_picture(executions: int, part: ShownPart) -> None:
    """Refuse a picture that no run of ``executions`` executions can show; raises OptionError."""
    start, end, phase, execution = part
    for option, cycle in (("start", start), ("end", end)):
        if cycle is not None and not 0 <= cycle <= runs.MAX_CYCLES:
            raise OptionError(
                option,
                f"expected a cycle from 0 to {runs.MAX_CYCLES}, the limit of a run, got {runs.show(cycle)}",
            )
    check_execution(executions, execution)
    if phase is not None and (start is not None or end is not None):
        raise OptionError("phase", "expected either a phase or cycles {} and {}, got both", "start", "end")
    words = [name.replace(" ", "-") for name in analysis.PHASES]
    if phase is not None and phase_word(phase) not in words:
        raise OptionError(
            "phase",
            f"expected {runs.one_of(words)}, or no option for all phases, got {phase!r}{did_you_mean(phase, words)}",
        )
    if start is not None and end is not None and start >= end:
        raise OptionError("start", f"expected a cycle before {{}} {end}, got {start}", "end")


def check_execution(executions: int, execution: int | None) -> None:
    """Refuse an execution that no run of ``executions`` executions has; raises OptionError."""
    if execution is not None and not 0 <= execution < executions:
        raise OptionError(
            "execution", f"expected an execution {format_numbers(executions)}, got {runs.show(execution)}"
        )


def phase_word(phase: str) -> str:
    """Return a phase as hyphenated word, as in options and file names."""
    return phase.lower().replace(" ", "-")
