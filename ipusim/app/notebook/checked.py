"""Check the argument types of public functions: a wrong type gives a message that names the parameter."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, Union, get_args, get_origin

import numpy as np

from ipusim.api import runs
from ipusim.base.errors import OptionError

P = ParamSpec("P")
R = TypeVar("R")

#: Words for one value of a type, and for several values.
_WORDS: Final[dict[Any, tuple[str, str]]] = {
    str: ("a text", "texts"),
    Path: ("a path", "paths"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true or false"),
    types.NoneType: ("None", "None"),
    Callable: ("a function", "functions"),
    Mapping: ("a mapping", "mappings"),
    Iterable: ("values", "values"),
}
#: Maximum number of characters of a path, as in file systems.
_LONGEST_PATH: Final = 4095
#: Maximum number of characters of a name in a path, as in file systems.
_LONGEST_NAME: Final = 255


def check_types(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that refuses values of other types than annotated.

    Raises OptionError, which is a ValueError, naming the parameter.
    """
    signature = inspect.signature(function)

    @cache
    def hints() -> dict[str, Any]:
        names = inspect.unwrap(function).__globals__
        return {
            name: eval(item.annotation, names) if isinstance(item.annotation, str) else item.annotation
            for name, item in signature.parameters.items()
            if item.annotation is not item.empty
        }

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            parameter, hint = signature.parameters[name], hints().get(name, Any)
            # `open_request` checks scenarios, with better messages.
            if parameter.annotation == "RequestLike":
                continue
            values = value.items() if parameter.kind is parameter.VAR_KEYWORD else [(name, value)]
            for key, item in values:
                if not _fits(item, hint):
                    # An OptionError's text is a template, in which single braces stand for options.
                    raise OptionError(key, f"expected {_words(hint)}, got {runs.show(item)}".replace("{", "{{"))
        return function(*args, **kwargs)

    return wrapper


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value has a type. Numbers may be NumPy numbers. A text does not count as a list of texts."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if Path in inner and isinstance(value, str | Path):
            text = str(value)
            has_short_names = all(len(part) <= _LONGEST_NAME for part in Path(text).parts)
            return "\0" not in text and len(text) <= _LONGEST_PATH and has_short_names
        return any(_fits(value, option) for option in inner)
    if origin in (Sequence, Iterable, Mapping):
        return _fits_many(value, origin, inner)
    if hint is Any or hint in _NUMBERS:
        return hint is Any or _NUMBERS[hint](value)
    if getattr(hint, "_is_protocol", False):
        return all(callable(getattr(value, name, None)) for name in vars(hint) if not name.startswith("_"))
    return isinstance(value, types.NoneType if hint is None else origin or hint)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and abs(int(value)) < runs.NUMBER_LIMIT


#: Which values pass as numbers: also NumPy's numbers, but neither booleans nor integers beyond the limit.
_NUMBERS: Final[dict[Any, Callable[[Any], bool]]] = {
    int: _is_whole,
    float: lambda value: _is_whole(value) or isinstance(value, float | np.floating),
}


def _fits_many(value: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    """Return whether the items of a list or mapping have their types; other iterables are not consumed."""
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0]) and _fits(item, inner[1]) for key, item in value.items()
        )
    if isinstance(value, str) or not isinstance(value, (list, tuple) if origin is Sequence else Iterable):
        return False
    return not isinstance(value, list | tuple) or all(_fits(item, inner[0]) for item in value)


def _words(hint: Any, *, several: bool = False) -> str:
    """Return the words for a value of a type, or for several values."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return runs.one_of(dict.fromkeys(_words(option, several=several) for option in inner))
    if origin is Sequence:
        return f"{'lists' if several else 'a list'} of {_words(inner[0], several=True)}"
    name = getattr(hint, "__name__", hint)
    singular, plural = _WORDS.get(types.NoneType if hint is None else origin or hint, (f"a {name}", f"{name}s"))
    return plural if several else singular
