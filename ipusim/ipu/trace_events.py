"""Events of a session's run, as Graphcore's event trace has them: the programs that the device executed.

Nothing is compiled and no engine is loaded, so that executions are the only events; each has the times of its run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ipusim.ipu import checks


class IpuTraceEventType(Enum):
    """What an event is."""

    EXECUTE = "EXECUTE"


@dataclass(frozen=True)
class IpuTraceEvent:
    """An event: what it is, of which program, and the times of the run as JSON."""

    type: IpuTraceEventType
    module_name: str
    execution_report: str


def extract_all_events(events: Sequence[IpuTraceEvent]) -> list[IpuTraceEvent]:
    """Return the events of a trace; raises ProgramTypeError for others."""
    return _checked(events)


def extract_all_types_from_event_trace(events: Sequence[IpuTraceEvent]) -> list[IpuTraceEventType]:
    """Return what each event is; raises ProgramTypeError for others."""
    return [event.type for event in _checked(events)]


def extract_all_strings_from_event_trace(events: Sequence[IpuTraceEvent]) -> str:
    """Return what the events say, one under the other; raises ProgramTypeError for others."""
    return "".join(
        f"{'-' * 70}\n=> Execute: {event.module_name}\n{event.execution_report}\n" for event in _checked(events)
    )


def extract_execute_reports(events: Sequence[IpuTraceEvent]) -> list[tuple[str, str]]:
    """Return name and report of each execution; raises ProgramTypeError for others."""
    return [(event.module_name, event.execution_report) for event in _checked(events)]


def extract_compile_reports(events: Sequence[IpuTraceEvent]) -> list[tuple[str, str]]:
    """Return nothing, as SDK 2.1 does: a trace has no reports of the compiler. Raises ProgramTypeError for others."""
    _checked(events)
    return []


def extract_poplar_serialized_graphs(events: Sequence[IpuTraceEvent]) -> list[tuple[str, str]]:
    """Return nothing, as SDK 2.1 does: a trace has no graphs. Raises ProgramTypeError for other events."""
    _checked(events)
    return []


def _checked(events: object) -> list[IpuTraceEvent]:
    if not isinstance(events, list | tuple) or not all(isinstance(event, IpuTraceEvent) for event in events):
        checks.wrong_type("events", "what a session returns for an ipu_compile_summary", events)
    return list(events)
