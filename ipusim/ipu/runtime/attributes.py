"""Attributes of a configuration: their types and defaults, as Graphcore's configuration checks them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from ipusim.base.errors import ConfigAttributeError, ProgramError, ProgramTypeError
from ipusim.base.near_names import nearest


@dataclass(frozen=True)
class Field:
    """An attribute.

    Attributes:
        default: its value to begin with.
        type_name: its type as messages call it.
        fits: whether a value is of that type.
        legal: whether a value of that type is one that there is.
        expected: what a legal value is, in words.
        without_effect: why another value than the default changes nothing here; empty where it does.
    """

    default: Any
    type_name: str
    fits: Callable[[Any], bool]
    legal: Callable[[Any], bool] = lambda _: True
    expected: str = ""
    without_effect: str = ""


#: Attributes and categories by name.
Fields = Mapping[str, "Field | Fields"]


def is_int(value: Any) -> bool:
    """Tell whether a value is a whole number, which True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def whole(default: int, least: int = 0) -> Field:
    """Return an attribute that is a whole number from ``least`` on."""
    return Field(default, "int", is_int, lambda value: value >= least, f"{least} or more")


def flag(default: bool = False) -> Field:
    """Return an attribute that is True or False."""
    return Field(default, "bool", lambda value: isinstance(value, bool))


def text(default: str = "", *legal: str) -> Field:
    """Return an attribute that is a text, one of ``legal`` where there are any."""
    result = Field(default, "str", lambda value: isinstance(value, str))
    expected = "one of " + ", ".join(map(repr, legal))
    return replace(result, legal=lambda value: value in legal, expected=expected) if legal else result


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


class AttributeMetadata:
    """What a configuration knows of one of its attributes or categories."""

    def __init__(self, name: str, field: Field | None, deprecated_msg: str | None = None) -> None:
        """Take the full name, what the attribute is (None for a category), and why it is deprecated, if it is."""
        self._name, self._field, self._deprecated_msg = name, field, deprecated_msg

    @property
    def name(self) -> str:
        """The full name, relative to the configuration's root."""
        return self._name

    @property
    def type(self) -> str | None:
        """The type, as a text; None for a category."""
        return self._field.type_name if self._field else None

    @property
    def default(self) -> Any:
        """The default value; None for a category."""
        return copy(self._field.default) if self._field else None

    @property
    def without_effect(self) -> str:
        """Why another value than the default changes nothing here; empty where it does. This is the simulator's own."""
        return self._field.without_effect if self._field else ""

    @property
    def deprecated(self) -> bool:
        """Whether it is deprecated."""
        return self._deprecated_msg is not None

    @property
    def deprecated_msg(self) -> str | None:
        """Why it is deprecated; None where it is not."""
        return self._deprecated_msg

    def check_type(self, value: Any) -> bool:
        """Return True for a value of the type; raises ProgramTypeError for another. A category takes any."""
        if self._field and not self._field.fits(value):
            raise ProgramTypeError(f"Trying to set {self._name} to {value}, but it must be of type {self.type}")
        return True

    def warn_if_deprecated(self) -> None:
        """Log a warning if it is deprecated."""
        if self.deprecated:
            logging.getLogger(__name__).warning("%s has been deprecated: %s", self._name, self._deprecated_msg)


class Category:
    """Attributes by name, some of them categories themselves; no others can be read or set."""

    def __init__(self, path: str, fields: Fields) -> None:
        """Begin with the defaults; ``path`` is the category's own name, empty for the whole configuration."""
        prefix = f"{path}." if path else ""
        values = {
            name: copy(field.default) if isinstance(field, Field) else Category(prefix + name, field)
            for name, field in fields.items()
        }
        self.__dict__.update(_path=prefix, _fields=fields, **values)

    def __deepcopy__(self, memo: dict[int, Any]) -> Category:
        """Return one with copies of the values, of the same attributes."""
        result = object.__new__(type(self))
        values = ((name, value if name == "_fields" else deepcopy(value, memo)) for name, value in vars(self).items())
        result.__dict__.update(values)
        return result

    def __getattr__(self, name: str) -> Any:
        """Refuse an unknown attribute.

        Raises ConfigAttributeError, with the nearest name: a ValueError as in Graphcore's, and an AttributeError.
        """
        if name.startswith("__"):  # asked for by Python itself, also before there are any fields
            raise AttributeError(name)
        near = nearest(name, self._fields)
        hint = f"Did you mean '{self._path}{near}'?" if near else ""
        raise ConfigAttributeError(f"'{name}' is not a valid attribute of this config. {hint}")

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute.

        Raises ConfigAttributeError for an unknown one, ProgramTypeError for another type, ProgramError for a
        value out of range or a category.
        """
        field = self._fields.get(name)
        path = f"{self._path}{name}"
        if field is None:
            self.__getattr__(name)
        elif not isinstance(field, Field):
            raise ProgramError(f"{path} is a category and cannot be assigned to.")
        elif AttributeMetadata(path, field).check_type(value) and not field.legal(value):
            raise ProgramError(f"Trying to set {path} to {value!r}, but it must be {field.expected}")
        else:
            self.__dict__[name] = value

    def get_attribute_metadata(self, attr: str) -> AttributeMetadata:
        """Return what is known of an attribute or category, by its name below this category.

        Raises ProgramError for an unknown one, and ProgramTypeError for what is no text.
        """
        if not isinstance(attr, str):
            raise ProgramTypeError(f"attr: expected a text, got {attr!r}")
        *above, last = attr.split(".")
        category: Any = self
        try:
            for item in above:
                category = getattr(category, item)
            getattr(category, last)
        except AttributeError as error:
            raise ProgramError(f"Could not get attribute metadata for '{attr}': {error}") from None
        if not isinstance(category, Category):
            raise ProgramError(f"Could not get attribute metadata for '{attr}': {'.'.join(above)} is no category")
        field = category._fields[last]
        name = f"{category._path}{last}"
        return AttributeMetadata(name, field if isinstance(field, Field) else None)

    def same_as(self, other: Category) -> bool:
        """Tell whether all values are those of another category of the same attributes."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in self._fields)
        return all(own.same_as(its) if isinstance(own, Category) else own == its for own, its in pairs)

    def notes(self) -> tuple[str, ...]:
        """Return why each value that is not the default has no effect, where it has none."""
        result: list[str] = []
        for name, field in self._fields.items():
            value = getattr(self, name)
            if isinstance(value, Category):
                result += value.notes()
            elif isinstance(field, Field) and field.without_effect and value != field.default:
                result.append(f"IPUConfig.{self._path}{name} will have no effect: {field.without_effect}.")
        return tuple(result)

    def check_all(self) -> None:
        """Check every value again, as lists and dictionaries can be changed in place; raises as setting them does."""
        for name, field in self._fields.items():
            value = getattr(self, name)
            if isinstance(value, Category):
                value.check_all()
            elif not (field.fits(value) and field.legal(value)):
                setattr(self, name, value)

    def __delattr__(self, name: str) -> None:
        """Refuse to lose an attribute; raises ProgramError."""
        raise ProgramError(f"{self._path}{name} cannot be deleted.")
