"""Collect a pin's content: request, device, Plan, prices, time, memory and learning, as plain data.

A pin records a run, to be compared with later runs. A price is the cycles of an operation, computed by a formula called
law.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipusim.api import Job, Plan, Run, Span, SpanKind, Timeline, analysis, hardware, pipelines, pricing, timelines
from ipusim.app.regression.file import FORMAT, VERSION
from ipusim.app.regression.listed import Items, fingerprint, hash_of
from ipusim.app.run_folder.versions import version_of
from ipusim.base.errors import OutputError

#: Packages whose versions may change a pin.
_PACKAGES: Final = ("ipusim", "numpy", "scipy", "simpy")
#: Number of first spans kept as text.
_SPAN_TEXTS: Final = 60
#: Number of first instructions kept as text, shared by all IPUs.
_INSTRUCTION_TEXTS: Final = 240
#: Minimum number of first instructions kept as text for each IPU.
_LEAST_INSTRUCTION_TEXTS: Final = 8
#: Maximum number of spans of a pinned run; spans are written out in parts.
_MOST_SPANS: Final = 10 * timelines.MOST_SPANS
#: Number of first steps whose mean losses are kept, and of last evaluations.
_STEPS: Final = 64
#: Names of span kinds by number.
_KIND_NAMES: Final = {int(kind): kind.name for kind in SpanKind}
#: Maximum number of addends of a formula.
_MOST_ADDENDS: Final = 2


def pin_of(run: Run) -> dict[str, Any]:
    """Return the pin of a run, in a fixed order."""
    job = run.job
    terms = pricing.terms_of(job.costs, job.plan, job.program, job.system)
    return {
        "format": FORMAT,
        "format_version": VERSION,
        "scenario": job.name,
        "versions": {name: version_of(name) for name in _PACKAGES},
        "asked": _options(job),
        "device": _device(job),
        "shape": _shape(job),
        "plan": {
            str(ipu): fingerprint(items, max(_INSTRUCTION_TEXTS // len(job.plan.ipus), _LEAST_INSTRUCTION_TEXTS))
            for ipu, items in instructions(job.whole.plan).items()
        },
        "costs": _costs(job),
        "prices": _prices(terms),
        "rates": _rates(terms, job),
        "time": _time(run),
        "spans": fingerprint(spans(run.timeline), _SPAN_TEXTS),
        "memory": _memory(run),
        "learning": _learning(run),
    }


def _options(job: Job) -> dict[str, Any]:
    """Return the requested options by path, without defaults; list items by name."""
    data = job.request.without_defaults()
    for key in ("name", "expect"):
        data.pop(key, None)
    return dict(_leaves(data, ""))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield dotted path and value of every option below ``path``."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        names = [
            str(item.get("name", index)) if isinstance(item, dict) else str(index) for index, item in enumerate(value)
        ]
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}.{names[index] if names.count(names[index]) == 1 else index}")
    elif isinstance(value, list):
        yield path, [_leaf(item) for item in value]
    else:
        yield path, _leaf(value)


def _leaf(value: Any) -> Any:
    if isinstance(value, str) and not value.isprintable():
        return repr(value)
    return hardware.number(value) if isinstance(value, Fraction) else value


def _device(job: Job) -> dict[str, Any]:
    system = job.system
    return {
        "system": system.name,
        "clock_hz": system.clock_hz,
        "ipus": list(system.ipus),
        "selection_order": system.selection_order,
        "replicas": system.replicas,
        "hosts": system.hosts,
    }


def _shape(job: Job) -> dict[str, Any]:
    shape = job.program.shape
    return {
        "schedule": job.plan.schedule,
        "sync": str(job.plan.sync),
        "stages": [profile.name for profile in job.program.stages],
        "mapping": list(shape.mapping),
        "gradient_accumulation_count": shape.count,
        "micro_batch_size": job.program.micro_batch_size,
        "training": shape.training,
        "recompute": shape.recompute,
        "executions": job.executions,
    }


def instructions(plan: Plan) -> dict[int, Items]:
    """Return the instructions of every IPU, which define a Plan completely."""
    table = plan.instructions
    return {ipu: _instructions(table[table[:, 0] == ipu]) for ipu in sorted(set(table[:, 0].tolist()))}


def _instructions(table: npt.NDArray[np.int64]) -> Items:
    return Items(
        len(table),
        lambda index: pipelines.text_of(*table[index, 1:].tolist()),
        lambda start, end: np.ascontiguousarray(table[start:end]).astype("<i8").tobytes(),
    )


def _costs(job: Job) -> dict[str, Any]:
    """Return the machine's costs of every part of a Plan, in cycles and bytes."""
    names = [profile.name for profile in job.program.stages]
    costs_by_name: dict[str, Any] = {}
    for (kind, stage), cycles in job.costs.passes.items():
        if cycles:
            costs_by_name[f"{pipelines.Pass(kind).name.lower().replace('_', ' ')} of {names[stage]}"] = cycles
    for ipu, cycles in job.costs.updates.items():
        costs_by_name[f"update on IPU {ipu}"] = cycles
    for group, copies in enumerate(job.costs.copies.by_group):
        for number, copy in enumerate(copies):
            costs_by_name[f"copy {number} of group {group}"] = copy.total_cycles
    summed_fields = ("passes", "updates", "copies", "links")
    for field in fields(job.costs):
        value = getattr(job.costs, field.name)
        if field.name not in summed_fields and value and value != field.default:
            costs_by_name |= {f"{field.name}{path}": leaf for path, leaf in _numbers(value)}
    return _with_hashed_rest(costs_by_name)


#: Maximum number of costs kept as numbers; the remaining costs become a hash.
_MOST_COSTS: Final = 150


def _with_hashed_rest(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return the first numbers, and a hash of the others if too many."""
    names = list(numbers)
    if len(names) <= _MOST_COSTS:
        return numbers
    lines = "\n".join(f"{name} {numbers[name]}" for name in names[_MOST_COSTS:])
    return {name: numbers[name] for name in names[:_MOST_COSTS]} | {"others": hash_of(lines.encode())}


def _numbers(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the numbers and texts inside a value of Costs, with their paths."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    elif not isinstance(value, Mapping):
        value = analysis.as_plain(value)
    if isinstance(value, Mapping):
        for key, item in value.items():
            name = ".".join(map(str, key)) if isinstance(key, tuple) else str(key)
            yield from _numbers(item, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        if all(isinstance(item, int) for item in value):
            yield path, str(list(value))
            return
        for index, item in enumerate(value):
            yield from _numbers(item, f"{path}.{index}")
    elif isinstance(value, int | float | str) and not isinstance(value, bool):
        yield path, value


def _prices(terms: Sequence[pricing.TermRow]) -> dict[str, dict[str, str]]:
    """Return every price by subject and law: cycles, and formula with numbers."""
    prices: dict[str, dict[str, str]] = {}
    for term in terms:
        prices.setdefault(term.label, {})[term.law.name] = f"{term.cycles} = {term.formula(_MOST_ADDENDS)}"
    return prices


def _rates(terms: Sequence[pricing.TermRow], job: Job) -> dict[str, str]:
    """Return the exact rates and hardware figures behind the prices."""
    system, laws = job.system, {term.law for term in terms}
    rates = {name for law in laws for name in law.rates}
    figures = {name for law in laws for name in law.figures}
    specs = [system.ipu, system.host, *([system.streaming] if system.streaming else []), system]
    exact = {name: hardware.number(getattr(system.rates, name)) for name in sorted(rates)}
    for name in sorted(figures):
        owner = next((spec for spec in specs if hasattr(spec, name)), None)
        if owner is not None:
            exact[name] = hardware.number(Fraction(getattr(owner, name)))
    return exact


def _time(run: Run) -> dict[str, Any]:
    times = run.summary
    return {
        "makespan_cycles": times.makespan_cycles,
        "weight_update_cycles": times.weight_update_cycles,
        "slowest_execution_cycles": times.slowest_execution_cycles,
        "run_cycles": times.throughput.run_cycles,
        "phases": {phase.name: [phase.start, phase.end] for phase in times.phases},
    }


def spans(timeline: Timeline) -> Items:
    """Return the spans of a Timeline, with all periods of a run that repeats.

    Pins therefore do not depend on whether the simulation stores each period or repeated blocks. Raises OutputError for
    impractically many spans.
    """
    if timeline.spans_in_all > _MOST_SPANS:
        raise OutputError(f"expected a run of at most {_MOST_SPANS:,} spans to pin, got {timeline.spans_in_all:,}")
    names = [name for name in Span._fields if name != "cause"]

    def content(start: int, end: int) -> bytes:
        rows = timeline.spans_by_number(start, end)
        return b"".join(np.ascontiguousarray(getattr(rows, name)).astype("<i8").tobytes() for name in names)

    return Items(timeline.spans_in_all, lambda row: _span(timeline.spans_by_number(row, row + 1), 0), content)


def _span(timeline: Timeline, row: int) -> str:
    """Return a span in words, such as ``F0.3 on IPU 0: 120 to 340``."""
    kind, ipu, stage, micro_batch = (
        int(getattr(timeline, name)[row]) for name in ("kind", "ipu", "stage", "micro_batch")
    )
    if kind in timelines.PASSES and timelines.NONE not in (stage, micro_batch):
        words = str(pipelines.Op(pipelines.Pass(int(timelines.PASS_OF_KIND[kind])), stage, micro_batch))
    else:
        words = _KIND_NAMES[kind].lower().replace("_", " ") + (
            "" if micro_batch == timelines.NONE else f" {micro_batch}"
        )
    place = (
        "all IPUs" if ipu == timelines.ALL_IPUS else f"IPU {ipu}" if ipu >= 0 else f"track {int(timeline.link[row])}"
    )
    return f"{words} on {place}: {int(timeline.start[row])} to {int(timeline.end[row])}"


def _memory(run: Run) -> dict[str, Any] | None:
    """Return every IPU's peak with the bytes of its holders; None if memory is unknown."""
    if not run.describes_memory:
        return None
    return {
        str(peak.ipu): {"peak": peak.bytes, "during": peak.during}
        | {str(holder): size for holder, size in peak.holders if size}
        for peak in run.memory.peaks
    }


def _learning(run: Run) -> dict[str, Any] | None:
    """Return losses, accuracy and weights, as hashes and numbers; None for a timing-only run."""
    if run.learning is None:
        return None
    means = list(run.learning.mean_loss_by_step.values())
    losses = np.array([entry.loss for entry in run.learning.losses], dtype="<f8")
    return {
        "precision": run.job.request.options.precision,
        "losses": {
            "count": len(losses),
            "sha256": hash_of(losses.tobytes()),
            "mean_by_step": [_round(mean) for mean in means[:_STEPS]],
            "last": _round(means[-1]) if means else None,
        },
        "evaluations": [
            [steps, _round(evaluation.loss), None if evaluation.accuracy is None else _round(evaluation.accuracy)]
            for steps, evaluation in run.learning.evaluations[-_STEPS:]
        ],
        "weights": {name: _array(array) for name, array in run.learning.weights.items()},
    }


def _array(array: npt.NDArray[Any]) -> dict[str, Any]:
    values = np.asarray(array, dtype=np.float64)
    norm = float(np.sqrt(np.sum(values * values)))
    return {
        "shape": list(array.shape),
        "sha256": hash_of(np.ascontiguousarray(array).tobytes()),
        "norm": _round(norm),
        "mean": _round(float(values.mean()) if values.size else 0.0),
    }


def _round(value: float) -> float | str:
    """Return a number rounded to nine digits; non-finite numbers become text for JSON."""
    return float(f"{value:.9g}") if math.isfinite(value) else str(value)
