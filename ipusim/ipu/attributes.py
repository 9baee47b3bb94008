"""Attributes of a configuration: their types and defaults, as Graphcore's configuration checks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from ipusim.errors import ConfigAttributeError, ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.near_names import nearest


@dataclass(frozen=True)
class Field:
    """An attribute.

    Attributes:
        default: its value to begin with.
        type_name: its type as messages call it.
        fits: whether a value is of that type.
        legal: whether a value of that type is one that there is.
        expected: what a legal value is, in words.
        simulated: whether other values than the default change anything here.
    """

    default: Any
    type_name: str
    fits: Callable[[Any], bool]
    legal: Callable[[Any], bool] = lambda _: True
    expected: str = ""
    simulated: bool = True


#: Attributes and categories by name.
Fields = Mapping[str, "Field | Fields"]


def is_int(value: Any) -> bool:
    """Tell whether a value is a whole number, which True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def whole(default: int) -> Field:
    """Return an attribute that is a whole number, 0 or more."""
    return Field(default, "int", is_int, lambda value: value >= 0, "0 or more")


def flag(default: bool = False) -> Field:
    """Return an attribute that is True or False."""
    return Field(default, "bool", lambda value: isinstance(value, bool))


def text(default: str = "", *legal: str) -> Field:
    """Return an attribute that is a text, one of ``legal`` where there are any."""
    found = Field(default, "str", lambda value: isinstance(value, str))
    expected = "one of " + ", ".join(map(repr, legal))
    return replace(found, legal=lambda value: value in legal, expected=expected) if legal else found


def share(default: float) -> Field:
    """Return an attribute that is a proportion."""
    return Field(
        default, "float", lambda value: isinstance(value, float), lambda value: 0 < value <= 1, "above 0 and at most 1"
    )


def member(default: Enum) -> Field:
    """Return an attribute that is a member of an enumeration."""
    kind = type(default)
    return Field(default, kind.__name__, lambda value: isinstance(value, kind))


def devices() -> Field:
    """Return an attribute that is one whole number for each device."""

    def fits(value: Any) -> bool:
        return is_int(value) or (isinstance(value, list | tuple) and all(map(is_int, value)))

    return Field([], "typing.Union[int, typing.List[int], typing.Tuple[int, ...]]", fits)


def options() -> Field:
    """Return an attribute that is a dictionary of a library's options."""
    return Field({}, "dict", lambda value: isinstance(value, dict))


def without_effect(field: Field) -> Field:
    """Return an attribute that must stay as it is, as nothing here depends on it."""
    return replace(field, simulated=False)


class Category:
    """Attributes by name, some of them categories themselves; no others can be read or set."""

    def __init__(self, path: str, fields: Fields) -> None:
        """Begin with the defaults; ``path`` is the category's own name, empty for the whole configuration."""
        prefix = f"{path}." if path else ""
        values = {
            name: copy(each.default) if isinstance(each, Field) else Category(prefix + name, each)
            for name, each in fields.items()
        }
        self.__dict__.update(_path=prefix, _fields=fields, **values)

    def __getattr__(self, name: str) -> Any:
        """Refuse an attribute that there is not.

        Raises ConfigAttributeError, with the nearest name: a ValueError as in Graphcore's, and an AttributeError.
        """
        if name.startswith("__"):  # asked for by Python itself, also before there are any fields
            raise AttributeError(name)
        near = nearest(name, self._fields)
        hint = f"Did you mean '{self._path}{near}'?" if near else ""
        raise ConfigAttributeError(f"'{name}' is not a valid attribute of this config. {hint}")

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute.

        Raises ConfigAttributeError for one that there is not, ProgramTypeError for another type, ProgramError for a
        value out of range, and UnsupportedProgramError for another than the default of what is not simulated.
        """
        field = self._fields.get(name)
        path = f"{self._path}{name}"
        if field is None:
            self.__getattr__(name)
        elif not isinstance(field, Field):
            raise ProgramError(f"{path} is a category and cannot be assigned to.")
        elif not field.fits(value):
            raise ProgramTypeError(f"Trying to set {path} to {value}, but it must be of type {field.type_name}")
        elif not field.legal(value):
            raise ProgramError(f"Trying to set {path} to {value!r}, but it must be {field.expected}")
        elif not field.simulated and value != field.default:
            raise UnsupportedProgramError(
                f"{path} is not simulated: expected its default {field.default!r}, got {value!r}"
            )
        else:
            self.__dict__[name] = value

    def check_all(self) -> None:
        """Check every value again, as lists and dictionaries can be changed in place; raises as setting them does."""
        for name in self._fields:
            value = getattr(self, name)
            if isinstance(value, Category):
                value.check_all()
            else:
                setattr(self, name, value)

    def __delattr__(self, name: str) -> None:
        """Refuse to lose an attribute; raises ProgramError."""
        raise ProgramError(f"{self._path}{name} cannot be deleted.")
