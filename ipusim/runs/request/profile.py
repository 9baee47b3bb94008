"""Measured stages from CSV: a row for each stage, whose cells are read as the keys of ``pipeline.cycles`` are.

A column ``scenario`` before those of a profile puts the stages of several scenarios into one file.
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
from ipusim.runs.request.messages import JsonNode, problems_of
from ipusim.runs.request.model_spec import StageCyclesSpec
from ipusim.runs.request.pipeline_spec import MAX_STAGES

_SCENARIO, _STAGE, _SOURCE = "scenario", "stage", "source"
_CYCLES: Final = tuple(StageCyclesSpec.model_fields)
_NEEDED: Final = (_STAGE, *(name for name, key in StageCyclesSpec.model_fields.items() if key.is_required()))
#: Stages that a message lists.
_LISTED: Final = 5
_MOST_BYTES: Final = 2**20
#: A title: a name, and the unit of what stands below it if it says one, as in ``forward [us]``.
_TITLE: Final = re.compile(r"([^\[(]*?)\s*(?:[\[(]([^\[\]()]*)[\])])?")
#: What stages are measured in; cycles are those of the tile clock.
_UNITS: Final = (*UNITS["cycles"][0], *UNITS["seconds"][0])


@dataclass(frozen=True)
class MeasuredStage:
    """What was measured of one stage.

    Attributes:
        place: where it stands, as ``file:line``.
        name: what the file calls the stage; empty where it counts stages.
        cycles: what its passes and its weight update took; what was not measured is not set.
        source: who measured it; empty where the file does not say.
    """

    place: str
    name: str
    cycles: StageCyclesSpec
    source: str = ""


def read_profile(path: Path, clock_hz: int, called: str = "") -> tuple[MeasuredStage, ...]:
    """Return the stages of a CSV file in their order, by the columns stage, forward, backward, update and the halves.

    Columns stand in any order; ``update`` may be called ``weight update``, and ``source`` is kept. A number is cycles,
    and a cell may be a time such as ``1.2 ms``, which ``clock_hz`` makes cycles of; a title can say the unit of all
    numbers below it, as ``forward [us]``. ``called`` is the file's name in messages.

    Raises FileError that names every line and column that is wrong; OSError for a file that cannot be read.
    """
    called = called or str(path)
    table = _table(path, (), called)
    _refuse_number(table.rows, called)
    rows, problems = _stages(table.rows, table.titles, clock_hz)
    refuse(problems)
    return rows


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
        _refuse_number(table.rows, str(path))
    found, problems = {}, list[str]()
    for name in dict.fromkeys(row.cells[_SCENARIO] for row in table.rows):
        rows = [row for row in table.rows if row.cells[_SCENARIO] == name]
        _refuse_number(rows, f"{path}: {name}")
        found[name], wrong = _stages(rows, table.titles, clock_hz(name))
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
    """Return what is wrong with rows that are called as other stages of the pipeline than those of their places are."""
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
    """Return the rows of a file with the columns of a profile, and ``further`` ones that it needs."""
    columns = Columns((*further, _STAGE, *_CYCLES, _SOURCE), (*further, *_NEEDED), others=False, key=_key)
    table = read_table(path, columns, _MOST_BYTES, called)
    refuse([f"{called}:1: {problem}" for problem in _wrong_units(table.titles)])
    return table


def _refuse_number(rows: Sequence[CsvRow], called: str) -> None:
    """Refuse as many stages as no pipeline has."""
    if not 0 < len(rows) <= MAX_STAGES:
        refuse([f"{called}: expected from 1 to {MAX_STAGES} stages below the titles, got {len(rows)}"])


def _stages(
    rows: Sequence[CsvRow], titles: Mapping[str, str], clock_hz: int
) -> tuple[tuple[MeasuredStage, ...], list[str]]:
    """Return the stages of a pipeline whose rows can be read, and what is wrong with the others."""
    stages, problems, seen = [], [], set[str]()
    names = {row.cells[_STAGE] for row in rows}
    for number, row in enumerate(rows):
        found, wrong = _cycles(row, titles, clock_hz)
        wrong = [*_wrong_stage(row.cells[_STAGE], number, seen, names), *wrong]
        seen.add(row.cells[_STAGE])
        problems += [f"{row.place}: {problem}" for problem in wrong]
        if found is not None:
            name = "" if row.cells[_STAGE].isdecimal() else row.cells[_STAGE]
            stages.append(MeasuredStage(row.place, name, found, row.cells.get(_SOURCE, "")))
    return tuple(stages), problems


def _key(title: str) -> str:
    """Return what a title and the name of its column have in common."""
    name = _TITLE.fullmatch(title)
    words = re.sub(r"[\s_-]+", "_", (name[1] if name else title).lower())
    return "update" if words == "weight_update" else words


def _unit(title: str) -> str:
    """Return the unit that a title says; nothing where it says none."""
    found = _TITLE.fullmatch(title)
    return (found[2] or "") if found else ""


def _wrong_units(titles: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the units of the columns."""
    for name, title in titles.items():
        unit = _unit(title)
        if unit and name not in _CYCLES:
            yield f"column {title}: expected no unit, got {unit!r}"
        elif unit and unit not in _UNITS:
            hint = did_you_mean(unit, _UNITS)
            yield f"column {title}: expected a unit out of {', '.join(_UNITS)}, got {unit!r}{hint}"


def _wrong_stage(text: str, number: int, seen: set[str], names: set[str]) -> Iterator[str]:
    """Yield what is wrong with what the row of stage ``number`` calls it; ``seen`` are those of the rows before it."""
    if not text:
        yield f"column {_STAGE}: expected {number}, or a name, got nothing"
    elif text.isdecimal() and text != str(number):
        missing = f": the row of stage {number} is missing" if str(number) not in names else ""
        counted = "as stages are counted from 0 in the order of the rows"
        yield f"column {_STAGE}: expected {number}, {counted}, got {text}{missing}"
    elif text in seen:
        yield f"column {_STAGE}: expected a name that no other row has, got {text!r} again"


def _cycles(row: CsvRow, titles: Mapping[str, str], clock_hz: int) -> tuple[StageCyclesSpec | None, list[str]]:
    """Return the cycles of a row, or what is wrong with them."""
    numbers = {name: row.cells[name] for name in titles if name in _CYCLES and row.cells[name]}
    problems = [*(row.problems or _wrong_source(row, titles)), *_two_units(numbers, titles)]
    said = {
        name: text if text[-1:].isalpha() else f"{text} {_unit(titles[name])}".strip() for name, text in numbers.items()
    }
    try:
        found = StageCyclesSpec.model_validate(said, context={CLOCK_HZ: clock_hz})
    except ValidationError as error:
        wrong = problems_of(error.errors(include_url=False), _schema())
        return None, [*(f"column {titles[str(each.path[0])]}: {each.text}" for each in wrong), *problems]
    return (None if problems else found), problems


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
def _schema() -> JsonNode:
    return StageCyclesSpec.model_json_schema()
