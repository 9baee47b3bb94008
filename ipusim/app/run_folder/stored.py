"""Read stored runs from run folders."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any, Final

from ipusim.api import Timeline, analysis, pipelines, runs
from ipusim.app.run_folder.memory_file import MEMORY_FILE, read_memory
from ipusim.base.errors import FileError
from ipusim.base.files import has_run_file, open_run_file, read_run_file
from ipusim.base.looks import key_of

#: Files of every run folder.
_REQUIRED_FILES: Final = ("summary.json", "timeline.npz")
#: Files of runs with known memory: over time, and as a picture; older folders have only the picture.
_MEMORY_FILES: Final = (MEMORY_FILE, "memory.png")
#: Perfetto trace of the whole run, compressed.
TRACE_FILE: Final = "trace.pftrace.gz"
#: Explanation of the run's time, written by another command.
EXPLANATION: Final = "explanation.json"
#: Maximum size of ``summary.json`` in bytes: enough for a loss per step of the longest run.
_MOST_BYTES: Final = 1 << 26
#: Bound on integers about a run.
_INTEGER_BOUND: Final = 2**63
#: Lone surrogates, which are never part of a text.
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
#: Expected memory in a summary, for messages.
_MEMORY_CONTENT: Final = "the memory of each IPU in the format of a run"
#: Displayed keys of ``summary.json``, with their types.
_SUMMARY_TYPES: Final = {"description": str, "notes": list, "memory": dict}
#: Displayed keys of ``memory`` in ``summary.json``, with their types.
_MEMORY_TYPES: Final = {"fits": str | bool, "verdict": str, "ipus": list}
#: Holders (uses of memory) whose bytes stages state.
_STAGE_HOLDERS: Final = (pipelines.Holder.PARAMETERS, pipelines.Holder.STATE, pipelines.Holder.FIFOS)


@dataclass(frozen=True, eq=False)
class StoredRun:
    """Files of a run, read back.

    Attributes:
        folder: the run folder.
        timeline: Timeline of the run.
        summary: content of ``summary.json``.
    """

    folder: Path
    timeline: Timeline
    summary: dict[str, Any]

    @cached_property
    def times(self) -> analysis.RunTimes:
        """Figures derived from the Timeline."""
        return analysis.run_times_of(self.timeline)

    @property
    def version_note(self) -> str:
        """Sentence on differences of an older ``summary.json``; empty for the current version."""
        version = self.summary.get("schema_version", 1)
        if version == analysis.SCHEMA_VERSION:
            return ""
        change = analysis.OLDER_VERSIONS[version]
        return f"An older version of ipusim wrote the folder: summary.json, of schema version {version}, {change}."

    @property
    def fits(self) -> analysis.Fits:
        """Whether the program fits the memory of its IPUs."""
        return analysis.Fits(self.summary["memory"]["fits"])

    @property
    def describes_memory(self) -> bool:
        """Whether the folder has memory files, which need stages with known bytes."""
        return any(has_run_file(self.folder / name) for name in _MEMORY_FILES)

    @property
    def curves(self) -> tuple[analysis.MemoryCurve, ...]:
        """Memory curve of every IPU; empty if not in the folder. Raises FileError for malformed curves."""
        return read_memory(self.folder, len(self.timeline.info.ipus))

    @property
    def fullest(self) -> analysis.FullestMemory | None:
        """Peak of the fullest IPU; None if memory is unknown. Raises FileError if the summary lacks the peak."""
        with self.malformed_as_file_error(_MEMORY_CONTENT):
            return analysis.fullest(self.summary["memory"])

    @property
    def fullest_ipus(self) -> list[int]:
        """IPUs with the same peak as the fullest; raises FileError like ``fullest``."""
        with self.malformed_as_file_error(_MEMORY_CONTENT):
            peak = self._fullest()["peak_bytes"]
            return sorted(int(ipu["ipu"]) for ipu in self.summary["memory"]["ipus"] if ipu["peak_bytes"] == peak)

    @property
    def peak_cycle(self) -> int:
        """Cycle of the fullest IPU's peak in the first execution; raises FileError like ``fullest``."""
        with self.malformed_as_file_error(_MEMORY_CONTENT):
            return int(self._fullest()["peak_cycle"])

    @property
    def waterfall(self) -> analysis.Waterfall | None:
        """Parts of the run's time; None if not in the folder. Raises FileError for malformed parts."""
        parts = self.summary.get("waterfall")
        with self.malformed_as_file_error("the parts of the time in the format of a run"):
            return None if parts is None else analysis.Waterfall.from_dict(parts)

    @property
    def recomputed_shares(self) -> dict[tuple[pipelines.Pass, int], Fraction]:
        """Recomputed share of a stage's backward pass, for stages with recomputation.

        Raises FileError for malformed cycles.
        """
        with self.malformed_as_file_error("the cycles of stages in the format of a run"):
            return {
                (pipelines.Pass.BACKWARD, stage): Fraction(cycles["recomputed_cycles"], cycles["backward_cycles"])
                for stage, cycles in enumerate(self.summary.get("stage_cycles") or ())
                if cycles.get("recomputed_cycles")
            }

    @property
    def help_sentences(self) -> tuple[str, ...] | None:
        """Sentences on the most helpful changes; None without an explanation of this run.

        Raises FileError for an explanation that is not JSON.
        """
        path = self.folder / EXPLANATION
        if not has_run_file(path):
            return None
        explanation = _read_json(path, "an explanation")
        is_of_this_run = isinstance(explanation, dict) and explanation.get("waterfall") == self.summary.get("waterfall")
        sentences = explanation.get("help") if is_of_this_run else None
        if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
            return None
        return tuple(sentences)

    @property
    def throughput_error(self) -> str:
        """Throughput error in words; empty if not in the folder."""
        error = self.summary.get("throughput_error")
        return error if isinstance(error, str) else ""

    def _fullest(self) -> dict[str, Any]:
        fullest: dict[str, Any] = max(self.summary["memory"]["ipus"], key=lambda ipu: ipu["peak_bytes"])
        return fullest

    @contextmanager
    def malformed_as_file_error(self, content: str = "the summary of a run in the format of ipusim") -> Iterator[None]:
        """Convert lookup and type errors of the block to FileError.

        ``content`` names the expected content of ``summary.json``.
        """
        try:
            yield
        except FileError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise FileError(f"{self.folder / 'summary.json'}: expected {content}, got {error!r}") from None


def read_run(folder: Path) -> StoredRun:
    """Return the run stored in ``folder``.

    Raises FileError for a path without a run and for a malformed summary, TimelineError for a damaged Timeline, and
    OSError for unreadable files.
    """
    if not folder.is_dir():
        raise FileError(f"{folder}: expected a run folder, got {'a file' if folder.exists() else 'no such folder'}")
    if absent_files := [name for name in _REQUIRED_FILES if not has_run_file(folder / name)]:
        raise FileError(
            f"{folder}: expected a run folder, with {' and '.join(_REQUIRED_FILES)}, got none with "
            f"{' or '.join(absent_files)}"
        )
    with open_run_file(folder / "timeline.npz") as file:
        timeline = Timeline.load(file)
    return StoredRun(folder, timeline, _summary(folder / "summary.json"))


def _summary(path: Path) -> dict[str, Any]:
    summary: Any = _read_json(path, "the summary of a run")
    memory = summary.get("memory") if isinstance(summary, dict) else None
    for keys, part in ((_SUMMARY_TYPES, summary), (_MEMORY_TYPES, memory)):
        if not isinstance(part, dict) or not all(isinstance(part.get(key), kind) for key, kind in keys.items()):
            raise FileError(f"{path}: expected the summary of a run, got JSON without a valid {', '.join(keys)}")
    version = summary.get("schema_version", 1)
    if type(version) is not int or version not in (*analysis.OLDER_VERSIONS, analysis.SCHEMA_VERSION):
        expected = f"expected a schema_version from 1 to {analysis.SCHEMA_VERSION}"
        raise FileError(f"{path}: {expected}, got {runs.show(version)}: a later version of ipusim may have written it")
    if version < analysis.SCHEMA_VERSION:
        summary = _upgraded(summary)
    if (answer := summary["memory"]["fits"]) not in tuple(analysis.Fits):
        answers = runs.one_of(analysis.Fits)
        raise FileError(f"{path}: expected the summary of a run, got memory.fits {runs.show(answer)}, not {answers}")
    return dict(summary)


def _upgraded(summary: dict[str, Any]) -> dict[str, Any]:
    """Convert an older version's summary to current holder keys and fit answers.

    Parts of the time and the time on one IPU had other meanings, and are left out.
    """
    ipus = [
        {**ipu, "holders": {key_of(str(name)): size for name, size in ipu["holders"].items()}}
        if isinstance(ipu, dict) and isinstance(ipu.get("holders"), dict)
        else ipu
        for ipu in summary["memory"]["ipus"]
    ]
    memory = {**summary["memory"], "ipus": ipus}
    unknown = {
        "single_ipu_cycles": None,
        "speed_up": None,
        "single_ipu_refusal": "an older version wrote the run folder",
    }
    verdict = {"verdict": {**summary["verdict"], **unknown}} if isinstance(summary.get("verdict"), dict) else {}
    return {**summary, **verdict, "waterfall": None, "memory": {**memory, **_fit_answer(memory)}}


def _fit_answer(memory: Mapping[str, Any]) -> dict[str, str]:
    """Return fit answer and verdict for an older summary, whose fit is true or false.

    True meant that the program was not refused; the bytes of IPUs decide which current answer applies.
    """
    verdict = str(memory["verdict"])
    if memory["fits"] is False:
        return {"fits": analysis.Fits.NO, "verdict": f"Memory: {analysis.Fits.NO}: {verdict}"}
    with suppress(LookupError, TypeError, AttributeError):  # malformed summaries
        bytes_of_stages = [ipu["holders"].get(holder.key) for ipu in memory["ipus"] for holder in _STAGE_HOLDERS]
        if not any(bytes_of_stages) and not any(stage["kept_bytes"] for stage in memory["stages"]):
            memory_words = f"Memory: {analysis.Fits.UNKNOWN}: the scenario states no memory of its stages."
            return {"fits": analysis.Fits.UNKNOWN, "verdict": memory_words}
        limit = memory["sram_bytes"]
        if limit is not None and any(ipu["peak_bytes"] > limit for ipu in memory["ipus"]):
            words = verdict.replace("every IPU fits without code; with", f"{analysis.Fits.WITHOUT_CODE}: with")
            return {"fits": analysis.Fits.WITHOUT_CODE, "verdict": words}
    return {"fits": analysis.Fits.YES, "verdict": verdict}


def _read_json(path: Path, noun: str) -> Any:
    """Return the JSON of a run folder's file; raises FileError for other text and impossible values."""
    content = read_run_file(path, _MOST_BYTES)
    try:
        data = json.loads(content)
        problem = next(_impossible_values(data), "")
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: expected {noun}, got a file without valid JSON: {error}") from None
    if problem:
        raise FileError(f"{path}: expected {noun}, got JSON with {problem}")
    return data


def _impossible_values(value: Any, key: str = "") -> Iterator[str]:
    """Yield impossible numbers and texts with their keys; later code relies on this check."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _impossible_values(name, "a key")
            yield from _impossible_values(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _impossible_values(item, key)
    elif isinstance(value, str) and _SURROGATE.search(value):
        yield f"invalid Unicode text at {runs.show(key)}"
    elif (isinstance(value, int) and abs(value) >= _INTEGER_BOUND) or (
        isinstance(value, float) and not isfinite(value)
    ):
        yield f"too large a number at {runs.show(key)}: {runs.show(value)}"
