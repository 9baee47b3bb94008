"""Determine the ranks of measured processes: stated by files, inferred from names, or assumed."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from ipusim.app.profiles.parts import join_parts, refuse_different_names
from ipusim.app.profiles.spans import Fact, Facts, Recording, Span
from ipusim.app.profiles.steps import drop_warm_up, number_steps
from ipusim.base.errors import FileError
from ipusim.base.units import enumerated

#: Ways to know ranks, stages and counts: stated by files or the user, inferred from names, or assumed.
STATED, INFERRED, ASSUMED = "stated", "inferred", "assumed"
#: Rank in a file name; local ranks repeat on every node.
_RANK: Final = re.compile(r"(?i)(?<![a-z])(?<!local[_.-])rank[\s_.=-]*(\d{1,6})(?!\d)")
#: Smaller numbers in file names are ranks; larger numbers are times or process numbers.
_MOST_RANKS: Final = 1 << 16
_DIGITS: Final = re.compile(r"\d+")


@dataclass(frozen=True)
class Measurement:
    """Measurements in files of the same kind.

    Attributes:
        files: the files, for messages.
        tool: program that measured.
        spans: passes and updates, with ranks.
        facts: facts that files state about the whole run.
        stages: stage of a rank in its pipeline, if stated by files.
        sources: file name, ranks, and source of the ranks, by file.
        order: source of the order of ranks: stated, inferred or assumed.
        names: microseconds of spans outside passes, by name.
        notes: sentences for the user.
        stages_from: description of a line with the number of stages, for messages about missing lines;
            empty if ranks can be stages.
        coverage: smallest and largest share of a rank's time in passes and updates; None for events without times.
    """

    files: str
    tool: str
    spans: tuple[Span, ...]
    facts: Facts
    stages: Mapping[int, int] = field(default_factory=dict)
    sources: tuple[tuple[str, tuple[int, ...], str], ...] = ()
    order: str = STATED
    names: Counter[str] = field(default_factory=Counter)
    notes: tuple[str, ...] = ()
    stages_from: str = ""
    coverage: tuple[Fraction, Fraction] | None = None


def rank_spans(recordings: Sequence[Recording], parts: int | None = None) -> Measurement:
    """Return the measurements of files, with process ranks.

    ``parts`` is the number of spans per pass. Raises FileError for files of different runs, for ranks
    that contradict each other or are missing in some files, and for passes with different parts.
    """
    files = enumerated((recording.path for recording in recordings), 1)
    facts, notes, names = Facts(), list[str](), Counter[str]()
    extents: dict[int, Fraction] = defaultdict(Fraction)
    covered_us: dict[int, Fraction] = defaultdict(Fraction)
    stages: dict[int, int] = {}
    spans, sources, next_step = list[Span](), list[tuple[str, tuple[int, ...], str]](), Counter[int]()
    process_ranks, order = _process_ranks(recordings)
    for recording, (ranks, source) in zip(recordings, process_ranks, strict=True):
        facts.add({key: fact for key, fact in recording.facts.items() if key not in ("rank", "stage")})
        notes += recording.notes
        names += recording.names
        spans_by_rank: dict[int, list[Span]] = defaultdict(list)
        for span in recording.spans:
            if span.rank < 0:
                span.rank = ranks[span.process]
            spans_by_rank[span.rank].append(span)
            covered_us[span.rank] += span.us
        for process, rank in {span.process: span.rank for span in recording.spans}.items():
            extents[rank] += recording.extents.get(process.partition(" thread ")[0], 0)
        if "stage" in recording.facts:
            stages.update(dict.fromkeys(spans_by_rank, recording.facts["stage"].value))
        file_spans, remarks = list[Span](), list[str]()
        for rank, spans_of_rank in spans_by_rank.items():
            try:
                refuse_different_names(spans_of_rank)
                joined_spans = [*join_parts(spans_of_rank, parts, remarks)]
            except FileError as error:
                raise FileError(f"{recording.path}: {error}") from None
            next_step[rank] = number_steps(joined_spans, next_step[rank])
            file_spans += joined_spans
        notes += [note for note in dict.fromkeys(remarks) if note not in notes]
        spans += drop_warm_up(file_spans, notes, str(recording.path))
        sources.append((recording.path.name, tuple(sorted(spans_by_rank)), source))
    shares = [
        min(covered_us[rank] / extent, Fraction(1)) for rank, extent in extents.items() if extent and rank in covered_us
    ]
    return Measurement(
        files,
        recordings[0].tool,
        tuple(spans),
        facts,
        stages,
        tuple(sorted(sources, key=lambda row: row[1])),
        order,
        names,
        tuple(notes),
        next((recording.stages_from for recording in recordings if recording.stages_from), ""),
        (min(shares), max(shares)) if shares else None,
    )


def _process_ranks(recordings: Sequence[Recording]) -> tuple[list[tuple[dict[str, int], str]], str]:
    """Return ranks by process for every file, each with a source; also return the source of the order."""
    unranked_processes = [
        [*dict.fromkeys(span.process for span in recording.spans if span.rank < 0)] for recording in recordings
    ]
    stated_ranks = [
        _stated_ranks(recording, processes) for recording, processes in zip(recordings, unranked_processes, strict=True)
    ]
    facts = [fact for ranks in stated_ranks for fact in ranks.values()]
    unranked = [
        recording
        for recording, processes, ranks in zip(recordings, unranked_processes, stated_ranks, strict=True)
        if {*processes} - {*ranks}
    ]
    if facts and unranked:
        raise FileError(
            f"{unranked[0].path}: expected the rank of each process, because {facts[0].place} has a rank, got none: "
            "name files rank0, rank1 and so on, or import only files of one kind"
        )
    if not unranked:
        return [
            (
                {process: fact.value for process, fact in ranks.items()},
                enumerated(sorted({f"{STATED} by {_stating_part(fact)}" for fact in ranks.values()}))
                if ranks
                else STATED,
            )
            for ranks in stated_ranks
        ], STATED
    if len(unranked) > 1:
        if (process_count := max(map(len, unranked_processes))) > 1:
            raise FileError(
                f"{unranked[0].path}: expected one process in each of several files without ranks, got "
                f"{process_count}: import a file of each rank"
            )
        numbers, source = _ranks_from_names(unranked)
        by_path = {recording.path: number for recording, number in zip(unranked, numbers, strict=True)}
        return [
            (dict.fromkeys(processes, by_path.get(recording.path, 0)), source)
            for recording, processes in zip(recordings, unranked_processes, strict=True)
        ], source.partition(" ")[0].rstrip(":")
    (processes,) = filter(None, unranked_processes)
    order = unranked[0].order
    indices = {process: order.get(process.partition(" thread ")[0], -1) for process in processes}
    is_inferred = -1 not in indices.values() and len({*indices.values()}) > 1
    processes.sort(key=lambda process: (is_inferred and indices[process], _natural_key(process)))
    has_several = len(processes) > 1
    source = (
        f"{INFERRED} from process_sort_index"
        if is_inferred
        else f"{ASSUMED}: {'in order of numbers' if has_several else 'one'}"
    )
    ranks = {process: number for number, process in enumerate(processes)}
    return [(ranks, source)] * len(recordings), INFERRED if is_inferred else ASSUMED if has_several else STATED


def _stated_ranks(recording: Recording, processes: Sequence[str]) -> dict[str, Fact]:
    """Return the ranks stated by the file or its name."""
    ranks = {process: recording.ranks[process] for process in processes if process in recording.ranks}
    if len(processes) != 1:
        return ranks
    process = processes[0]
    match = _RANK.search(recording.path.name)
    rank_in_name = Fact(int(match[1]), f"{recording.path}: the name of the file") if match else None
    facts = [fact for fact in (recording.facts.get("rank"), ranks.get(process), rank_in_name) if fact is not None]
    for fact in facts[1:]:
        if fact.value != facts[0].value:
            raise FileError(f"{fact.place}: expected rank {facts[0].value}, as in {facts[0].place}, got {fact.value}")
    return {process: facts[0]} if facts else {}


def _stating_part(fact: Fact) -> str:
    """Return the part of a file that states a rank."""
    return fact.place.rpartition(": ")[2].partition(" of process")[0]


def _ranks_from_names(recordings: Sequence[Recording]) -> tuple[list[int], str]:
    """Return ranks from the numbers in file names, and their source."""
    names = [recording.path.name for recording in recordings]
    fields = [tuple(map(int, (digits[:18] for digits in _DIGITS.findall(name)))) for name in names]
    in_file_order = [*range(len(names))], f"{ASSUMED}: files in their order"
    if len({_DIGITS.sub("#", name) for name in names}) > 1:
        return in_file_order
    varying = [column for column in range(len(fields[0])) if len({row[column] for row in fields}) > 1]
    if not varying:
        return in_file_order
    numbers = [row[varying[0]] for row in fields]
    if len({*numbers}) < len(numbers):
        raise FileError(
            f"{recordings[0].path}: expected the rank in distributedInfo or in the name of each file, got names that "
            f"differ in {len(varying)} numbers: name files rank0, rank1 and so on"
        )
    if len(varying) > 1:
        return in_file_order
    in_order = sorted(numbers)
    source = f"{INFERRED} from the number in the name of each file"
    # Larger numbers are times or process numbers: only their order is meaningful.
    return (numbers if in_order[-1] < _MOST_RANKS else [in_order.index(number) for number in numbers]), source


def _natural_key(text: str) -> list[tuple[int, str]]:
    return [(len(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", text)]
