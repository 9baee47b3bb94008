"""Measured stages from CSV: rows of stages, whose cells are read as the keys of a scenario's stages are.

Several rows of a stage are several measurements of it, of which the medians count. A column ``scenario`` before those
of a profile puts the stages of several scenarios into one file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from ipusim.base.csv_table import Columns, CsvLine, CsvRow, CsvTable, decimal_comma, read_lines, read_table, refuse
from ipusim.base.errors import FileError
from ipusim.base.near_names import did_you_mean
from ipusim.base.units import UNITS
from ipusim.runs.request.fields import CLOCK_HZ
from ipusim.runs.request.medians import median
from ipusim.runs.request.messages import JsonNode, problems_of
from ipusim.runs.request.model_spec import StageCyclesSpec, TimedStageSpec
from ipusim.runs.request.pipeline_spec import MAX_STAGES

_SCENARIO, _STAGE, _SOURCE = "scenario", "stage", "source"
_CYCLES: Final = tuple(StageCyclesSpec.model_fields)
_BYTES: Final = tuple(name for name in TimedStageSpec.model_fields if name.endswith("_bytes"))
#: Columns of numbers by what is made of a row: beside a model, which says its bytes, those of bytes are left alone.
_NUMBERS: Final[Mapping[type[StageCyclesSpec], tuple[str, ...]]] = {
    StageCyclesSpec: _CYCLES,
    TimedStageSpec: (*_CYCLES, *_BYTES),
}
_NEEDED: Final = (_STAGE, *(name for name, key in StageCyclesSpec.model_fields.items() if key.is_required()))
#: What a column may be called as well.
_ALSO: Final = {"weight_update": "update", "bytes": "output_bytes"}
#: Stages that a message lists.
_LISTED: Final = 5
_MOST_BYTES: Final = 2**22
#: Times and cycles, the latter of the tile clock.
_TIMES: Final = (*UNITS["cycles"][0], *UNITS["seconds"][0])
_SIZES: Final = tuple(UNITS["bytes"][0])
#: A title: a name, and the unit of what stands below it if it says one, as in ``forward [us]`` or ``forward_us``.
_TITLE: Final = re.compile(rf"([^\[(]*?)(?:\s*[\[(]([^\[\]()]*)[\])]|[\s_-]+({'|'.join((*_TIMES, *_SIZES))}))?")


@dataclass(frozen=True)
class MeasuredStage:
    """The measurements of one stage.

    Attributes:
        place: where it stands first, as ``file:line``.
        name: what the file calls the stage; empty where it counts stages.
        cycles: what its passes and its weight update took, of several rows the medians; what was not measured is not
            set. Of a stage without a model it has bytes too.
        source: who measured it; empty where the file does not say.
        rows: of the file that are the stage's.
    """

    place: str
    name: str
    cycles: StageCyclesSpec
    source: str = ""
    rows: int = 1


def read_profile(path: Path, clock_hz: int, called: str = "") -> tuple[MeasuredStage, ...]:
    """Return the stages of a CSV file in their order, by the columns stage, forward, backward, update and the halves.

    Columns stand in any order; ``update`` may be called ``weight update``, and ``source`` is kept. A number is cycles,
    and a cell may be a time such as ``1.2 ms``, which ``clock_hz`` makes cycles of; a title can say the unit of all
    numbers below it, as ``forward [us]``. Columns of bytes are left alone. ``called`` is the file's name in messages.

    Raises FileError that names every line and column that is wrong; OSError for a file that cannot be read.
    """
    called = called or str(path)
    table = _table(path, (), called)
    stages, problems = _stages(table.rows, table.titles, clock_hz)
    refuse(_wrong_length(table.rows, called) or problems)
    return stages


def read_stages(path: Path, clock_hz: int, called: str = "") -> tuple[TimedStageSpec, ...]:
    """Return the stages of a CSV file as stages known by their cost alone, in their order.

    Beside the columns of :func:`read_profile` there may be those of bytes: ``output_bytes``, which may be called
    ``bytes``, and the others of such stages. Where nothing says the bytes of a stage's gradient, they are those that
    came to it. A stage that the file counts is called ``stage0`` and so on.

    Raises as :func:`read_profile` does.
    """
    called = called or str(path)
    table = _table(path, (), called)
    found, problems = _stages(table.rows, table.titles, clock_hz, TimedStageSpec)
    refuse(_wrong_length(table.rows, called) or problems)
    stages, before = list[TimedStageSpec](), 0
    for row in found:
        stage = row.cycles
        assert isinstance(stage, TimedStageSpec)
        if before and stage.whole_backward and "gradient_bytes" not in stage.model_fields_set:
            stage = stage.model_copy(update={"gradient_bytes": before})
        stages.append(stage)
        before = stage.output_bytes - stage.label_bytes
    return tuple(stages)


def read_profiles(path: Path, clock_hz: Callable[[str], int]) -> dict[str, tuple[MeasuredStage, ...]]:
    """Return the stages of several scenarios, by what a column ``scenario`` calls each; the others are a profile's.

    ``clock_hz`` gives the clock of a scenario. Raises what it does, and what :func:`read_profile` does.
    """
    table = _table(path, (_SCENARIO,), str(path))
    refuse(
        [
            f"{row.place}: column {_SCENARIO}: expected the path of a scenario, got nothing"
            for row in table.rows
            if not row.cells[_SCENARIO]
        ]
    )
    if not table.rows:
        refuse(_wrong_length(table.rows, str(path)))
    found, problems = {}, list[str]()
    for name in dict.fromkeys(row.cells[_SCENARIO] for row in table.rows):
        rows = [row for row in table.rows if row.cells[_SCENARIO] == name]
        found[name], wrong = _stages(rows, table.titles, clock_hz(name))
        refuse(_wrong_length(rows, f"{path}: {name}"))
        problems += wrong
    refuse(problems)
    return found


def has_stages(path: Path) -> bool:
    """Whether a CSV file has a column of stages, as a profile has; raises OSError and FileError."""
    try:
        titles = next(read_lines(path, _MOST_BYTES), CsvLine(1, ())).cells
    except FileError as error:
        raise FileError(f"{path}: {error}") from None
    return _STAGE in map(_key, titles)


def misplaced(rows: Sequence[MeasuredStage], names: Sequence[str]) -> list[str]:
    """Return the errors of rows whose names belong to other stages than their position says."""
    return [
        f"{row.place}: column {_STAGE}: expected {name!r} in this place, got {row.name!r}: list stages in their order"
        for row, name in zip(rows, names, strict=False)
        if row.name != name and row.name in names
    ]


def wrong_number(rows: Sequence[MeasuredStage], stages: Mapping[str, Sequence[str]], called: str) -> tuple[str, ...]:
    """Return what is wrong with the number of rows: which stage has no row, or which row is of no stage.

    A row that has the name of a stage, or of a layer in it, is that stage's; where not all have, rows are in order.

    Args:
        rows: those of the file, in its order.
        stages: the layers of each stage of the pipeline, by its name.
        called: the file's name in messages.
    """
    if len(rows) == len(stages):
        return ()
    names = [{name, *layers} for name, layers in stages.items()]
    of = [next((stage for stage, own in enumerate(names) if row.name in own), None) for row in rows]
    if len(rows) > len(stages):
        other = of.index(None) if None in of and any(stage is not None for stage in of) else len(stages)
        got = f"{rows[other].place} is of no stage"
    else:
        known = len({*of} - {None}) == len(rows)
        missing = [number for number in range(len(stages)) if (number not in of if known else number >= len(rows))]
        listed = [
            f"stage {number} ({', '.join([*stages.values()][number] or [[*stages][number]])})" for number in missing
        ]
        more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
        got = f"none for {', '.join(listed[:_LISTED])}{more}"
    return (f"{called}: expected a row for each of the {len(stages)} stages, got {len(rows)}: {got}",)


def _table(path: Path, further: Sequence[str], called: str) -> CsvTable:
    """Return the rows of a file with the columns of measured stages, and ``further`` ones that it needs."""
    columns = Columns((*further, _STAGE, *_CYCLES, *_BYTES, _SOURCE), (*further, *_NEEDED), others=False, key=_key)
    table = read_table(path, columns, _MOST_BYTES, called)
    refuse([f"{called}:1: {problem}" for problem in _wrong_units(table.titles)])
    return table


def _wrong_length(rows: Sequence[CsvRow], called: str) -> list[str]:
    """Return what is wrong with rows of as many stages as no pipeline has."""
    stages = len({row.cells[_STAGE] for row in rows})
    if 0 < stages <= MAX_STAGES:
        return []
    return [f"{called}: expected from 1 to {MAX_STAGES} stages below the titles, got {stages}"]


def _stages(
    rows: Sequence[CsvRow], titles: Mapping[str, str], clock_hz: int, kind: type[StageCyclesSpec] = StageCyclesSpec
) -> tuple[tuple[MeasuredStage, ...], list[str]]:
    """Return the stages of a pipeline whose rows can be read, as specs of a ``kind``, and what is wrong with others."""
    problems = list[str]()
    read: dict[str, list[tuple[CsvRow, StageCyclesSpec]]] = {}
    names = {row.cells[_STAGE] for row in rows}
    for row in rows:
        name = row.cells[_STAGE]
        number = [*read].index(name) if name in read else len(read)
        found, wrong = _spec(row, titles, clock_hz, kind, number)
        wrong = [*_wrong_stage(name, number, names), *wrong]
        problems += [f"{row.place}: {problem}" for problem in wrong]
        measured = read.setdefault(name, []) if name else []
        if found is not None:
            measured.append((row, found))
    stages = []
    for name, measured in read.items():
        if measured:
            first = measured[0][0]
            sources = dict.fromkeys(row.cells.get(_SOURCE, "") for row, _ in measured)
            found = median([spec for _, spec in measured], clock_hz)
            called = "" if name.isdecimal() else name
            stages.append(MeasuredStage(first.place, called, found, ", ".join(filter(None, sources)), len(measured)))
    return tuple(stages), problems


def _key(title: str) -> str:
    """Return what a title and the name of its column have in common."""
    name = _TITLE.fullmatch(title)
    words = re.sub(r"[\s_-]+", "_", (name[1] if name else title).lower())
    return _ALSO.get(words, words)


def _unit(title: str) -> str:
    """Return the unit that a title says; nothing where it says none."""
    found = _TITLE.fullmatch(title)
    return (found[2] or found[3] or "") if found else ""


def _wrong_units(titles: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the units of the columns."""
    for name, title in titles.items():
        unit, units = _unit(title), _TIMES if name in _CYCLES else _SIZES
        if unit and name not in (*_CYCLES, *_BYTES):
            yield f"column {title}: expected no unit, got {unit!r}"
        elif unit and unit not in units:
            hint = did_you_mean(unit, units)
            yield f"column {title}: expected a unit out of {', '.join(units)}, got {unit!r}{hint}"


def _wrong_stage(text: str, number: int, names: set[str]) -> Iterator[str]:
    """Yield the errors of the stage name in a row of stage ``number``; ``names`` are those of all rows."""
    if not text:
        yield f"column {_STAGE}: expected {number}, or a name, got nothing"
    elif text.isdecimal() and text != str(number):
        missing = f": the row of stage {number} is missing" if str(number) not in names else ""
        counted = "as stages are counted from 0 in the order of the rows"
        yield f"column {_STAGE}: expected {number}, {counted}, got {text}{missing}"


def _spec(
    row: CsvRow, titles: Mapping[str, str], clock_hz: int, kind: type[StageCyclesSpec], number: int
) -> tuple[StageCyclesSpec | None, list[str]]:
    """Return the spec of a ``kind`` from a row of stage ``number``, or the row's errors."""
    numbers = {name: row.cells[name] for name in titles if name in _NUMBERS[kind] and row.cells[name]}
    problems = [*(row.problems or _wrong_source(row, titles)), *_two_units(numbers, titles)]
    said = {
        name: text if text[-1:].isalpha() else f"{text} {_unit(titles[name])}".strip() for name, text in numbers.items()
    }
    if kind is TimedStageSpec:
        text = row.cells[_STAGE]
        said["name"] = f"stage{number}" if text.isdecimal() or not text else text
    try:
        found = kind.model_validate(said, context={CLOCK_HZ: clock_hz})
    except ValidationError as error:
        wrong = problems_of(error.errors(include_url=False), _schema(kind))
        return None, [*(_told(str(each.path[0]), each.text, numbers, titles) for each in wrong), *problems]
    return (None if problems else found), problems


def _told(name: str, text: str, numbers: Mapping[str, str], titles: Mapping[str, str]) -> str:
    """Return what is wrong with a cell; of a part of a cycle, how a time is written."""
    title = titles[_STAGE if name == "name" else name]
    if text.startswith("expected a whole number of cycles") and numbers[name][-1:].isdecimal():
        text += f": a time has its unit, as {numbers[name]} ms, or {name} [ms] as the title"
    return f"column {title}: {text}"


def _wrong_source(row: CsvRow, titles: Mapping[str, str]) -> Iterator[str]:
    """Yield that the source is a number, which a decimal comma in a cell before it makes."""
    text = row.cells.get(_SOURCE, "")
    if text.isdecimal():
        got = f"column {titles[_SOURCE]}: expected who measured it, got {text!r}"
        yield f"{got}{decimal_comma([row.cells[name] for name in titles][-2:])}"


def _two_units(numbers: Mapping[str, str], titles: Mapping[str, str]) -> Iterator[str]:
    """Yield the cells that have a unit below a title that has one."""
    for name, text in numbers.items():
        if (unit := _unit(titles[name])) and text[-1:].isalpha():
            yield f"column {titles[name]}: expected a number alone, as {unit} stands in the title, got {text!r}"


@cache
def _schema(kind: type[StageCyclesSpec]) -> JsonNode:
    return kind.model_json_schema()
