"""Define the Request: all options of a run by name, as a scenario file, a command or Python gives them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from pydantic import BaseModel, ValidationError

from ipusim.base.near_names import did_you_mean
from ipusim.base.units import format_numbers
from ipusim.hardware.system import System
from ipusim.pipeline.offload import Offload
from ipusim.runs.content import Content
from ipusim.runs.problems import NUMBER_LIMIT, KeyPath, Problem, RequestError, dotted, show
from ipusim.runs.request.expectation import Expectation
from ipusim.runs.request.fields import CLOCK_HZ, CyclesOfTime, NameOfFile
from ipusim.runs.request.messages import problems_of
from ipusim.runs.request.schema import Options, json_schema
from ipusim.runs.request.system_spec import SystemSpec
from ipusim.runs.yaml_text import MAX_DEPTH
from ipusim.schedules import registry

#: Types of plain values that need no conversion.
_PLAIN: Final = frozenset((str, float, bool, type(None)))
#: Number of keys in a message's path to an option nested too deeply.
_SHOWN_DEPTH: Final = 4


class Functions(Protocol):
    """Python functions as stages, which need no options."""

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each computational stage; concurrent stages share a name."""

    @property
    def parts(self) -> tuple[int, ...]:
        """Number of stages in each computational stage: 1, or the number of concurrent stages."""

    @property
    def training(self) -> bool:
        """Whether the stages train."""

    def content(self, system: System, offload: Offload) -> Content:
        """Return the costs and arithmetic of the stages on ``system``.

        Raises an IpusimError for an unsuitable system.
        """


@dataclass(frozen=True)
class Request:
    """Options of a run, with its name and folder.

    Attributes:
        options: all options, with defaults.
        name: name of the run and of its results folder.
        description: sentence about the run.
        folder: folder that file names in the options are relative to.
        functions: traced Python functions as stages; None if the options describe the stages.

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
        """Return the Request of options with the keys of a scenario.

        Sequences may also be tuples or arrays, and numbers may be NumPy numbers.

        Args:
            data: options by a scenario's keys.
            name: name of the run and its folder, used if the options have no name.
            description: sentence shown with results.
            folder: folder that file names in the options are relative to.

        Returns:
            Request with these options.

        Raises:
            RequestError: if keys or values are wrong; the error lists all problems.
        """
        options = validate(plain(data))
        return cls(options, options.name or name or cls.name, description, Path(folder))

    @property
    def has_timed_stages(self) -> bool:
        """Whether only the cost of stages is known, for one micro-batch size."""
        return self.options.model is None and self.functions is None

    def leaves_costs_open(self, names: Collection[str]) -> bool:
        """Return whether changed options include a micro-batch size with unknown costs.

        Args:
            names: dotted names of changed options.

        Returns:
            True for stages known only by their cost, if the micro-batch size changes and their costs do not.
        """
        changes_stages = any(name.startswith("pipeline.stages") for name in names)
        return self.has_timed_stages and "pipeline.micro_batch_size" in names and not changes_stages

    def is_set(self, path: KeyPath) -> bool:
        """Return whether an option was set explicitly.

        Args:
            path: keys and list indices from the top, such as ``("pipeline", "schedule")``.

        Returns:
            True for an option that was set, even to its default.
        """
        level: Any = self.options
        for key in path:
            if isinstance(level, BaseModel):
                name = _names(type(level)).get(str(key))
                if name not in level.model_fields_set:
                    return False
                level = getattr(level, str(name))
            elif isinstance(level, Mapping):
                if key not in level:
                    return False
                level = level[key]
            elif isinstance(level, tuple) and isinstance(key, int) and key < len(level):
                level = level[key]
            else:
                return False
        return True

    def to_dict(self, folder: Path | None = None) -> dict[str, Any]:
        """Return explicitly set options as plain data with a scenario's keys.

        Args:
            folder: base folder of file names; by default the request's folder.

        Returns:
            Mappings, lists, texts and numbers; times stay text, and fractions exact.
        """

        def name_from(name: NameOfFile) -> str:
            return str(name) if folder is None else name.seen_from(self.folder, folder)

        data: dict[str, Any] = plain(options_set(self.options, name_from))
        return data

    def files(self) -> tuple[str, ...]:
        """Return all files named in options, as written: relative to the folder, or ``file.py:function``."""
        names: list[str] = []

        def record(name: NameOfFile) -> str:
            names.append(str(name))
            return str(name)

        options_set(self.options, record)
        return tuple(dict.fromkeys(names))

    def paths(self, *further_paths: Path) -> tuple[Path, ...]:
        """Return the paths of files named in the options.

        Args:
            further_paths: further files to include.

        Returns:
            ``further_paths``, then the paths of the options' files.
        """
        return (*further_paths, *(self.folder / re.sub(r"(\.py):\w+$", r"\1", name) for name in self.files()))

    def without_defaults(self) -> dict[str, Any]:
        """Return the options in the format of :meth:`to_dict`, without options set to their defaults."""
        data: dict[str, Any] = plain(_different_from_defaults(self.options))
        return data

    def replace(self, changes: Mapping[str, Any], without: Collection[str] = ()) -> Request:
        """Return a Request with changed options, by dotted names such as ``pipeline.schedule``.

        A list item is named by its index or its ``name``.

        Args:
            changes: values by dotted name.
            without: dotted names of options to unset.

        Returns:
            Request with these changes.

        Raises:
            RequestError: if a name is unknown or a value is invalid.
        """
        data = self.to_dict()
        for name in without:
            take_out(data, name)
        for name, value in changes.items():
            _set_option(data, name, plain(value, tuple(name.split("."))))
        return replace(self, options=validate(data))


def validate(data: Mapping[str, Any]) -> Options:
    """Convert plain data to options; raises RequestError with all problems of keys and values."""
    try:
        return Options.model_validate(dict(data), context={CLOCK_HZ: _clock_hz(data)})
    except ValidationError as error:
        raise RequestError(problems_of(error.errors(include_url=False), _schema_with(registry.names()))) from None


def _clock_hz(data: Mapping[str, Any]) -> int:
    """Return the tile clock of the options' system; 1 GHz for an invalid system, whose errors are reported anyway."""
    try:
        return SystemSpec.model_validate(data.get("system")).clock_hz
    except ValidationError:
        return 10**9


@cache
def _schema_with(schedules: tuple[str, ...]) -> dict[str, Any]:  # noqa: ARG001 - the key of the cache
    """Return the JSON Schema, cached per set of schedules: building takes 0.1 s."""
    return json_schema()


def plain(value: Any, path: KeyPath = ()) -> Any:
    """Return a copy of options as plain data, as if read from YAML.

    Sequences become lists, numbers become Python's numbers, and file names become text. ``path`` is the path
    of ``value`` in the options.

    Raises RequestError for data nested too deeply, such as a list that contains itself, and for whole numbers with too
    many digits.
    """
    kind = type(value)
    if kind in _PLAIN:  # the usual case, and the fastest to check
        return value
    if len(path) > MAX_DEPTH:
        raise RequestError([Problem(path[:_SHOWN_DEPTH], f"expected at most {MAX_DEPTH} levels of mappings and lists")])
    if kind is int or isinstance(value, int | np.integer):
        if abs(value) >= NUMBER_LIMIT:
            raise RequestError([Problem(path, f"expected a number of ordinary length, got {show(value)}")])
        return value.item() if isinstance(value, np.generic) else value
    if kind is dict or isinstance(value, Mapping):
        return {key: option if type(option) in _PLAIN else plain(option, (*path, key)) for key, option in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist(), path)
    if isinstance(value, list | tuple):
        return [
            option if type(option) in _PLAIN else plain(option, (*path, index)) for index, option in enumerate(value)
        ]
    return str(value) if isinstance(value, Path) else value


@cache  # called for every possible option
def _names(model: type[BaseModel]) -> dict[str, str]:
    """Return the names of a model's fields by key."""
    return {field.alias or name: name for name, field in model.model_fields.items()}


def options_set(value: Any, convert: Callable[[NameOfFile], str] = str) -> Any:
    """Return explicitly set options by key; ``convert`` converts file names.

    Times and expectations become text, and fractions stay exact.
    """
    if type(value) in _PLAIN or type(value) is int:
        return value
    if isinstance(value, BaseModel):
        keys = ((key, name) for key, name in _names(type(value)).items() if name in value.model_fields_set)
        return {key: options_set(getattr(value, name), convert) for key, name in keys}
    if isinstance(value, Mapping):
        return {key: options_set(option, convert) for key, option in value.items()}
    if isinstance(value, tuple):
        return [options_set(option, convert) for option in value]
    if isinstance(value, NameOfFile):
        return convert(value)
    return value.text if isinstance(value, CyclesOfTime | Expectation) else value


def _different_from_defaults(value: Any) -> Any:
    """Return options that differ from their defaults, by key."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        differing = {
            name: _different_from_defaults(option)
            for name in fields
            if name in value.model_fields_set
            and (option := getattr(value, name)) != fields[name].get_default(call_default_factory=True)
        }
        return {fields[name].alias or name: option for name, option in differing.items() if not _is_empty(option)}
    if isinstance(value, tuple):
        return [_different_from_defaults(option) for option in value]
    return options_set(value)


def _is_empty(value: Any) -> bool:
    return isinstance(value, dict | list) and (not value or all(option == {} for option in value))


def take_out(data: Any, name: str) -> None:
    """Delete the option with a dotted name from nested mappings, if present."""
    *parents, last = name.split(".")
    for key in parents:
        data = data.get(key) if isinstance(data, dict) else None
    if isinstance(data, dict):
        data.pop(last, None)


def _set_option(data: dict[str, Any], name: str, value: Any) -> None:
    """Set the option with a dotted name to ``value``; missing mappings on its path are created."""
    *parents, last = name.split(".")
    target: Any = data
    path: KeyPath = ()
    for key in parents:
        path = (*path, key)
        target = target[index_of(target, key, path[:-1])] if isinstance(target, list) else target.setdefault(key, {})
        if not isinstance(target, dict | list):
            raise RequestError([Problem(path, f"expected a mapping or a list here, got {show(target)}")])
    if isinstance(target, list):
        target[index_of(target, last, path)] = value
    else:
        target[last] = value


def index_of(items: Sequence[Any], name: str, path: KeyPath) -> int:
    """Return the index of a list item, named by its index or its ``name``.

    ``path`` is the path of the list. Raises RequestError for an unknown item.
    """
    item_path = (*path, name)
    if not items:
        raise RequestError([Problem(item_path, f"expected an item of {dotted(path)}, which has none, got {name}")])
    if name.isdecimal() and name.isascii() and len(name) < 10:
        if int(name) < len(items):
            return int(name)
        text = f"expected an index of {dotted(path)} {format_numbers(len(items))}, got {name}"
        raise RequestError([Problem(item_path, text)])
    names = [str(item.get("name", "")) if isinstance(item, dict) else "" for item in items]
    if name in names:
        return names.index(name)
    hint = did_you_mean(name, [entry for entry in names if entry])
    text = f"expected an index of {dotted(path)} or the name of an item in it, got {name!r}{hint}"
    raise RequestError([Problem(item_path, text)])
