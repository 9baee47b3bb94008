"""Read measured stages from CSV: a row for each measurement of a stage, with the values of a scenario's stages.

Several rows of a stage are several measurements, reduced to medians. An additional column ``scenario`` allows stages of
several scenarios in a file.
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
from ipusim.base.units import UNITS, enumerated
from ipusim.runs.request.fields import CLOCK_HZ, MAX_STAGES
from ipusim.runs.request.medians import median
from ipusim.runs.request.messages import JsonNode, problems_of
from ipusim.runs.request.model_spec import StageCyclesSpec, TimedStageSpec

#: Columns of texts.
_SCENARIO, _STAGE, _SOURCE = "scenario", "stage", "source"
#: Columns of cycles or times.
_CYCLES: Final = tuple(StageCyclesSpec.model_fields)
#: Columns of bytes.
_BYTES: Final = tuple(name for name in TimedStageSpec.model_fields if name.endswith("_bytes"))
#: Columns of numbers by the spec of a row; columns of bytes are ignored if a model determines the bytes.
_NUMBERS: Final[Mapping[type[StageCyclesSpec], tuple[str, ...]]] = {
    StageCyclesSpec: _CYCLES,
    TimedStageSpec: (*_CYCLES, *_BYTES),
}
_REQUIRED_COLUMNS: Final = (_STAGE, *(name for name, key in StageCyclesSpec.model_fields.items() if key.is_required()))
#: Column names by alias.
_COLUMN_ALIASES: Final = {"weight_update": "update", "bytes": "output_bytes"}
#: Names of summary rows over all stages, common in hand-written tables.
_SUMMARY_ROWS: Final = ("total", "totals", "sum", "mean", "average", "avg", "median", "all", "min", "max", "std")
#: Maximum number of stages in a message.
_MOST_LISTED_STAGES: Final = 5
#: Maximum size of a file.
_MOST_BYTES: Final = 2**22
#: Units of columns of times: seconds and cycles of the tile clock.
_TIMES: Final = (*UNITS["cycles"][0], *UNITS["seconds"][0])
#: Units of columns of bytes.
_SIZES: Final = tuple(UNITS["bytes"][0])
#: Column title: a name with an optional unit of the numbers, as in ``forward [us]`` or ``forward_us``.
_TITLE: Final = re.compile(rf"([^\[(]*?)(?:\s*[\[(]([^\[\]()]*)[\])]|[\s_-]+({'|'.join((*_TIMES, *_SIZES))}))?")


@dataclass(frozen=True)
class MeasuredStage:
    """Measurements of one stage.

    Attributes:
        position: first line of the stage, as ``file:line``.
        name: name of the stage in the file; empty for a numbered stage.
        cycles: cycles of passes and weight update, medians if the stage has several rows; values that were not measured
            are unset. If the scenario has no model, also bytes.
        source: origin of the measurement; empty if the file does not say.
        rows: number of rows of the stage in the file.
    """

    position: str
    name: str
    cycles: StageCyclesSpec
    source: str = ""
    rows: int = 1


def read_profile(path: Path, clock_hz: int, file_name: str = "") -> tuple[MeasuredStage, ...]:
    """Read the stages of a CSV file in order.

    The columns are stage, forward, backward, update, and the two halves of the backward pass.
    Columns may have any order; ``weight update`` is an alias of ``update``, and ``source`` is optional. Numbers are
    cycles; a cell may be a time such as ``1.2 ms``, converted by ``clock_hz``; a title may include the unit of its
    numbers, as in ``forward [us]``. Columns of bytes are ignored. ``file_name`` is the file's name in messages.

    Raises FileError with line and column of every mistake; OSError for an unreadable file.
    """
    return _read_measured(path, clock_hz, file_name or str(path), StageCyclesSpec)


def read_stages(path: Path, clock_hz: int, file_name: str = "") -> tuple[TimedStageSpec, ...]:
    """Read the stages of a CSV file as stages known only by cost.

    Besides the columns of :func:`read_profile` the file may have columns of bytes: ``output_bytes`` with the alias
    ``bytes``, and other sizes. The default of a stage's ``gradient_bytes`` is the previous stage's output without
    labels. Stages without a name are called ``stage0``, ``stage1`` and so on.

    Raises FileError with line and column of every mistake; OSError for an unreadable file.
    """
    stages, output_bytes = list[TimedStageSpec](), 0
    for row in _read_measured(path, clock_hz, file_name or str(path), TimedStageSpec):
        stage = row.cycles
        assert isinstance(stage, TimedStageSpec)
        if output_bytes and stage.whole_backward and "gradient_bytes" not in stage.model_fields_set:
            stage = stage.model_copy(update={"gradient_bytes": output_bytes})
        stages.append(stage)
        output_bytes = stage.output_bytes - stage.label_bytes
    return tuple(stages)


def read_profiles(path: Path, clock_hz: Callable[[str], int]) -> dict[str, tuple[MeasuredStage, ...]]:
    """Read the stages of several scenarios, by the column ``scenario`` of a profile.

    ``clock_hz`` returns the clock of a scenario; its errors are passed on. Raises FileError with line and column of
    every mistake; OSError for an unreadable file.
    """
    table = _table(path, (_SCENARIO,), str(path))
    refuse(
        [
            f"{row.position}: column {_SCENARIO}: expected the path of a scenario, got nothing"
            for row in table.rows
            if not row.cells[_SCENARIO]
        ]
    )
    if not table.rows:
        refuse(_wrong_length(table.rows, str(path)))
    scenarios, problems = {}, list[str]()
    for name in dict.fromkeys(row.cells[_SCENARIO] for row in table.rows):
        rows = [row for row in table.rows if row.cells[_SCENARIO] == name]
        scenarios[name], problems_of_scenario = _stages(rows, table.titles, clock_hz(name))
        refuse(_wrong_length(rows, f"{path}: {name}"))
        problems += problems_of_scenario
    refuse(problems)
    return scenarios


def has_stages(path: Path) -> bool:
    """Return whether a CSV file has a column of stages, like a profile; raises OSError and FileError."""
    try:
        titles = next(read_lines(path, _MOST_BYTES), CsvLine(1, ())).cells
    except FileError as error:
        raise FileError(f"{path}: {error}") from None
    return _STAGE in map(_column_name, titles)


def misplaced(rows: Sequence[MeasuredStage], names: Sequence[str]) -> list[str]:
    """Return errors for rows whose name belongs to a stage at another position."""
    return [
        f"{row.position}: column {_STAGE}: expected {name!r} in this row, got {row.name!r}: list the stages in order"
        for row, name in zip(rows, names, strict=False)
        if row.name != name and row.name in names
    ]


def wrong_number(rows: Sequence[MeasuredStage], stages: Mapping[str, Sequence[str]], file_name: str) -> tuple[str, ...]:
    """Return the error for missing or surplus rows of stages.

    Rows are matched by the name of a stage or of a layer; unless all rows match, by position.

    Args:
        rows: rows in file order.
        stages: layers of each stage of the pipeline, by stage name.
        file_name: file name for messages.
    """
    if len(rows) == len(stages):
        return ()
    names = [{name, *layers} for name, layers in stages.items()]
    matches = [next((stage for stage, group in enumerate(names) if row.name in group), None) for row in rows]
    if len(rows) > len(stages):
        surplus = (
            matches.index(None) if None in matches and any(stage is not None for stage in matches) else len(stages)
        )
        problem = f"{rows[surplus].position} belongs to no stage"
    else:
        by_name = len({*matches} - {None}) == len(rows)
        absent = [
            number for number in range(len(stages)) if (number not in matches if by_name else number >= len(rows))
        ]
        texts = [
            f"stage {number} ({', '.join([*stages.values()][number] or [[*stages][number]])})" for number in absent
        ]
        problem = f"none for {enumerated(texts, _MOST_LISTED_STAGES)}"
    return (f"{file_name}: expected a row for each of the {len(stages)} stages, got {len(rows)}: {problem}",)


def _read_measured(path: Path, clock_hz: int, file_name: str, kind: type[StageCyclesSpec]) -> tuple[MeasuredStage, ...]:
    """Return the stages of a file with specs of a ``kind``."""
    table = _table(path, (), file_name)
    stages, problems = _stages(table.rows, table.titles, clock_hz, kind)
    refuse(_wrong_length(table.rows, file_name) or problems)
    return stages


def _table(path: Path, required: Sequence[str], file_name: str) -> CsvTable:
    """Return a file's rows with columns of measured stages, requiring columns ``further``."""
    columns = Columns(
        (*required, _STAGE, *_CYCLES, *_BYTES, _SOURCE),
        (*required, *_REQUIRED_COLUMNS),
        allows_others=False,
        key=_column_name,
    )
    table = read_table(path, columns, _MOST_BYTES, file_name)
    refuse([f"{file_name}:1: {problem}" for problem in _wrong_units(table.titles)])
    return table


def _wrong_length(rows: Sequence[CsvRow], file_name: str) -> list[str]:
    """Return the error for too many stages for a pipeline, or no stages."""
    stages = len({row.cells[_STAGE] for row in rows})
    if 0 < stages <= MAX_STAGES:
        return []
    return [f"{file_name}: expected from 1 to {MAX_STAGES} stages below the titles, got {stages}"]


def _stages(
    rows: Sequence[CsvRow], titles: Mapping[str, str], clock_hz: int, kind: type[StageCyclesSpec] = StageCyclesSpec
) -> tuple[tuple[MeasuredStage, ...], list[str]]:
    """Return stages from valid rows, with specs of a ``kind``, and row errors."""
    problems = list[str]()
    read: dict[str, list[tuple[CsvRow, StageCyclesSpec]]] = {}
    names = {row.cells[_STAGE] for row in rows}
    for row in rows:
        name = row.cells[_STAGE]
        number = [*read].index(name) if name in read else len(read)
        spec, row_problems = _spec(row, titles, clock_hz, kind, number)
        row_problems = [*_wrong_stage(name, number, names), *row_problems]
        problems += [f"{row.position}: {problem}" for problem in row_problems]
        measurements = read.setdefault(name, []) if name else []
        if spec is not None:
            measurements.append((row, spec))
    stages = []
    for name, measurements in read.items():
        if measurements:
            first = measurements[0][0]
            sources = dict.fromkeys(row.cells.get(_SOURCE, "") for row, _ in measurements)
            spec = median([spec for _, spec in measurements], clock_hz)
            stage_name = "" if name.isdecimal() else name
            stages.append(
                MeasuredStage(first.position, stage_name, spec, ", ".join(filter(None, sources)), len(measurements))
            )
    return tuple(stages), problems


def _column_name(title: str) -> str:
    """Return the column name of a title."""
    name = _TITLE.fullmatch(title)
    words = re.sub(r"[\s_-]+", "_", (name[1] if name else title).lower())
    return _COLUMN_ALIASES.get(words, words)


def _unit(title: str) -> str:
    """Return the unit in a title; empty without one."""
    parts = _TITLE.fullmatch(title)
    return (parts[2] or parts[3] or "") if parts else ""


def _wrong_units(titles: Mapping[str, str]) -> Iterator[str]:
    """Yield errors for titles' units."""
    for name, title in titles.items():
        unit, units = _unit(title), _TIMES if name in _CYCLES else _SIZES
        if unit and name not in (*_CYCLES, *_BYTES):
            yield f"column {title}: expected no unit, got {unit!r}"
        elif unit and unit not in units:
            hint = did_you_mean(unit, units)
            yield f"column {title}: expected a unit out of {', '.join(units)}, got {unit!r}{hint}"


def _wrong_stage(text: str, number: int, names: set[str]) -> Iterator[str]:
    """Yield errors for the name in a row of stage ``number``; ``names`` are the names of all rows."""
    if not text:
        yield f"column {_STAGE}: expected {number}, or a name, got nothing"
    elif text.lower() in _SUMMARY_ROWS and len(names) > 1:
        yield f"column {_STAGE}: expected a stage, got {text!r}, a row over all stages: delete the row"
    elif text.isdecimal() and text != str(number):
        hint = f": the row of stage {number} is missing" if str(number) not in names else ""
        order = "because stages are counted from 0 in the order of the rows"
        yield f"column {_STAGE}: expected {number}, {order}, got {text}{hint}"


def _spec(
    row: CsvRow, titles: Mapping[str, str], clock_hz: int, kind: type[StageCyclesSpec], number: int
) -> tuple[StageCyclesSpec | None, list[str]]:
    """Return the spec of a stage's row as ``kind``, or the row's errors."""
    numbers = {name: row.cells[name] for name in titles if name in _NUMBERS[kind] and row.cells[name]}
    problems = [*(row.problems or _wrong_source(row, titles)), *_two_units(numbers, titles)]
    values = {
        name: text if text[-1:].isalpha() else f"{text} {_unit(titles[name])}".strip() for name, text in numbers.items()
    }
    if kind is TimedStageSpec:
        text = row.cells[_STAGE]
        values["name"] = f"stage{number}" if text.isdecimal() or not text else text
    try:
        spec = kind.model_validate(values, context={CLOCK_HZ: clock_hz})
    except ValidationError as error:
        spec_problems = problems_of(error.errors(include_url=False), _schema(kind))
        row_problems = [problem.text for problem in spec_problems if not problem.path]
        cell_problems = [
            _cell_message(str(problem.path[0]), problem.text, numbers, titles)
            for problem in spec_problems
            if problem.path
        ]
        return None, [*row_problems, *cell_problems, *problems]
    return (None if problems else spec), problems


def _cell_message(name: str, text: str, numbers: Mapping[str, str], titles: Mapping[str, str]) -> str:
    """Return the message of a cell's error with its column; a fraction of a cycle gets advice on units."""
    title = titles[_STAGE if name == "name" else name]
    if text.startswith("expected a whole number of cycles") and numbers[name][-1:].isdecimal():
        text += f": a time has its unit, as {numbers[name]} ms, or {name} [ms] as the title"
    return f"column {title}: {text}"


def _wrong_source(row: CsvRow, titles: Mapping[str, str]) -> Iterator[str]:
    """Yield the error for a source that is a number: typically, the previous cell has a decimal comma."""
    text = row.cells.get(_SOURCE, "")
    if text.isdecimal():
        problem = f"column {titles[_SOURCE]}: expected the origin of the measurement, got {text!r}"
        yield f"{problem}{decimal_comma([row.cells[name] for name in titles][-2:])}"


def _two_units(numbers: Mapping[str, str], titles: Mapping[str, str]) -> Iterator[str]:
    """Yield errors for cells with a unit in a column with a unit."""
    for name, text in numbers.items():
        if (unit := _unit(titles[name])) and text[-1:].isalpha():
            yield (
                f"column {titles[name]}: expected a number without a unit, as the title has the unit {unit}, got "
                f"{text!r}"
            )


@cache
def _schema(kind: type[StageCyclesSpec]) -> JsonNode:
    return kind.model_json_schema()
