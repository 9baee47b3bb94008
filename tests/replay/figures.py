"""All that a run came to, as one mapping from names to plain values, which a later commit's run is held against.

This is the one place that knows how values of the product are read: where one of them is laid out anew, what it says is
read here as before, and records made earlier stay good.
"""

import gzip
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ipusim.analysis.causes import idle_causes
from ipusim.analysis.critical_path import critical_path_of
from ipusim.analysis.memory import memory_curves
from ipusim.app.cli.figures import cost_tables
from ipusim.pipeline.plan import Plan
from ipusim.runs.job import Job
from ipusim.runs.run import Run
from ipusim.timeline.timeline import Span, Timeline

#: What fields of today are called in records.
RECORDED = {"by_group": "meetings", "host_calls": "outside", "starts": "again"}
#: The parts of a run, in the order in which one follows from the other, by the first word of a name.
PARTS = ("ended", "plan", "costs", "prices", "timeline", "memory", "explained", "learning", "summary", "pictures")
#: The parts whose last bits depend on the processor and on NumPy.
OF_THE_MACHINE = ("learning", "summary.learning")
#: How the names of pictures begin.
PICTURES = "pictures."
#: Blocks of spans that are hashed by themselves, so that a difference has a place.
BLOCKS = 16
#: Digits of a hash.
DIGITS = 12


def figures(run: Run) -> dict[str, Any]:
    """Return every figure of a run by its name, such as ``costs.passes.(0, 1)`` or ``timeline.columns.end``.

    A part that cannot be had leaves the others as they are, and what it raised.
    """
    parts: dict[str, Callable[[], Any]] = {
        "plan": lambda: plan(run.job.whole.plan),
        "costs": lambda: run.job.whole.costs,
        "prices": lambda: dict(prices(run.job.whole)),
        "timeline": lambda: timeline(run.timeline),
        "memory": lambda: dict(memory(run)),
        "explained": lambda: explained(run.timeline),
        "learning": lambda: learning(run),
        "summary": run.summary.to_dict,
    }
    found: dict[str, Any] = {}
    for name, make in parts.items():
        try:
            found.update(leaves(make(), name))
        except Exception as error:  # of a work tree that is broken
            found[f"{name}.failed"] = f"{type(error).__name__}: {error}"
    return found


def leaves(value: Any, name: str = "") -> Iterable[tuple[str, Any]]:
    """Yield each number and word in ``value`` with its name; of lists also the length, and plain ones whole."""
    if is_dataclass(value) and not isinstance(value, type):
        value = {RECORDED.get(field.name, field.name): getattr(value, field.name) for field in fields(value)}
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, f"{name}.{word_of(key)}" if name else word_of(key))
    elif isinstance(value, list | tuple | set | frozenset | range):
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else list(value)
        if all(is_plain(each) for each in items):
            yield name, [plain(each) for each in items]
            return
        yield f"{name}.length", len(items)
        for number, inner in enumerate(items):
            yield from leaves(inner, f"{name}.{number}")
    else:
        yield name, plain(value)


def word_of(key: Any) -> str:
    """Return the key of a mapping as a word; enumerations by their values, as they are at times plain numbers."""
    if isinstance(key, tuple):
        return f"({', '.join(map(word_of, key))})"
    return str(key.value if isinstance(key, Enum) else key)


def is_plain(value: Any) -> bool:
    """Tell whether a value is a number or a word."""
    return value is None or isinstance(value, str | bool | int | float | Fraction | np.generic)


def plain(value: Any) -> Any:
    """Return a number or word as JSON has it; of anything else what it is."""
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return repr(value)  # also those that JSON does not know
    return value if is_plain(value) else type(value).__name__


def hashed(content: bytes) -> str:
    """Return a short hash."""
    return sha256(content).hexdigest()[:DIGITS]


def hashed_array(array: Any) -> str:
    """Return a hash of an array's form and numbers, of whole numbers whatever the width in which they are kept."""
    array = np.asarray(array)
    if array.dtype.kind in "iub":
        array = array.astype("<i8")
    return hashed(f"{array.dtype.str}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())


def plan(plan: Plan) -> dict[str, Any]:
    """Return the hash of a Plan's text as it expands, and of each IPU's line of it."""
    listing = re.sub(r"\brelease\b", "let-go", plan.listing())  # as records have it
    lines = dict(line.split(": ", 1) for line in listing.splitlines())
    return {
        "listing": hashed(listing.encode()),
        "of": {ipu: [line.count(";") + 1, hashed(line.encode())] for ipu, line in lines.items()},
        "sync": str(plan.sync),
        "time_steps": plan.emitted,
        "fifo_depths": list(plan.fifo_depths),
    }


def prices(job: Job) -> Iterable[tuple[str, Any]]:
    """Yield each row of ``check --costs``, its cycles and formula, source or value, by the words that begin it."""
    for table in cost_tables(job.costs, job.plan, job.program, job.system):
        of, seen = "", {}
        for first, *others in table.rows:
            of = first or of
            name = f"{table.title}.{of}.{others[0]}" if table.title == "Costs" else f"{table.title}.{of}"
            seen[name] = seen.get(name, 0) + 1
            yield name if seen[name] == 1 else f"{name} ({seen[name]})", " | ".join(map(str, others))


def timeline(timeline: Timeline) -> dict[str, Any]:
    """Return the hash of each column of all spans, that of each block of spans, and what the columns refer to."""
    timeline = timeline.expanded()
    columns = {name: getattr(timeline, name) for name in Span._fields}
    edges = np.linspace(0, len(timeline), BLOCKS + 1).astype(int).tolist()
    return {
        "spans": len(timeline),
        "info": timeline.info,
        "columns": {name: hashed_array(column) for name, column in columns.items()},
        "blocks": [
            hashed("".join(hashed_array(column[start:end]) for column in columns.values()).encode())
            for start, end in pairwise(edges)
        ],
    }


def memory(run: Run) -> Iterable[tuple[str, Any]]:
    """Yield the hash of what each IPU of all replicas holds over time."""
    for replica in range(run.timeline.info.replicas if run.describes_memory else 0):
        for curve in memory_curves(run.timeline.expanded(), run.memory.footprint, replica):
            columns = (curve.time, curve.live_bytes, curve.fifo_bytes)
            yield f"IPU {curve.ipu}", [curve.resident_bytes, hashed("".join(map(hashed_array, columns)).encode())]


def explained(timeline: Timeline) -> dict[str, str]:
    """Return the hashes of the critical path and of what each IPU is idle for."""
    return {
        "critical_path": hashed_array(critical_path_of(timeline.expanded()).rows),
        "idle_causes": hashed_array(idle_causes(timeline).cycles),
    }


def learning(run: Run) -> dict[str, Any]:
    """Return hashes of what a run computed, to the last bit."""
    learnt = run.learning
    if learnt is None:
        return {}
    return {
        "losses": [len(learnt.losses), hashed(repr(learnt.losses).encode())],
        "outputs": {name: hashed_array(array) for name, array in learnt.outputs.items()},
        "weights": {name: hashed_array(array) for name, array in learnt.weights.items()},
        "evaluations": hashed(repr(learnt.evaluations).encode()),
        "constant_loss": learnt.constant_loss,
        "not_finite": learnt.not_finite,
    }


def pictures(run: Run) -> dict[str, str]:
    """Return the hash of each picture and of the trace file, unpacked, that ``ipusim run`` writes."""
    from ipusim.app.run_folder.report import picture_window, run_files  # noqa: PLC0415 - and matplotlib, where it is asked for

    files = run_files(run, picture_window(run.timeline), Path())
    found = {}
    for name, content in files.items():
        if name.endswith((".png", ".svg")):
            found[f"{PICTURES}{name}"] = hashed(content)
        elif name.startswith("trace."):
            found[f"{PICTURES}{name}"] = hashed(gzip.decompress(content))
    return found


def text_of(run: Run) -> str:
    """Return a run as text, line by line, for a ``diff`` of what two work trees make of the same request."""
    spans = (" ".join(f"{name}={value}" for name, value in span._asdict().items()) for span in run.timeline.expanded())
    lines = (f"{name} = {json.dumps(value)}" for name, value in figures(run).items())
    return "\n".join([run.job.whole.plan.listing(), *spans, *lines]) + "\n"
