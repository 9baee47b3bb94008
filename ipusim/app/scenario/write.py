"""Write Requests as texts of equivalent scenarios."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from ipusim.api import Request, runs, schedules
from ipusim.app.scenario.source import description_of
from ipusim.base.files import MAX_SCENARIO_BYTES

#: File name in a run folder.
SCENARIO_FILE: Final = "scenario.yaml"
#: Valid name in a scenario; file names may be others.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
#: Maximum number of characters of a description's line.
_LINE_WIDTH: Final = 110
#: Maximum number of digits of a number.
_DIGITS: Final = 60


def scenario_text(request: Request, folder: Path, head: Sequence[str] = ()) -> str | None:
    """Return a scenario for ``folder`` that reproduces ``request``; None if no scenario can.

    No scenario can hold Python functions of a program as stages, a schedule that a program registers, a number without
    finite decimals, or a text above the size limit. ``head`` holds comment lines after the description. An invalid
    name is left out; runs then take the file name.
    """
    schedule = request.options.pipeline.schedule
    if request.functions is not None or not (schedule in schedules.HOUSE or re.fullmatch(schedules.FILE, schedule)):
        return None
    try:
        options = _plain_value(request.to_dict(folder))
    except ArithmeticError:
        return None
    options.pop("name", None)
    name_entry = {"name": request.name} if _NAME.fullmatch(request.name) else {}
    comment = "".join(f"# {line}".rstrip() + "\n" for line in head)
    text = f"{_description(request.description)}\n{comment}{runs.dump(name_entry | options)}"
    return text if len(text.encode()) <= MAX_SCENARIO_BYTES else None


def _description(text: str) -> str:
    """Wrap the description into comment lines."""
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    lines = textwrap.wrap(words, _LINE_WIDTH, break_long_words=False, break_on_hyphens=False)
    comment = "".join(f"# {line}\n" for line in lines)
    return comment if description_of(comment) == words else f"# {words}\n"


def _plain_value(value: Any) -> Any:
    """Return options as YAML data; raises ArithmeticError for fractions without finite decimals."""
    if isinstance(value, dict):
        leading_keys = [key for key in ("name", "type") if key in value]  # people write these keys first
        return {key: _plain_value(value[key]) for key in dict.fromkeys([*leading_keys, *value])}
    if isinstance(value, list):
        return [_plain_value(item) for item in value]
    return _decimal(value) if isinstance(value, Fraction) else value


def _decimal(number: Fraction) -> int | float | str:
    """Return a fraction as a number if read back exactly, otherwise as decimals."""
    if number.denominator == 1:
        return int(number)
    nearest_float = float(number)
    if Fraction(str(nearest_float)) == number:
        return nearest_float
    exact = Context(prec=_DIGITS, traps=[]).divide(Decimal(number.numerator), Decimal(number.denominator))
    if Fraction(exact) != number:
        raise ArithmeticError(f"{number} has no decimals")
    return f"{exact:f}"
