"""Measured stages from CSV: a row for each measurement of a stage, with cells as in a scenario's stages.

Several rows of a stage are several measurements of it, whose medians count. With a further column ``scenario`` a file
has the stages of several scenarios.
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
from ipusim.runs.request.fields import CLOCK_HZ
from ipusim.runs.request.medians import median
from ipusim.runs.request.messages import JsonNode, problems_of
from ipusim.runs.request.model_spec import StageCyclesSpec, TimedStageSpec
from ipusim.runs.request.pipeline_spec import MAX_STAGES

_SCENARIO, _STAGE, _SOURCE = "scenario", "stage", "source"
_CYCLES: Final = tuple(StageCyclesSpec.model_fields)
_BYTES: Final = tuple(name for name in TimedStageSpec.model_fields if name.endswith("_bytes"))
#: Columns of numbers by the spec of a row: where a model determines the bytes, columns of bytes are ignored.
_NUMBERS: Final[Mapping[type[StageCyclesSpec], tuple[str, ...]]] = {
    StageCyclesSpec: _CYCLES,
    TimedStageSpec: (*_CYCLES, *_BYTES),
}
_NEEDED: Final = (_STAGE, *(name for name, key in StageCyclesSpec.model_fields.items() if key.is_required()))
#: Other names of columns.
_ALSO: Final = {"weight_update": "update", "bytes": "output_bytes"}
#: Names of rows over all stages in tables that people write.
_OVER_ALL: Final = ("total", "totals", "sum", "mean", "average", "avg", "median", "all", "min", "max", "std")
#: Stages that a message lists.
_LISTED: Final = 5
_MOST_BYTES: Final = 2**22
#: Units of columns of times: of seconds, and cycles of the tile clock.
_TIMES: Final = (*UNITS["cycles"][0], *UNITS["seconds"][0])
_SIZES: Final = tuple(UNITS["bytes"][0])
#: A title: a name, and the unit of the numbers below it if it has one, as in ``forward [us]`` or ``forward_us``.
_TITLE: Final = re.compile(rf"([^\[(]*?)(?:\s*[\[(]([^\[\]()]*)[\])]|[\s_-]+({'|'.join((*_TIMES, *_SIZES))}))?")


@dataclass(frozen=True)
class MeasuredStage:
    """The measurements of one stage.

    Attributes:
        position: the stage's first line, as ``file:line``.
        name: the stage's name in the file; empty where the file numbers its stages.
        cycles: cycles of its passes and its weight update, of several rows the medians; what was not measured is not
            set. Of a stage without a model it has bytes too.
        source: who measured it; empty where the file does not say.
        rows: the number of the stage's rows in the file.
    """

    position: str
    name: str
    cycles: StageCyclesSpec
    source: str = ""
    rows: int = 1


def read_profile(path: Path, clock_hz: int, called: str = "") -> tuple[MeasuredStage, ...]:
    """Return the stages of a CSV file in their order, by the columns stage, forward, backward, update and the halves.

    Columns come in any order; ``update`` may be called ``weight update``, and ``source`` is optional. A number is in
    cycles, and a cell may be a time such as ``1.2 ms``, which is converted by ``clock_hz``; a title can name the unit
    of its numbers, as ``forward [us]``. Columns of bytes are ignored. ``called`` is the file's name in messages.

    Raises FileError that names every line and column that is wrong; OSError for a file that cannot be read.
    """
    return _measured(path, clock_hz, called or str(path), StageCyclesSpec)


def read_stages(path: Path, clock_hz: int, called: str = "") -> tuple[TimedStageSpec, ...]:
    """Return the stages of a CSV file as stages known by their cost alone, in their order.

    Beside the columns of :func:`read_profile` there may be columns of bytes: ``output_bytes``, which may be called
    ``bytes``, and the other sizes of such stages. The default of a stage's ``gradient_bytes`` is the previous stage's
    output without labels. A stage without a name is called ``stage0`` and so on.

    Raises as :func:`read_profile` does.
    """
    stages, before = list[TimedStageSpec](), 0
    for row in _measured(path, clock_hz, called or str(path), TimedStageSpec):
        stage = row.cycles
        assert isinstance(stage, TimedStageSpec)
        if before and stage.whole_backward and "gradient_bytes" not in stage.model_fields_set:
            stage = stage.model_copy(update={"gradient_bytes": before})
        stages.append(stage)
        before = stage.output_bytes - stage.label_bytes
    return tuple(stages)


def read_profiles(path: Path, clock_hz: Callable[[str], int]) -> dict[str, tuple[MeasuredStage, ...]]:
    """Return the stages of several scenarios, by the cells of a column ``scenario`` beside the columns of a profile.

    ``clock_hz`` returns the clock of a scenario. Raises what ``clock_hz`` and :func:`read_profile` do.
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
        scenarios[name], wrong = _stages(rows, table.titles, clock_hz(name))
        refuse(_wrong_length(rows, f"{path}: {name}"))
        problems += wrong
    refuse(problems)
    return scenarios


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
        f"{row.position}: column {_STAGE}: expected {own!r} in this place, got {row.name!r}: list stages in their order"
        for row, own in zip(rows, names, strict=False)
        if row.name != own and row.name in names
    ]


def wrong_number(rows: Sequence[MeasuredStage], stages: Mapping[str, Sequence[str]], called: str) -> tuple[str, ...]:
    """Return the error of a wrong number of rows, which names a stage without a row or a row of no stage.

    A row with the name of a stage, or of a layer in it, belongs to that stage; unless all have one, rows are in order.

    Args:
        rows: the rows of the file, in its order.
        stages: the layers of each stage of the pipeline, by its name.
        called: the file's name in messages.
    """
    if len(rows) == len(stages):
        return ()
    names = [{name, *layers} for name, layers in stages.items()]
    of = [next((stage for stage, own in enumerate(names) if row.name in own), None) for row in rows]
    if len(rows) > len(stages):
        other = of.index(None) if None in of and any(stage is not None for stage in of) else len(stages)
        got = f"{rows[other].position} is of no stage"
    else:
        known = len({*of} - {None}) == len(rows)
        missing = [number for number in range(len(stages)) if (number not in of if known else number >= len(rows))]
        listed = [
            f"stage {number} ({', '.join([*stages.values()][number] or [[*stages][number]])})" for number in missing
        ]
        got = f"none for {enumerated(listed, _LISTED)}"
    return (f"{called}: expected a row for each of the {len(stages)} stages, got {len(rows)}: {got}",)


def _measured(path: Path, clock_hz: int, called: str, kind: type[StageCyclesSpec]) -> tuple[MeasuredStage, ...]:
    """Return the stages of a file, with specs of a ``kind``."""
    table = _table(path, (), called)
    stages, problems = _stages(table.rows, table.titles, clock_hz, kind)
    refuse(_wrong_length(table.rows, called) or problems)
    return stages


def _table(path: Path, further: Sequence[str], called: str) -> CsvTable:
    """Return the rows of a file with the columns of measured stages and the required columns ``further``."""
    columns = Columns(
        (*further, _STAGE, *_CYCLES, *_BYTES, _SOURCE), (*further, *_NEEDED), allows_others=False, key=_key
    )
    table = read_table(path, columns, _MOST_BYTES, called)
    refuse([f"{called}:1: {problem}" for problem in _wrong_units(table.titles)])
    return table


def _wrong_length(rows: Sequence[CsvRow], called: str) -> list[str]:
    """Return the error of rows of too many stages for a pipeline, or of none."""
    stages = len({row.cells[_STAGE] for row in rows})
    if 0 < stages <= MAX_STAGES:
        return []
    return [f"{called}: expected from 1 to {MAX_STAGES} stages below the titles, got {stages}"]


def _stages(
    rows: Sequence[CsvRow], titles: Mapping[str, str], clock_hz: int, kind: type[StageCyclesSpec] = StageCyclesSpec
) -> tuple[tuple[MeasuredStage, ...], list[str]]:
    """Return the stages of the valid rows, with specs of a ``kind``, and the errors of the other rows."""
    problems = list[str]()
    read: dict[str, list[tuple[CsvRow, StageCyclesSpec]]] = {}
    names = {row.cells[_STAGE] for row in rows}
    for row in rows:
        name = row.cells[_STAGE]
        number = [*read].index(name) if name in read else len(read)
        spec, wrong = _spec(row, titles, clock_hz, kind, number)
        wrong = [*_wrong_stage(name, number, names), *wrong]
        problems += [f"{row.position}: {problem}" for problem in wrong]
        measured = read.setdefault(name, []) if name else []
        if spec is not None:
            measured.append((row, spec))
    stages = []
    for name, measured in read.items():
        if measured:
            first = measured[0][0]
            sources = dict.fromkeys(row.cells.get(_SOURCE, "") for row, _ in measured)
            spec = median([spec for _, spec in measured], clock_hz)
            called = "" if name.isdecimal() else name
            stages.append(MeasuredStage(first.position, called, spec, ", ".join(filter(None, sources)), len(measured)))
    return tuple(stages), problems


def _key(title: str) -> str:
    """Return the name of the column with this title."""
    name = _TITLE.fullmatch(title)
    words = re.sub(r"[\s_-]+", "_", (name[1] if name else title).lower())
    return _ALSO.get(words, words)


def _unit(title: str) -> str:
    """Return the unit in a title; empty without one."""
    parts = _TITLE.fullmatch(title)
    return (parts[2] or parts[3] or "") if parts else ""


def _wrong_units(titles: Mapping[str, str]) -> Iterator[str]:
    """Yield the errors of the units in the titles."""
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
    elif text.lower() in _OVER_ALL and len(names) > 1:
        yield f"column {_STAGE}: expected a stage, got {text!r}, which is a row over all stages: leave it out"
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
        spec = kind.model_validate(said, context={CLOCK_HZ: clock_hz})
    except ValidationError as error:
        wrong = problems_of(error.errors(include_url=False), _schema(kind))
        of_row = [problem.text for problem in wrong if not problem.path]
        of_cells = [_worded(str(problem.path[0]), problem.text, numbers, titles) for problem in wrong if problem.path]
        return None, [*of_row, *of_cells, *problems]
    return (None if problems else spec), problems


def _worded(name: str, text: str, numbers: Mapping[str, str], titles: Mapping[str, str]) -> str:
    """Return the message of a cell's error with the column; for a fraction of a cycle, also how a time is written."""
    title = titles[_STAGE if name == "name" else name]
    if text.startswith("expected a whole number of cycles") and numbers[name][-1:].isdecimal():
        text += f": a time has its unit, as {numbers[name]} ms, or {name} [ms] as the title"
    return f"column {title}: {text}"


def _wrong_source(row: CsvRow, titles: Mapping[str, str]) -> Iterator[str]:
    """Yield the error of a source that is a number, as a decimal comma in a cell before it causes."""
    text = row.cells.get(_SOURCE, "")
    if text.isdecimal():
        got = f"column {titles[_SOURCE]}: expected who measured it, got {text!r}"
        yield f"{got}{decimal_comma([row.cells[name] for name in titles][-2:])}"


def _two_units(numbers: Mapping[str, str], titles: Mapping[str, str]) -> Iterator[str]:
    """Yield the errors of cells with a unit in a column whose title has one."""
    for name, text in numbers.items():
        if (unit := _unit(titles[name])) and text[-1:].isalpha():
            yield f"column {titles[name]}: expected a number alone, as {unit} stands in the title, got {text!r}"


@cache
def _schema(kind: type[StageCyclesSpec]) -> JsonNode:
    return kind.model_json_schema()
