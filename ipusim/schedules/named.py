"""Find a schedule by text: a registered name, or a user's file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ipusim.base.errors import ModelError, PlanError, ProgramError
from ipusim.model.functions.python_file import load_value
from ipusim.model.functions.users_code import first_line, line_of, message_of
from ipusim.pipeline.order import Order
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules import registry
from ipusim.schedules.registry import any_count
from ipusim.schedules.schedule import Schedule
from ipusim.schedules.torch_csv import read_schedule

#: Pattern for schedules in files, valid in Python and JSON Schema.
FILE: Final = r"^[^\x00:]{1,1024}(\.py:[A-Za-z_][A-Za-z0-9_]{0,255}|\.csv)$"
#: Description of the pattern.
FILE_WORDS: Final = "your own schedule as file.py:function or file.csv"


def named_from(text: str, folder: Path) -> str:
    """Return the name of a schedule as a scenario in ``folder`` writes it.

    A file of the current folder gets its path from ``folder``, unless ``folder`` has a file of this name too.
    """
    file, colon, name = text.partition(":")
    if not re.fullmatch(FILE, text) or os.path.lexists(folder / file) or not os.path.lexists(file):
        return text
    return f"{os.path.relpath(file, folder)}{colon}{name}"


def schedule_of(text: str, folder: Path) -> Schedule:
    """Return the schedule called ``text``, or the schedule in a file relative to ``folder``.

    ``file.py:name`` is a function from a shape to an Order, or a :class:`Schedule`; ``file.csv`` is an Order in the
    format of torch.distributed.pipelining. Each call reads the file again; no schedule is registered.

    Raises:
        ProgramError: for an unknown name.
        FileError: for an invalid csv file.
        ModelError: for a Python file that cannot be read, fails during execution, or has no schedule ``name``; and if
            only the current folder has the file.
    """
    if not re.fullmatch(FILE, text):
        return registry.find(text)
    if (from_scenario := named_from(text, folder)) != text:
        file = text.partition(":")[0]
        raise ModelError(
            f"{text!r}: {folder} has no file {file}. Paths are relative to the scenario: write {from_scenario}"
        )
    if text.endswith(".csv"):
        return read_schedule(folder / text, text)
    with registry.temporarily():
        value = load_value(
            text, folder, "function or Schedule", lambda value: callable(value) or isinstance(value, Schedule)
        )
    if not isinstance(value, Schedule):
        name, order = text.rpartition(":")[2], _with_line_errors(value, Order)
        return Schedule(name, order, any_count, pipelined=True, summary=f"of {text}", states_sync=False)
    try:
        registry.check(value)
    except ProgramError as error:
        raise ModelError(f"{text!r}: {error}") from None
    return replace(value, order=_with_line_errors(value.order, Order), multiple=_with_line_errors(value.multiple, int))


def _with_line_errors(function: Callable[[PlanShape], Any], result_type: type) -> Callable[[PlanShape], Any]:
    """Wrap a function of a user's file, so that errors name the line.

    The wrapper raises PlanError for a result of another type than ``result_type``, and for any error except the
    refusal of a shape.
    """

    def call_with_line_errors(shape: PlanShape) -> Any:
        try:
            result = function(shape)
        except (KeyboardInterrupt, ProgramError):
            raise
        except BaseException as error:
            raise PlanError(f"{line_of(error, function)}: {message_of(error)}") from error
        if not isinstance(result, result_type) or isinstance(result, bool) or (isinstance(result, int) and result < 1):
            type_text = "an Order" if result_type is Order else "a whole number from 1 up"
            raise PlanError(f"{first_line(function)}: expected {type_text}, got {result!r}")
        return result

    return call_with_line_errors
