"""Page on all figures of ``summary.json``: key, unit and meaning, taken from the writing classes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from ipusim.analysis.figures import FIGURES, OLDER_VERSIONS, SCHEMA_VERSION, figure
from ipusim.analysis.memory_summary import StageMemorySummary
from ipusim.analysis.orders import CopyRoute
from ipusim.analysis.phases import Phase
from ipusim.analysis.run_times import RunTimes
from ipusim.analysis.summary import EvaluationSummary, StageCycles, Summary, SumOfGradients
from ipusim.analysis.throughput import Throughput
from ipusim.analysis.utilisation import IpuUse
from ipusim.analysis.verdict import Verdict
from ipusim.pipeline.holders import Holder
from ipusim.timeline.kinds import USES
from ipusim.timeline.time_parts import TimePart

#: Units by key suffix.
_UNITS: Final = {
    "samples_per_s": "samples/s",
    "_per_s": "1/s",
    "_s": "s",
    "seconds": "s",
    "bytes": "bytes",
    "clock_hz": "Hz",
    "cycles": "cycles",
}
#: Keys in cycles, without suffix.
_IN_CYCLES: Final = ("start", "end", "peak_cycle", "disturbances.cycles_without")
#: Meanings missing in the classes' docstrings, by class; "" leaves out a key that is written differently.
_ADDED_MEANINGS: Final[Mapping[type, Mapping[str, str]]] = {
    Summary: {
        "name": "name of the scenario",
        "system": "name of the system",
        "schedule": "schedule of the pipeline",
        "sync": "sync mode: lock_step or point_to_point",
        "selection_order": "selection order of the IPUs in this run",
        "clock_hz": "tile clock",
        "training": "whether the run trains",
        "executions": "executions of the pipeline in the run",
        "stages": "names of the stages",
        "mapping": "logical IPU of each stage of the first replica",
        "ipus": "physical IPU of each logical IPU",
        "replicas": "replicas of the pipeline",
        "count": "micro-batches of an execution: the gradient accumulation count",
        "micro_batch_size": "samples of a micro-batch",
        "overlap": "slots of a full time-step",
        "fastest_execution_cycles": "the fastest of all executions, with its weight update",
        "slowest_execution_cycles": "the slowest of all executions, with its weight update",
        "schema_version": "version of these keys",
        "utilisation": figure("utilisation").meaning,
        "idle_ipus": "logical IPUs that hold no stage",
        "waterfall.run_cycles": "cycles of the run, the sum of all parts",
        "waterfall.executions": "executions of the pipeline in the run",
        **{f"waterfall.cycles.{part.key}": part.meaning for part in TimePart},
        "waterfall.cycles.fill_and_drain": "idle with balanced stages in ramp-up and ramp-down: all but gaps in main",
        "waterfall.cycles.gaps_in_main": "idle with balanced stages within the main phases, of the IPU with the least",
        **{f"waterfall.shares.{part.key}": f"{part.words} as a part of the run" for part in TimePart},
        "disturbances.slowdown": "run time divided by the run time without disturbances; no key without disturbances",
        "disturbances.cycles_without": "cycles of the run without disturbances",
        "disturbances.waits[].ipu": "logical IPU that waits longer for another IPU than without disturbances; "
        "only waits for disturbed IPUs, if cables are disturbed too",
        "disturbances.waits[].for_ipu": "logical IPU that is waited for",
        "disturbances.waits[].cycles": "additional cycles of waiting",
        "disturbances.idle_cycles.NAME": "additional idle cycles of all IPUs together, by cause",
        "disturbances.slow_ipus[]": "logical IPUs that disturbances make slower",
        "disturbances.cables[].link[]": "the two logical IPUs of a slower, late or dead cable",
        "disturbances.cables[].dead": "whether the cable is dead",
        "disturbances.cables[].used": "whether copies go over it without disturbances",
        "disturbances.cables[].detour[]": "logical IPUs on the detour round a dead cable, in the order of travel",
        "disturbances.cable_cycles": "additional waits of all IPUs together for copies over or round these cables",
        "disturbances.passes": "whether disturbances end within the run, so that a recovery was looked for",
        "disturbances.recovery_micro_batches": "micro-batches of the first stage from the end of the disturbances "
        "until the machine has the state of the run without disturbances; `null` for never",
        "find_verdict": "",
        "find_faster_order": "",
        "find_waterfall": "",
        "find_disturbances": "",
    },
    RunTimes: {},
    Phase: {
        "name": "ramp-up, main, ramp-down or weight update",
        "start": "first cycle of the phase",
        "end": "first cycle of the next phase",
        "cycles": "length of the phase",
        "seconds": "the same in seconds",
    },
    Throughput: {"run_s": "the same as run_cycles in seconds"},
    IpuUse: {
        "ipu": "logical IPU",
        "physical_ipu": "physical number of the IPU",
        "stages": "stages of the IPU; none for an idle IPU",
        "cycles": "",
        **{f"{use.name}_cycles": use.name.replace("_", " ") for use in USES},
        "compute_cycles": "arithmetic of the IPU, in passes and weight updates",
        "utilisation": "compute_cycles as a share of the time",
    },
    CopyRoute: {
        "source": "",
        "target": "",
        "backward": "",
        "source_stage": "stage that sends",
        "target_stage": "stage that receives",
        "pass": "forward or backward",
        "links": "number of links on the route",
    },
    SumOfGradients: {
        "algorithm": "algorithm of the collective",
        "bytes": "bytes of one replica",
        "rounds": "rounds of the collective",
        "cycles": "cycles of the collective",
    },
    StageCycles: {
        "name": "name of the stage",
        "forward_cycles": "cycles of the forward pass",
        "backward_cycles": "cycles of the backward pass; 0 without training",
    },
    EvaluationSummary: {
        "steps": "steps before this evaluation",
        "loss": "loss on held-out data; null for a value that is not finite",
        "accuracy": "accuracy on held-out data; null without one",
        "samples": "number of held-out samples",
    },
    StageMemorySummary: {
        "name": "name of the stage",
        "fifo_depth": "slots of the stage's FIFO buffer",
        "kept_bytes": "bytes of one micro-batch in the FIFO buffer",
        "fifo_bytes": "bytes of all slots",
        "most_micro_batches_kept": "maximum number of micro-batches kept, in the FIFO buffer and in work",
    },
}
#: Meanings of keys on memory.
_MEMORY: Final = {
    "peak_bytes": "maximum bytes in the first execution",
    "peak_cycle": "first cycle with the maximum",
    "peak_pass": "pass at the maximum",
    "sram_bytes": "memory of one IPU; null for unlimited memory",
    "fits": "whether the memory of every IPU suffices: `fits`, `fits only without the "
    "estimated code`, `does not fit`, or `not known`, if the memory of stages is unknown",
    "verdict": "verdict in a sentence",
    **{f"holders.{holder.key}": f"{holder.label}, at the peak" for holder in Holder},
}


_HEAD: Final = """\
# Every figure of summary.json

Look up here the meaning and unit of every key that `ipusim run` writes into `summary.json`. `python -m reports` makes
the page from the classes that write the file.

In a key, `[]` means an item of a list, and `NAME` a name from the run. `null` stands for a figure without a value in
this run: losses in a timing-only run, time-steps in point-to-point, unlimited memory. Seconds are cycles of the tile
clock divided by `clock_hz`. [`expect`](scenario.md#figures) accepts these paths too, with the item's number in place of
`[]`.
"""


def figures_page() -> str:
    """Return the page on all keys of ``summary.json``."""
    older = "".join(f"- version {version} {what}.\n" for version, what in OLDER_VERSIONS.items())
    rows = "".join(f"| `{key}` | {unit or '-'} | {meaning} |\n" for key, unit, meaning in figure_rows())
    names = {entry.path.replace(".{}", "[]"): entry.name for entry in FIGURES}
    short = "".join(f"| `{name}` | `{path}` |\n" for path, name in names.items())
    return (
        f"{_HEAD}\nThe schema version is {SCHEMA_VERSION}; a removed key, or a key with a new meaning, increases the "
        f"version. Folders of older versions remain readable:\n\n{older}\n"
        f"| key | unit | meaning |\n| --- | --- | --- |\n{rows}\n"
        f"## Names\n\n`expect` also accepts these short names.\n\n| name | key |\n| --- | --- |\n{short}"
    )


def figure_rows() -> Iterator[tuple[str, str, str]]:
    """Yield key, unit and meaning of all values of ``summary.json``.

    A list has one line.
    """
    yield from _rows(Summary, "")


def _rows(kind: type, above: str) -> Iterator[tuple[str, str, str]]:
    documented, added = _meanings(kind), _ADDED_MEANINGS.get(kind, {})
    hints = get_type_hints(kind)
    for key in (entry.name for entry in fields(kind)):
        if added.get(key) == "":
            continue
        inner, several = _item(hints[key])
        path = f"{above}{key}{'[]' * several}"
        if is_dataclass(inner):
            yield from _rows(inner, f"{path}.")
        elif key == "holders":
            yield from ((f"{above}{name}", "bytes", text) for name, text in _MEMORY.items() if name.startswith(key))
        else:
            key_path = path + (".NAME" if get_origin(inner) is not None and not several else "")
            meaning = added.get(key) or _MEMORY.get(key) or documented[key]
            yield key_path, _unit(key), meaning
            if issubclass(kind, RunTimes) and key.endswith("_cycles") and not is_dataclass(inner):
                yield path.removesuffix("_cycles") + "_s", "s", "the same in seconds"
    names = {entry.name for entry in fields(kind)}
    if kind is Summary:
        yield from _rows(Verdict, f"{above}verdict.")
    yield from ((f"{above}{key}", _unit(key), text) for key, text in added.items() if text and key not in names)


def _item(hint: Any) -> tuple[Any, bool]:
    """Return the type of a value, or of a list's items; True for lists."""
    if get_origin(hint) in (Union, UnionType):
        hint = next(entry for entry in get_args(hint) if entry is not type(None))
    if get_origin(hint) in (tuple, list):
        return _item(get_args(hint)[0])[0], True
    return hint, False


def _unit(key: str) -> str:
    if key in _IN_CYCLES or ".cycles." in key:
        return "cycles"
    return next((unit for end, unit in _UNITS.items() if key.removesuffix(".NAME").endswith(end)), "")


def _meanings(kind: type) -> dict[str, str]:
    """Return the meanings of attributes from the docstrings of a class and its bases."""
    result: dict[str, str] = {}
    for entry in reversed(kind.__mro__):
        text = (inspect.getdoc(entry) or "").partition("Attributes:\n")[2]
        for names, meaning in re.findall(r"^    (\w[\w, ]*): (.*(?:\n {8}.*)*)", text, re.MULTILINE):
            plain = re.sub(r"\s+", " ", meaning).replace("``", "`").replace("None", "`null`").removesuffix(".")
            result |= dict.fromkeys(names.split(", "), plain.replace("|", "\\|"))
    return result
