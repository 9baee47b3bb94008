"""Define kinds of fields of a scenario: bounded numbers, quantities with units, names, choices.

Each kind describes accepted values in its JSON Schema (``errorMessage``, shown by editors); messages of
:mod:`ipusim.runs.request.messages` use the same words.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    ValidationInfo,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from ipusim.base.errors import QuantityError
from ipusim.base.units import UNITS, parse_quantity
from ipusim.hardware.rounding import duration_cycles
from ipusim.runs.problems import one_of, show

#: JSON Schema of the word ``none``, accepted by some keys in place of null.
NONE: Final[dict[str, Any]] = {"enum": ["none", "None"]}
#: Key of a validation's context: clock in hertz that converts times to cycles.
CLOCK_HZ: Final = "clock_hz"
#: Text for an interval in session runs, such as ``every 5 session runs``.
_INTERVAL: Final = re.compile(r"every (?:([1-9][0-9]{0,5}) )?session runs?")
#: Maximum interval, in session runs.
_MOST_SESSION_RUNS: Final = 10**6
#: Text of a number of cycles, without a unit of time.
_CYCLES_TEXT: Final = re.compile(r"[^A-Za-zµ]*(?:[eE][+-]?\d+)?\s*(?:cycles?)?\s*")


class Node(BaseModel):
    """Mapping of a scenario: no unknown keys, no conversion between kinds of value, no NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def kind_of(value: object) -> str | None:
    """Return the discriminator tag of ``value``; None for a value without a kind.

    A tag is ``<python>``, or the value's ``type`` in angle brackets, which is also the title of the kind. The brackets
    distinguish tags from keys in the paths of validation errors.
    """
    if isinstance(value, Node):
        return f"<{value.model_config['title']}>"
    if not isinstance(value, dict):
        return None
    if "python" in value:
        return "<python>"
    kind = value.get("type")
    return f"<{kind}>" if isinstance(kind, str) else None


def expects(text: str) -> dict[str, Any]:
    """Return the JSON Schema annotation with the words after "expected" in messages."""
    return {"errorMessage": text}


@dataclass(frozen=True)
class Quantity:
    """Annotation of a field for a number in base units, or a text with unit.

    Attributes:
        kind: a key of :data:`ipusim.base.units.UNITS`.
        least, most: inclusive bounds in the base unit.
        span: bounds as text for users.
        whole: whether the value must be a whole number, which is read as int; other values are read as Fraction.
        words: texts that are allowed instead of a number.
    """

    kind: str
    least: int | Fraction
    most: int | Fraction
    span: str
    whole: bool = True
    words: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Replace pydantic's validation of the field."""
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe both notations."""
        _, example = UNITS[self.kind]
        number = {"type": "number", "minimum": float(self.least), "maximum": float(self.most)}
        words = "".join(f"{word}, or " for word in self.words)
        expectation = f"{words}{self.kind} from {self.span}, as a number or with a unit such as {example}"
        return {"anyOf": [number, {"type": "string"}], "examples": [*self.words, example], **expects(expectation)}

    def read(self, value: object) -> int | Fraction | str:
        """Return the value in the base unit, or a word; raises PydanticCustomError or QuantityError."""
        if isinstance(value, str) and value in self.words:
            return value
        if isinstance(value, int | Fraction) and not isinstance(value, bool):
            exact = Fraction(value)
        elif isinstance(value, float) and isfinite(value):
            exact = Fraction(str(value))  # as written: 0.1 is a tenth
        elif isinstance(value, str):
            exact = parse_quantity(value, self.kind)
        else:
            raise PydanticCustomError("unexpected", "no quantity")
        if not self.least <= exact <= self.most:
            raise PydanticCustomError("unexpected", "out of bounds")
        if self.whole and exact.denominator != 1:
            raise QuantityError(f"expected a whole number of {self.kind}, got {value!r}")
        return int(exact) if self.whole else exact


@dataclass(frozen=True)
class SessionRuns:
    """Annotation of a field that says how often something happens, read as a number of session runs; 0 means never."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Replace pydantic's own reading of the field."""
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe the texts, and the number."""
        text = {"type": "string", "pattern": f"^(never|{_INTERVAL.pattern})$"}
        number = {"type": "integer", "minimum": 0, "maximum": _MOST_SESSION_RUNS}
        expectation = "never, every session run, or every N session runs"
        return {"anyOf": [text, number], "examples": ["every 5 session runs"], **expects(expectation)}

    def read(self, value: object) -> int:
        """Return the session runs from one time to the next; raises PydanticCustomError."""
        if value == "never":
            return 0
        match = _INTERVAL.fullmatch(value) if isinstance(value, str) else None
        number = int(match[1] or 1) if match else value
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _MOST_SESSION_RUNS:
            raise PydanticCustomError("unexpected", "no session runs")
        return number


@dataclass(frozen=True)
class CycleCount:
    """Annotation of a field for cycles of the tile clock, or a time.

    The system's clock converts times.

    Attributes:
        most: maximum number of cycles; the minimum is 0.
        words: texts accepted in place of a number.
    """

    most: int
    words: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Replace pydantic's validation of the field."""
        return core_schema.with_info_plain_validator_function(self._read)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe both notations."""
        number = {"type": "integer", "minimum": 0, "maximum": self.most}
        examples = [*self.words, 1200, "1.2 ms"]
        return {"anyOf": [number, {"type": "string"}], "examples": examples, **expects(self._expectation)}

    @property
    def _expectation(self) -> str:
        return f"{''.join(f'{word}, ' for word in self.words)}cycles from 0 to {self.most}, or a time such as 1.2 ms"

    def _read(self, value: object, info: ValidationInfo) -> int | str:
        if isinstance(value, str) and value in self.words:
            return value
        cycles = Quantity("cycles", 0, self.most, f"0 to {self.most}")
        if not isinstance(value, str) or _CYCLES_TEXT.fullmatch(value):
            return int(cycles.read(value))
        clock_hz = (info.context or {}).get(CLOCK_HZ)
        if clock_hz is None:
            raise PydanticCustomError("unexpected", "a time without a clock")
        try:
            seconds = parse_quantity(value, "seconds")
        except QuantityError as error:
            _, hint, suggestion = str(error).partition("; did you mean ")
            raise QuantityError(f"expected {self._expectation}, got {show(value)}{hint}{suggestion}") from None
        if seconds < 0:
            raise PydanticCustomError("unexpected", "out of bounds")
        return CyclesOfTime(int(cycles.read(duration_cycles(seconds * 10**9, clock_hz))), value)


class CyclesOfTime(int):
    """Cycles that a scenario states as a time, so that another clock gives other cycles.

    Attributes:
        text: time as written.
    """

    text: str

    def __new__(cls, cycles: int, text: str) -> CyclesOfTime:
        """Store the text with the number."""
        instance = super().__new__(cls, cycles)
        instance.text = text
        return instance

    def __getnewargs__(self) -> tuple[Any, ...]:
        """Return the constructor's arguments, for pickle."""
        return int(self), self.text


class NameOfFile(str):
    """Name of a file, or of a function in a file. The name is relative to the request's folder."""

    __slots__ = ()

    def seen_from(self, folder: Path, base: Path) -> str:
        """Return the file's name relative to ``base`` instead of ``folder``; an absolute name stays."""
        if Path(self).is_absolute():
            return str(self)
        real_folder = (folder / self).parent.resolve()  # a symbolic link in the path would make ".." lead elsewhere
        return (Path(os.path.relpath(real_folder, base.resolve())) / Path(self).name).as_posix()


@dataclass(frozen=True)
class Choice:
    """Annotation of a text from a few names, in any case.

    For example, Graphcore's ``Grouped`` is ``grouped``.

    Attributes:
        names: names, or a function that returns the names (for registries that may grow).
        pattern: regular expression for file names accepted in place of a name; empty for names only.
        words: description for other accepted texts.
    """

    names: tuple[str, ...] | Callable[[], Iterable[str]]
    pattern: str = ""
    words: str = ""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Replace pydantic's validation of the field."""
        return core_schema.no_info_plain_validator_function(self._read)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Allow common upper and lower case, and offer the names as registered."""
        names = self._names()
        spelt = dict.fromkeys([*names, *(case(name) for name in names for case in _CASES)])
        if self.pattern:
            choices = {"anyOf": [{"enum": [*spelt]}, {"pattern": self.pattern}], "x-words": self.words}
            return {"type": "string", **choices, **expects(one_of([*names, self.words])), "x-names": [*names]}
        return {"type": "string", "enum": [*spelt], **expects(one_of(names)), "x-names": [*names]}

    def _names(self) -> tuple[str, ...]:
        return self.names if isinstance(self.names, tuple) else tuple(self.names())

    def _read(self, value: object) -> str:
        for name in self._names():
            if isinstance(value, str) and value.lower() == name.lower():
                return name
        if self.pattern and isinstance(value, str) and re.fullmatch(self.pattern, value):
            return NameOfFile(value)
        raise PydanticCustomError("unexpected", "none of the names")


#: Upper and lower case in which editors accept a name.
_CASES = (str.lower, str.capitalize, str.upper)
#: Bytes, such as ``4 KiB``.
Bytes = Annotated[int, Quantity("bytes", 0, 2**36, "0 to 64 GiB")]
#: Bytes of a buffer, or ``all`` for one buffer of everything.
BufferBytes = Annotated[int | Literal["all"], Quantity("bytes", 0, 2**36, "0 to 64 GiB", words=("all",))]
#: Bytes of a memory beside IPUs, such as Streaming Memory; larger than any tensor.
MachineBytes = Annotated[int, Quantity("bytes", 0, 2**44, "0 to 16 TiB")]
#: Clock, such as ``1.325 GHz``.
Hertz = Annotated[int, Quantity("hertz", 10**6, 10**10, "1 MHz to 10 GHz")]
#: Rate, such as ``64 GB/s``.
BytesPerSecond = Annotated[Fraction, Quantity("bytes per second", 10**6, 10**14, "1 MB/s to 100 TB/s", whole=False)]
#: Rate of code on the host, which may be slow.
HostBytesPerSecond = Annotated[Fraction, Quantity("bytes per second", 10**3, 10**14, "1 kB/s to 100 TB/s", whole=False)]
#: Duration, such as ``3.7 us``.
Seconds = Annotated[Fraction, Quantity("seconds", 0, 1, "0 to 1 s", whole=False)]
#: Maximum number of stages of a pipeline: 4 on each IPU of the largest pod, the upper limit of a pipeline.
MAX_STAGES: Final = 256
#: Maximum cycles of a duration, about a minute: the longest run fits in 64 bits.
MOST_CYCLES: Final = 10**11
#: Duration in cycles of the tile clock, or as a time.
Cycles = Annotated[int, CycleCount(MOST_CYCLES)]
#: Maximum number of characters of a name.
MAX_NAME: Final = 64
#: Name of a layer or stage, which ``--set`` accepts as an index.
Name = Annotated[
    str,
    Field(
        pattern=rf"^[A-Za-z_][A-Za-z0-9_-]{{0,{MAX_NAME - 1}}}$",
        json_schema_extra=expects(
            f"a name of at most {MAX_NAME} letters, digits, _ and -, the first one a letter or _"
        ),
    ),
]
#: File name, relative to the scenario's folder.
FileName = Annotated[
    str,
    Field(pattern=r"^[^\x00]{1,1024}$", json_schema_extra=expects("the name of a file, relative to the scenario")),
    AfterValidator(NameOfFile),
]
#: User's Python function.
PythonName = Annotated[
    str,
    Field(
        pattern=r"^[^\x00:]{1,1024}\.py:[A-Za-z_][A-Za-z0-9_]{0,255}$",
        json_schema_extra=expects("a Python function as file.py:function, the file relative to the scenario"),
    ),
    AfterValidator(NameOfFile),
]
#: Size of one axis of an array.
Axis = Annotated[int, Field(ge=1, le=65_536)]
#: Shape of an array.
Shape = Annotated[tuple[Axis, ...], Strict(False), Field(max_length=4)]
#: Seed of random draws.
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
