"""Define configuration attributes: types and defaults, checked like Graphcore's configuration."""

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
        default: initial value.
        type_name: type name in messages.
        fits: whether a value has the type.
        legal: whether a value of the type is allowed.
        requirement: description of allowed values.
        without_effect: reason why changing the value has no effect; empty if the attribute has an effect.
    """

    default: Any
    type_name: str
    fits: Callable[[Any], bool]
    legal: Callable[[Any], bool] = lambda _: True
    requirement: str = ""
    without_effect: str = ""


#: Attributes and categories by name.
Fields = Mapping[str, "Field | Fields"]


def is_int(value: Any) -> bool:
    """Tell whether a value is an integer; booleans are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def whole(default: int, least: int = 0) -> Field:
    """Return an integer attribute with minimum ``least``."""
    return Field(default, "int", is_int, lambda value: value >= least, f"{least} or more")


def flag(default: bool = False) -> Field:
    """Return a boolean attribute."""
    return Field(default, "bool", lambda value: isinstance(value, bool))


def text(default: str = "", *legal: str) -> Field:
    """Return a text attribute, restricted to ``legal`` values if given."""
    result = Field(default, "str", lambda value: isinstance(value, str))
    requirement = "one of " + ", ".join(map(repr, legal))
    return replace(result, legal=lambda value: value in legal, requirement=requirement) if legal else result


def share(default: float) -> Field:
    """Return a proportion attribute."""
    return Field(
        default, "float", lambda value: isinstance(value, float), lambda value: 0 < value <= 1, "above 0 and at most 1"
    )


def member(default: Enum) -> Field:
    """Return an attribute for members of an enumeration."""
    kind = type(default)
    return Field(default, kind.__name__, lambda value: isinstance(value, kind))


def devices() -> Field:
    """Return an attribute holding one integer per device."""

    def fits(value: Any) -> bool:
        return is_int(value) or (isinstance(value, list | tuple) and all(map(is_int, value)))

    return Field([], "typing.Union[int, typing.List[int], typing.Tuple[int, ...]]", fits)


def options() -> Field:
    """Return a dictionary attribute for a library's options."""
    return Field({}, "dict", lambda value: isinstance(value, dict))


class AttributeMetadata:
    """Metadata of a configuration's attribute or category."""

    def __init__(self, name: str, field: Field | None, deprecated_msg: str | None = None) -> None:
        """Take full name, attribute (None for a category), and reason for deprecation."""
        self._name, self._field, self._deprecated_msg = name, field, deprecated_msg

    @property
    def name(self) -> str:
        """Full name, relative to the configuration's root."""
        return self._name

    @property
    def type(self) -> str | None:
        """Type as text; None for a category."""
        return self._field.type_name if self._field else None

    @property
    def default(self) -> Any:
        """Default value; None for a category."""
        return copy(self._field.default) if self._field else None

    @property
    def without_effect(self) -> str:
        """Reason why a changed value has no effect; empty for attributes with an effect."""
        return self._field.without_effect if self._field else ""

    @property
    def deprecated(self) -> bool:
        """Whether the attribute is deprecated."""
        return self._deprecated_msg is not None

    @property
    def deprecated_msg(self) -> str | None:
        """Reason for deprecation; None if the attribute is not deprecated."""
        return self._deprecated_msg

    def check_type(self, value: Any) -> bool:
        """Return True for a value of the right type, else raise ProgramTypeError.

        Categories accept any value.
        """
        if self._field and not self._field.fits(value):
            raise ProgramTypeError(f"Trying to set {self._name} to {value}, but it must be of type {self.type}")
        return True

    def warn_if_deprecated(self) -> None:
        """Log a warning if the attribute is deprecated."""
        if self.deprecated:
            logging.getLogger(__name__).warning("%s has been deprecated: %s", self._name, self._deprecated_msg)


class Category:
    """Attributes and nested categories by name; other names cannot be read or set."""

    def __init__(self, path: str, fields: Fields) -> None:
        """Begin with the defaults; ``path`` is the category's name, empty for the whole configuration."""
        prefix = f"{path}." if path else ""
        values = {
            name: copy(field.default) if isinstance(field, Field) else Category(prefix + name, field)
            for name, field in fields.items()
        }
        self.__dict__.update(_path=prefix, _fields=fields, **values)

    def __deepcopy__(self, memo: dict[int, Any]) -> Category:
        """Return a copy with copied values and the same attributes."""
        result = object.__new__(type(self))
        values = ((name, value if name == "_fields" else deepcopy(value, memo)) for name, value in vars(self).items())
        result.__dict__.update(values)
        return result

    def __getattr__(self, name: str) -> Any:
        """Refuse an unknown attribute.

        Raises ConfigAttributeError with the nearest name; the error is a ValueError, like Graphcore's, and an
        AttributeError.
        """
        if name.startswith("__"):  # Python asks for these names, also before ``_fields`` exists
            raise AttributeError(name)
        near = nearest(name, self._fields)
        hint = f"Did you mean '{self._path}{near}'?" if near else ""
        raise ConfigAttributeError(f"'{name}' is not a valid attribute of this config. {hint}")

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute.

        Raises ConfigAttributeError for an unknown attribute, ProgramTypeError for a wrong type, ProgramError for a
        value out of range or a category.
        """
        field = self._fields.get(name)
        path = f"{self._path}{name}"
        if field is None:
            self.__getattr__(name)
        elif not isinstance(field, Field):
            raise ProgramError(f"{path} is a category and cannot be assigned to.")
        elif AttributeMetadata(path, field).check_type(value) and not field.legal(value):
            raise ProgramError(f"Trying to set {path} to {value!r}, but it must be {field.requirement}")
        else:
            self.__dict__[name] = value

    def get_attribute_metadata(self, attr: str) -> AttributeMetadata:
        """Return metadata of an attribute or category, by name relative to this category.

        Raises ProgramError for an unknown name, and ProgramTypeError if ``attr`` is not a string.
        """
        if not isinstance(attr, str):
            raise ProgramTypeError(f"attr: expected a text, got {attr!r}")
        *folders, last = attr.split(".")
        category: Any = self
        try:
            for item in folders:
                category = getattr(category, item)
            getattr(category, last)
        except AttributeError as error:
            raise ProgramError(f"Could not get attribute metadata for '{attr}': {error}") from None
        if not isinstance(category, Category):
            raise ProgramError(f"Could not get attribute metadata for '{attr}': {'.'.join(folders)} is no category")
        field = category._fields[last]
        name = f"{category._path}{last}"
        return AttributeMetadata(name, field if isinstance(field, Field) else None)

    def same_as(self, category: Category) -> bool:
        """Tell whether all values equal another category's values."""
        pairs = ((getattr(self, name), getattr(category, name)) for name in self._fields)
        return all(
            item.same_as(counterpart) if isinstance(item, Category) else item == counterpart
            for item, counterpart in pairs
        )

    def notes(self) -> tuple[str, ...]:
        """Return sentences on changed values without effect."""
        result: list[str] = []
        for name, field in self._fields.items():
            value = getattr(self, name)
            if isinstance(value, Category):
                result += value.notes()
            elif isinstance(field, Field) and field.without_effect and value != field.default:
                result.append(f"IPUConfig.{self._path}{name} will have no effect: {field.without_effect}.")
        return tuple(result)

    def check_all(self) -> None:
        """Check all values again, since lists and dictionaries can change in place.

        Raises:
            ProgramTypeError: for a wrong type.
            ProgramError: for a value out of range.
        """
        for name, field in self._fields.items():
            value = getattr(self, name)
            if isinstance(value, Category):
                value.check_all()
            elif not (field.fits(value) and field.legal(value)):
                setattr(self, name, value)

    def __delattr__(self, name: str) -> None:
        """Refuse to delete an attribute; raises ProgramError."""
        raise ProgramError(f"{self._path}{name} cannot be deleted.")
