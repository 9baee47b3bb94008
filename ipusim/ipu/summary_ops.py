"""Summaries in Graphcore's names: what a session returns beside a program's results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ipusim.api import Array
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.host import Evaluated, Fetch, Running
from ipusim.ipu.runtime.run import Pipeline
from ipusim.ipu.utils import IpuTraceEvent, IpuTraceEventType

__all__ = ["TensorSummary", "ipu_compile_summary", "tensor_summary"]


def _events(operations: Sequence[Any], running: Running) -> tuple[IpuTraceEvent, ...]:
    """Return the events of a run: an execution of each program that it holds, in order."""
    for operation in operations:
        running.value(operation)
    return tuple(
        IpuTraceEvent(IpuTraceEventType.EXECUTE, program.timeline.info.name, json.dumps(program.summary.times_dict()))
        for program in running.evaluated()
        if isinstance(program, Pipeline)
    )


@dataclass(frozen=True, eq=False)
class TensorSummary:
    """A tensor under a tag, as a session saw it.

    Attributes:
        tag: what it is called: the display name, or the name behind its family.
        tensor: its value.
        description: what is told of it.
    """

    tag: str
    tensor: Array
    description: str


def ipu_compile_summary(name: str, op_list: Any, collections: Sequence[str] | None = None) -> Fetch:
    """Return what gives the events of a session's run: ``ipu.utils.extract_all_events`` and its kin read them.

    Args:
        name: of the summary.
        op_list: an operation, or a list of operations, that come first; results of compiled programs are some.
        collections: without effect, as there is no graph.

    Raises ProgramTypeError for what is no name, operation or collection.
    """
    checks.text("name", name)
    _check_collections(collections)
    operations = tuple(op_list) if isinstance(op_list, list | tuple) else (op_list,)
    if not all(isinstance(operation, Fetch) for operation in operations):
        checks.wrong_type("op_list", "an operation or a list of operations", op_list)
    return Evaluated(lambda running: _events(operations, running), late=True)


def tensor_summary(
    name: str,
    tensor: Any,
    summary_description: str | None = None,
    collections: Sequence[str] | None = None,
    summary_metadata: object = None,
    family: str | None = None,
    display_name: str | None = None,
) -> Fetch:
    """Return what gives a :class:`TensorSummary` of a tensor in each run of a session.

    Args:
        name: of the tensor, its tag behind ``family`` and a slash where there is no ``display_name``.
        tensor: a tensor of the host, a program's result, or an array.
        summary_description: what is told of it.
        collections, summary_metadata: without effect, as there is no graph and no plugin that reads it.
        family, display_name: what the tag is made of.

    Raises ProgramTypeError for texts that are none, and for what is no tensor.
    """
    checks.text("name", name)
    _check_collections(collections)
    texts = {"summary_description": summary_description, "family": family, "display_name": display_name}
    for argument, value in texts.items():
        checks.instance(argument, value, str | None, "a text")
    if not isinstance(tensor, Fetch):
        checks.numbers("tensor", tensor)
    tag = display_name or (f"{family}/{name}" if family else name)

    def summary(running: Running) -> TensorSummary:
        return TensorSummary(tag, checks.numbers("tensor", running.value(tensor)), summary_description or "")

    return Evaluated(summary, late=True)


def _check_collections(collections: object) -> None:
    checks.instance("collections", collections, list | tuple | None, "a list of names, or None")
