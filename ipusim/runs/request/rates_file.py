"""Read rates from a YAML file with the keys of a scenario's ``rates``; errors name line and column."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from ipusim.base.errors import FileError
from ipusim.base.files import open_file, read_up_to
from ipusim.runs.places import Place, PlacedProblem
from ipusim.runs.problems import dotted, show
from ipusim.runs.request.messages import JsonNode, problems_of
from ipusim.runs.request.rates_spec import RatesSpec
from ipusim.runs.yaml_text import Located

#: Maximum size of a file of rates.
_MOST_BYTES: Final = 1 << 17


def read_rates(path: Path, file_name: str = "") -> RatesSpec:
    """Read the rates of a YAML file, a mapping with the keys of ``rates``; ``file_name`` is its name in messages.

    Raises FileError with line and column of every mistake; OSError for an unreadable file.
    """
    file_name = file_name or str(path)
    located = Located(file_name)
    data = located.read(_text(path, file_name))
    if located.problems:
        raise _file_error(located.problems)
    start = located.values.get((), Place(file_name))
    if not isinstance(data, dict):
        value = "an empty file" if data is None else show(data)
        text = f"expected a mapping of rates such as 'amp_ceiling: 0.9', got {value}"
        raise _file_error([PlacedProblem(start, "", text)])
    try:
        return RatesSpec.model_validate(data)
    except ValidationError as error:
        problems = problems_of(error.errors(include_url=False), _schema())
    positions = [(located.keys if problem.of_key else located.values).get(problem.path, start) for problem in problems]
    texts = [(dotted(problem.path), problem.text) for problem in problems]
    raise _file_error([PlacedProblem(position, *text) for position, text in zip(positions, texts, strict=True)])


def _text(path: Path, file_name: str) -> str:
    with open_file(path) as file:
        data = bytes(read_up_to(file, _MOST_BYTES + 1))
    if len(data) > _MOST_BYTES:
        raise FileError(f"{file_name}: expected a file of at most {_MOST_BYTES >> 10} KiB, got a larger one")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{file_name}: expected text in UTF-8: {error.reason} at byte {error.start}") from None


def _file_error(problems: list[PlacedProblem]) -> FileError:
    """Return an error with all problems in file order."""
    return FileError("\n".join(map(str, sorted(problems, key=lambda problem: problem.position.rank))))


@cache
def _schema() -> JsonNode:
    return RatesSpec.model_json_schema()
