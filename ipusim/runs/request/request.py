"""All that was asked for: every option by its one name, nothing resolved, and no word of who asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import BaseModel, ValidationError

from ipusim.base.near_names import did_you_mean
from ipusim.base.units import format_numbers
from ipusim.runs.problems import MOST_NUMBER, KeyPath, Problem, RequestError, dotted, show
from ipusim.runs.request.expectation import Expectation
from ipusim.runs.request.fields import CLOCK_HZ, CyclesOfTime, NameOfFile
from ipusim.runs.request.functions import Functions
from ipusim.runs.request.messages import problems_of
from ipusim.runs.request.schema import Options, json_schema
from ipusim.runs.request.system_spec import SystemSpec
from ipusim.runs.yaml_text import MAX_DEPTH
from ipusim.schedules import registry

_PLAIN: Final = frozenset((str, float, bool, type(None)))
#: Keys of what is nested too deep that a message names.
_SHOWN_DEPTH: Final = 4


@dataclass(frozen=True)
class Request:
    """What a front door asks for.

    Attributes:
        options: every option, with its default where it was not given.
        name: names the run and its folder.
        description: a sentence about it.
        folder: names of files in the options are relative to it.
        functions: the stages where they are Python functions that were tried already; None where the options say
            what the stages are.

    Example:
        >>> from ipusim.api import Request
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> request = Request.from_dict(options)
        >>> request.replace({"pipeline.schedule": "interleaved"}).options.pipeline.schedule
        'interleaved'
    """

    options: Options
    name: str = "pipeline"
    description: str = ""
    folder: Path = Path()
    functions: Functions | None = field(default=None, repr=False)

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], *, name: str = "", description: str = "", folder: Path | str = "."
    ) -> Request:
        """Return the Request of options as a scenario has them, by its keys.

        Sequences may be tuples or arrays, and numbers NumPy's.

        Args:
            data: the options by a scenario's keys.
            name: of the run and its folder, where the options have none.
            description: a sentence that results show.
            folder: names of files in the options are relative to it.

        Returns:
            The Request.

        Raises:
            RequestError: with every problem of keys and values.
        """
        found = validate(plain(data))
        return cls(found, found.name or name or cls.name, description, Path(folder))

    def is_set(self, path: KeyPath) -> bool:
        """Whether an option was given.

        Args:
            path: keys and places in lists from the top, such as ``("pipeline", "schedule")``.

        Returns:
            True where it was, whatever its value.
        """
        here: Any = self.options
        for key in path:
            if isinstance(here, BaseModel):
                names = {field.alias or name: name for name, field in type(here).model_fields.items()}
                name = names.get(str(key))
                if name not in here.model_fields_set:
                    return False
                here = getattr(here, str(name))
            elif isinstance(here, Mapping):
                if key not in here:
                    return False
                here = here[key]
            elif isinstance(here, tuple) and isinstance(key, int) and key < len(here):
                here = here[key]
            else:
                return False
        return True

    def given(self, folder: Path | None = None) -> dict[str, Any]:
        """Return the options as they were given, by a scenario's keys, without those that were not, as plain data.

        Args:
            folder: names of files are relative to it; by default to the request's own.

        Returns:
            Mappings, lists, texts and numbers; times stay text, and fractions exact.
        """

        def named(name: NameOfFile) -> str:
            return str(name) if folder is None else name.seen_from(self.folder, folder)

        found: dict[str, Any] = plain(options_set(self.options, named))
        return found

    def files(self) -> tuple[str, ...]:
        """Return every file that the options name, as they name it: relative to the folder, or ``file.py:function``."""
        found: list[str] = []

        def noted(name: NameOfFile) -> str:
            found.append(str(name))
            return str(name)

        options_set(self.options, noted)
        return tuple(dict.fromkeys(found))

    def paths(self, *others: Path) -> tuple[Path, ...]:
        """Return where the files lie that the options name.

        Args:
            others: further files that are read as well.

        Returns:
            The paths of these, then of those of the options.
        """
        return (*others, *(self.folder / re.sub(r"(\.py):\w+$", r"\1", name) for name in self.files()))

    def without_defaults(self) -> dict[str, Any]:
        """Return the options as :meth:`given` does, without those that say what their absence does."""
        found: dict[str, Any] = plain(_needed(self.options))
        return found

    def replace(self, changes: Mapping[str, Any], without: Collection[str] = ()) -> Request:
        """Return a Request with other values for options, by their dotted names such as ``pipeline.schedule``.

        An item of a list goes by its number or its own name.

        Args:
            changes: the values by those names.
            without: names of options that are to be as if they had not been given.

        Returns:
            The Request, with all else as it is here.

        Raises:
            RequestError: for names and values that are not options.
        """
        data = self.given()
        for name in without:
            _take_out(data, name.split("."))
        for name, value in changes.items():
            _put(data, name, plain(value, tuple(name.split("."))))
        return replace(self, options=validate(data))


def validate(data: Mapping[str, Any]) -> Options:
    """Return options from plain data. Raises RequestError with every problem of its keys and values."""
    try:
        return Options.model_validate(dict(data), context={CLOCK_HZ: _clock_hz(data)})
    except ValidationError as error:
        raise RequestError(problems_of(error.errors(include_url=False), _schema_with(registry.names()))) from None


def _clock_hz(data: Mapping[str, Any]) -> int:
    """Return the tile clock of the system of some options; any clock for a system that is no good, which is refused."""
    try:
        return SystemSpec.model_validate(data.get("system")).clock_hz
    except ValidationError:
        return 10**9


@cache
def _schema_with(schedules: tuple[str, ...]) -> dict[str, Any]:  # noqa: ARG001 - they are what may change in it
    """Return the JSON Schema, made once for each set of registered schedules: it takes 0.1 s."""
    return json_schema()


def plain(value: Any, path: KeyPath = ()) -> Any:
    """Return a copy of options as YAML would give them: lists of Python's own numbers, and names of files as text.

    ``path`` is where they stand. Raises RequestError for what is nested deeper than YAML may be here, as what holds
    itself is, and for whole numbers of more digits than anything has.
    """
    kind = type(value)
    if kind in _PLAIN:  # most are: told faster than what they are not
        return value
    if len(path) > MAX_DEPTH:
        raise RequestError([Problem(path[:_SHOWN_DEPTH], f"expected at most {MAX_DEPTH} levels of mappings and lists")])
    if kind is int or isinstance(value, int | np.integer):
        if abs(value) >= MOST_NUMBER:
            raise RequestError([Problem(path, f"expected a number of ordinary length, got {show(value)}")])
        return value.item() if isinstance(value, np.generic) else value
    if kind is dict or isinstance(value, Mapping):
        return {key: each if type(each) in _PLAIN else plain(each, (*path, key)) for key, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist(), path)
    if isinstance(value, list | tuple):
        return [each if type(each) in _PLAIN else plain(each, (*path, at)) for at, each in enumerate(value)]
    return str(value) if isinstance(value, Path) else value


def options_set(value: Any, named: Callable[[NameOfFile], str] = str) -> Any:
    """Return options by their keys as they were given, without those that were not; ``named`` gives names of files.

    Times and expectations are text, and fractions exact.
    """
    if type(value) in _PLAIN or type(value) is int:
        return value
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        names = [name for name in fields if name in value.model_fields_set]
        return {fields[name].alias or name: options_set(getattr(value, name), named) for name in names}
    if isinstance(value, Mapping):
        return {key: options_set(option, named) for key, option in value.items()}
    if isinstance(value, tuple):
        return [options_set(option, named) for option in value]
    if isinstance(value, NameOfFile):
        return named(value)
    return value.text if isinstance(value, CyclesOfTime | Expectation) else value


def _needed(value: Any) -> Any:
    """Return options by their keys without those that are their defaults, and without lists of such."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        differing = {
            name: _needed(each)
            for name in fields
            if name in value.model_fields_set
            and (each := getattr(value, name)) != fields[name].get_default(call_default_factory=True)
        }
        return {fields[name].alias or name: each for name, each in differing.items() if not _says_nothing(each)}
    if isinstance(value, tuple):
        return [_needed(each) for each in value]
    return options_set(value)


def _says_nothing(value: Any) -> bool:
    return isinstance(value, dict | list) and (not value or all(each == {} for each in value))


def _take_out(data: Any, names: Sequence[str]) -> None:
    """Take out the value of a mapping where dotted names lead to, if there is one."""
    *before, last = names
    for name in before:
        data = data.get(name) if isinstance(data, dict) else None
    if isinstance(data, dict):
        data.pop(last, None)


def _put(data: dict[str, Any], name: str, value: Any) -> None:
    """Put ``value`` where a dotted name leads to; mappings missing on the way are made."""
    *before, last = name.split(".")
    here: Any = data
    path: KeyPath = ()
    for key in before:
        path = (*path, key)
        here = here[index_of(here, key, path[:-1])] if isinstance(here, list) else here.setdefault(key, {})
        if not isinstance(here, dict | list):
            raise RequestError([Problem(path, f"expected a mapping or a list here, got {show(here)}")])
    if isinstance(here, list):
        here[index_of(here, last, path)] = value
    else:
        here[last] = value


def index_of(items: Sequence[Any], name: str, path: KeyPath) -> int:
    """Return the index of the item of a list that ``name`` names: by its number, or by its own name if it has one.

    ``path`` is where the list stands. Raises RequestError for one that there is not.
    """
    where = (*path, name)
    if not items:
        raise RequestError([Problem(where, f"expected an item of {dotted(path)}, which has none, got {name}")])
    if name.isdecimal() and name.isascii() and len(name) < 10:
        if int(name) < len(items):
            return int(name)
        text = f"expected an index of {dotted(path)} {format_numbers(len(items))}, got {name}"
        raise RequestError([Problem(where, text)])
    named = [str(item.get("name", "")) if isinstance(item, dict) else "" for item in items]
    if name in named:
        return named.index(name)
    near = did_you_mean(name, [other for other in named if other])
    text = f"expected an index of {dotted(path)} or the name of an item in it, got {name!r}{near}"
    raise RequestError([Problem(where, text)])
