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
_MORE: Final[Mapping[type, Mapping[str, str]]] = {
    Summary: {
        "name": "of the scenario",
        "system": "that it runs on",
        "schedule": "of the pipeline",
        "sync": "mode: lock_step or point_to_point",
        "selection_order": "of the IPUs, as it was used",
        "clock_hz": "tile clock",
        "training": "whether it trains",
        "executions": "of the pipeline in the run",
        "stages": "names of the stages",
        "mapping": "logical IPU of each stage of the first replica",
        "ipus": "physical IPU of each logical one",
        "replicas": "of the pipeline",
        "count": "micro-batches of an execution: the gradient accumulation count",
        "micro_batch_size": "samples of a micro-batch",
        "overlap": "slots of a full time-step",
        "fastest_execution_cycles": "the fastest of all executions, with its weight update",
        "slowest_execution_cycles": "the slowest of all executions, with its weight update",
        "schema_version": "version of these keys",
        "utilisation": figure("utilisation").meaning,
        "idle_ipus": "logical IPUs that hold no stage",
        "waterfall.run_cycles": "of the run; all parts add up to it",
        "waterfall.executions": "of the pipeline in the run",
        **{f"waterfall.cycles.{part.key}": part.meaning for part in TimePart},
        "waterfall.cycles.fill_and_drain": "idle with balanced stages in ramp-up and ramp-down: all but gaps in main",
        "waterfall.cycles.gaps_in_main": "idle with balanced stages within the main phases, of the IPU with the least",
        **{f"waterfall.shares.{part.key}": f"{part.words} as a part of the run" for part in TimePart},
        "disturbances.slowdown": "the run's time by that of the same run without disturbances; no key without any",
        "disturbances.cycles_without": "of the run without them",
        "disturbances.waits[].ipu": "logical IPU that waits longer for another than in that run; beside disturbed "
        "cables for a disturbed IPU alone",
        "disturbances.waits[].for_ipu": "which one",
        "disturbances.waits[].cycles": "by how much longer",
        "disturbances.idle_cycles.NAME": "that all IPUs together are idle more than in that run, by cause",
        "disturbances.slow_ipus[]": "logical IPUs that disturbances make slower",
        "disturbances.cables[].link[]": "the two logical IPUs of a cable that is slower, late or dead",
        "disturbances.cables[].dead": "whether it is dead",
        "disturbances.cables[].used": "whether copies go over it without disturbances",
        "disturbances.cables[].detour[]": "logical IPUs on the detour round a dead cable, in the order of travel",
        "disturbances.cable_cycles": "that all IPUs together wait longer for copies over these cables or round them",
        "disturbances.passes": "whether disturbances end within the run, whose states behind that were looked at",
        "disturbances.recovery_micro_batches": "that the first stage begins behind their end until the state of the "
        "machine is that of the run without them; `null` where it never is",
        "find_verdict": "",
        "find_faster_order": "",
        "find_waterfall": "",
        "find_disturbances": "",
    },
    RunTimes: {},
    Phase: {
        "name": "ramp-up, main, ramp-down or weight update",
        "start": "its first cycle",
        "end": "where the next begins",
        "cycles": "length of the phase",
        "seconds": "the same in seconds",
    },
    Throughput: {"run_s": "the same as run_cycles in seconds"},
    IpuUse: {
        "ipu": "logical IPU",
        "physical_ipu": "its physical number",
        "stages": "the stages that it holds; none of an idle IPU",
        "cycles": "",
        **{f"{use.name}_cycles": use.name.replace("_", " ") for use in USES},
        "compute_cycles": "all of its own arithmetic, of passes and weight updates",
        "utilisation": "compute_cycles as a part of the time",
    },
    CopyRoute: {
        "source": "",
        "target": "",
        "backward": "",
        "source_stage": "stage that sends",
        "target_stage": "stage that receives",
        "pass": "forward or backward",
        "links": "on the way",
    },
    SumOfGradients: {
        "algorithm": "of the collective",
        "bytes": "of one replica",
        "rounds": "of the collective",
        "cycles": "that it takes",
    },
    StageCycles: {
        "name": "of the stage",
        "forward_cycles": "its forward pass",
        "backward_cycles": "its backward pass; 0 where nothing is trained",
    },
    EvaluationSummary: {
        "steps": "behind which it was made",
        "loss": "on held-out data; null where it is no finite number",
        "accuracy": "on held-out data; null where none is measured",
        "samples": "held out",
    },
    StageMemorySummary: {
        "name": "of the stage",
        "fifo_depth": "slots of its FIFO",
        "kept_bytes": "of one micro-batch in it",
        "fifo_bytes": "of all slots",
        "most_micro_batches_kept": "that really lie in it at once",
    },
}
_MEMORY: Final = {
    "peak_bytes": "the most that it holds in the first execution",
    "peak_cycle": "from which on it holds that",
    "peak_pass": "in which it does",
    "sram_bytes": "of one IPU; null where that is not limited",
    "fits": "whether the memory of every IPU suffices: `fits`, `fits only without the "
    "estimated code`, `does not fit`, or `not known`, where the memory of stages is not known",
    "verdict": "in a sentence",
    **{f"holders.{holder.key}": f"{holder}, at the peak" for holder in Holder},
}


def figures_page() -> str:
    """Return the page on all keys of ``summary.json``."""
    older = "".join(f"- version {version}: it {what}.\n" for version, what in OLDER_VERSIONS.items())
    rows = "".join(f"| `{key}` | {unit or '-'} | {meaning} |\n" for key, unit, meaning in figure_rows())
    names = {each.path.replace(".{}", "[]"): each.name for each in FIGURES}
    short = "".join(f"| `{name}` | `{path}` |\n" for path, name in names.items())
    return (
        "# Every figure of summary.json\n\n"
        "What `ipusim run` writes, key by key; `[]` is an item of a list. What a run does not have is `null`: what it "
        "learnt where only time was simulated, time-steps in point-to-point, memory that is not limited. Seconds are "
        "cycles of the tile clock / `clock_hz`. [`expect`](scenario.md#figures) takes these paths too, with the number "
        "of an item in place of `[]`.\n\n"
        f"The schema version is {SCHEMA_VERSION}: it grows when a key goes, or means something else. Folders of older "
        f"versions are read too:\n\n{older}\n"
        f"| key | unit | meaning |\n| --- | --- | --- |\n{rows}\n"
        f"## Names\n\nSome have a name of their own.\n\n| name | key |\n| --- | --- |\n{short}"
    )


def figure_rows() -> Iterator[tuple[str, str, str]]:
    """Yield key, unit and meaning of all values of ``summary.json``.

    A list has one line.
    """
    yield from _rows(Summary, "")


def _rows(kind: type, above: str) -> Iterator[tuple[str, str, str]]:
    said, more = _meanings(kind), _MORE.get(kind, {})
    hints = get_type_hints(kind)
    for key in (each.name for each in fields(kind)):
        if more.get(key) == "":
            continue
        inner, several = _item(hints[key])
        path = f"{above}{key}{'[]' * several}"
        if is_dataclass(inner):
            yield from _rows(inner, f"{path}.")
        elif key == "holders":
            yield from ((f"{above}{name}", "bytes", text) for name, text in _MEMORY.items() if name.startswith(key))
        else:
            named = path + (".NAME" if get_origin(inner) is not None and not several else "")
            meaning = more.get(key) or _MEMORY.get(key) or said[key]
            yield named, _unit(key), meaning
            if issubclass(kind, RunTimes) and key.endswith("_cycles") and not is_dataclass(inner):
                yield path.removesuffix("_cycles") + "_s", "s", "the same in seconds"
    names = {each.name for each in fields(kind)}
    if kind is Summary:
        yield from _rows(Verdict, f"{above}verdict.")
    yield from ((f"{above}{key}", _unit(key), text) for key, text in more.items() if text and key not in names)


def _item(hint: Any) -> tuple[Any, bool]:
    """Return the type of a value, or of a list's items; True for lists."""
    if get_origin(hint) in (Union, UnionType):
        hint = next(each for each in get_args(hint) if each is not type(None))
    if get_origin(hint) in (tuple, list):
        return _item(get_args(hint)[0])[0], True
    return hint, False


def _unit(key: str) -> str:
    if key in _IN_CYCLES or ".cycles." in key:
        return "cycles"
    return next((unit for end, unit in _UNITS.items() if key.removesuffix(".NAME").endswith(end)), "")


def _meanings(kind: type) -> dict[str, str]:
    """Return the meanings of attributes from the docstrings of a class and its bases."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        text = (inspect.getdoc(each) or "").partition("Attributes:\n")[2]
        for names, meaning in re.findall(r"^    (\w[\w, ]*): (.*(?:\n {8}.*)*)", text, re.MULTILINE):
            plain = re.sub(r"\s+", " ", meaning).replace("``", "`").replace("None", "`null`").removesuffix(".")
            found |= dict.fromkeys(names.split(", "), plain.replace("|", "\\|"))
    return found
